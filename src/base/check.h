// Broken invariants, as opposed to expected failures (base/result.h).
#pragma once

#include <string>

namespace tesser {

// Prints where, what was expected and what was found to standard error, and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* expected, const std::string& found);

}  // namespace tesser

// TESSER_CHECK(a.size() == b.size(), std::to_string(a.size()) + " and " + std::to_string(b.size()))
//
// Aborts unless the condition holds. `found` says what was found instead; it is evaluated only then. For mistakes of
// callers inside this project; what users, files or peers can cause is a Result.
#define TESSER_CHECK(condition, found)                                 \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::tesser::check_failed(__FILE__, __LINE__, #condition, (found)); \
    }                                                                  \
  } while (false)
