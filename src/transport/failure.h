// What can go wrong between two devices, as values.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace tesser::transport {

enum class FailureKind : std::uint8_t {
  kInvalidArgument,      // a caller's address, name or size
  kUnavailable,          // not in this build, or not on this machine
  kUnreachable,          // nobody answers at the peer's address
  kTimeout,              // a deadline passed
  kVersionMismatch,      // the peer speaks another protocol version
  kWrongPeer,            // another device answers than the one meant
  kWrongRun,             // the peer belongs to another run or epoch
  kTypeMismatch,         // both ends of a transfer disagree on type or size
  kPeerClosed,           // the peer ended its device
  kPeerDied,             // the peer's process is gone
  kPeerSilent,           // no heartbeat: stopped, or machine or link are down
  kExpelled,             // the peer has given up on this device
  kLinkDown,             // the network reports an error
  kProtocol,             // the peer sent something that cannot be right
  kRegistrationRefused,  // memory cannot be registered with an adapter
  kOutOfMemory,
};

std::string_view failure_kind_name(FailureKind kind);  // "peer-silent"

struct Failure {
  FailureKind kind = FailureKind::kProtocol;
  std::string peer;     // name of the peer it concerns; empty when none
  std::string message;  // for people: what, where, what to do; names the peer
};

template <typename T>
using Outcome = tl::expected<T, Failure>;

inline tl::unexpected<Failure> failure(FailureKind kind, std::string peer, std::string message) {
  return tl::unexpected<Failure>(Failure{kind, std::move(peer), std::move(message)});
}

// For callers that report through base's Error.
Error to_error(const Failure& failure);

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline Deadline in(std::chrono::nanoseconds time) { return Clock::now() + time; }

}  // namespace tesser::transport

#define TESSER_TRANSPORT_RETURN_IF_FAILED(expression)                                         \
  do {                                                                                        \
    if (auto tesser_outcome = (expression); !tesser_outcome.has_value()) {                    \
      return tl::unexpected<::tesser::transport::Failure>(std::move(tesser_outcome.error())); \
    }                                                                                         \
  } while (false)

#define TESSER_TRANSPORT_ASSIGN(declaration, expression)                   \
  auto TESSER_CONCATENATE(tesser_outcome_, __LINE__) = (expression);       \
  if (!TESSER_CONCATENATE(tesser_outcome_, __LINE__).has_value()) {        \
    return tl::unexpected<::tesser::transport::Failure>(                   \
        std::move(TESSER_CONCATENATE(tesser_outcome_, __LINE__).error())); \
  }                                                                        \
  declaration = std::move(*TESSER_CONCATENATE(tesser_outcome_, __LINE__))
