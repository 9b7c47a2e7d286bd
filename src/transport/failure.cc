#include "transport/failure.h"

namespace tesser::transport {

std::string_view failure_kind_name(FailureKind kind) {
  switch (kind) {
    case FailureKind::kInvalidArgument:
      return "invalid-argument";
    case FailureKind::kUnavailable:
      return "unavailable";
    case FailureKind::kUnreachable:
      return "unreachable";
    case FailureKind::kTimeout:
      return "timeout";
    case FailureKind::kVersionMismatch:
      return "version-mismatch";
    case FailureKind::kWrongPeer:
      return "wrong-peer";
    case FailureKind::kWrongRun:
      return "wrong-run";
    case FailureKind::kTypeMismatch:
      return "type-mismatch";
    case FailureKind::kPeerClosed:
      return "peer-closed";
    case FailureKind::kPeerDied:
      return "peer-died";
    case FailureKind::kPeerSilent:
      return "peer-silent";
    case FailureKind::kExpelled:
      return "expelled";
    case FailureKind::kLinkDown:
      return "link-down";
    case FailureKind::kProtocol:
      return "protocol";
    case FailureKind::kRegistrationRefused:
      return "registration-refused";
    case FailureKind::kOutOfMemory:
      return "out-of-memory";
  }
  return "unknown";
}

Error to_error(const Failure& failure) {
  const bool wrong_input = failure.kind == FailureKind::kInvalidArgument;
  return Error{wrong_input ? ErrorCode::kInvalidInput : ErrorCode::kFailed, failure.message};
}

}  // namespace tesser::transport
