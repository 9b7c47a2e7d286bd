// Expected failures as values.
//
// A function that can fail for reasons outside the program (files, input, peers, memory) returns Result<T>. Broken
// invariants abort through TESSER_CHECK (base/check.h). No exception crosses a folder's interface.
#pragma once

#include <string>
#include <utility>

#include <tl/expected.hpp>

namespace tesser {

enum class ErrorCode {
  kInvalidInput,  // wrong usage or input: exit code 2
  kNotFound,      // a file or name that does not exist: exit code 2
  kFailed,        // the run failed: exit code 1
};

// One message for people: what, where, and what to do.
struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> invalid_input(std::string message) {
  return tl::unexpected<Error>(Error{ErrorCode::kInvalidInput, std::move(message)});
}
inline tl::unexpected<Error> not_found(std::string message) {
  return tl::unexpected<Error>(Error{ErrorCode::kNotFound, std::move(message)});
}
inline tl::unexpected<Error> failed(std::string message) {
  return tl::unexpected<Error>(Error{ErrorCode::kFailed, std::move(message)});
}

// Exit code of the process for an error, as DESIGN and README state: 1 the run failed, 2 wrong usage or input.
inline int exit_code(const Error& error) { return error.code == ErrorCode::kFailed ? 1 : 2; }

}  // namespace tesser

// Evaluates an expression of type Result<T>; returns its error from the enclosing function, or else yields nothing.
#define TESSER_RETURN_IF_ERROR(expression)                                      \
  do {                                                                          \
    if (auto tesser_result = (expression); !tesser_result.has_value()) {        \
      return tl::unexpected<::tesser::Error>(std::move(tesser_result.error())); \
    }                                                                           \
  } while (false)

#define TESSER_CONCATENATE_INNER(a, b) a##b
#define TESSER_CONCATENATE(a, b) TESSER_CONCATENATE_INNER(a, b)

// TESSER_ASSIGN_OR_RETURN(auto x, make_x()): declares x from the value, or returns the error.
#define TESSER_ASSIGN_OR_RETURN(declaration, expression)                                                     \
  auto TESSER_CONCATENATE(tesser_result_, __LINE__) = (expression);                                          \
  if (!TESSER_CONCATENATE(tesser_result_, __LINE__).has_value()) {                                           \
    return tl::unexpected<::tesser::Error>(std::move(TESSER_CONCATENATE(tesser_result_, __LINE__).error())); \
  }                                                                                                          \
  declaration = std::move(*TESSER_CONCATENATE(tesser_result_, __LINE__))
