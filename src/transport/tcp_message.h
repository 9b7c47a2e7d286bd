// What goes over a data connection (docs/transport.md, wire formats). Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/strided.h"

namespace tesser::transport {

// Runs shorter than this go through a buffer on their way: a piece of a system call costs more than its copy.
constexpr std::uint64_t kShortRun = 256;

enum class TcpKind : std::uint32_t {
  kWrite = 1,        // payload for `layout` in `region`, then `value` for the word `signal` (0: none)
  kReadRequest = 2,  // asks for `layout` in `region`; `value` numbers the request
  kReadReply = 3,    // payload of the request `value`
};

struct TcpMessage {
  static constexpr std::size_t kFixedBytes = 40;
  static constexpr std::size_t kMostAxes = 8;
  static constexpr std::size_t kMostBytes = kFixedBytes + kMostAxes * 16;

  TcpKind kind = TcpKind::kWrite;
  std::uint64_t value = 0;
  std::uint32_t region = 0;
  std::uint32_t signal = 0;
  Strided layout;  // of the payload, in order

  std::string serialise() const;

  struct Parsed;
  // Reads the message at the begin of `bytes`; used 0: more bytes are needed; nothing: no message begins so.
  static std::optional<Parsed> parse(std::string_view bytes);
};

struct TcpMessage::Parsed {
  std::size_t used = 0;
  TcpMessage message;
};

}  // namespace tesser::transport
