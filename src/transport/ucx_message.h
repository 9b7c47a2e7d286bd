// Messages between UCX workers of two devices, as they lie on the wire. Internal to ucx_*.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tesser::transport {

constexpr unsigned kMessageId = 1;  // of UCX's active messages
// Largest payload of one message: a small tensor with its notification, or a chunk of a large one.
constexpr std::size_t kLargestPayload = 8 << 10;

enum class MessageKind : std::uint32_t {
  kSignal = 1,  // perhaps with a payload; the payload is placed first
  kChunk,       // of a write: the payload's place is in `region` at `offset`
  kRead,        // asks for `value` bytes of `region` at `offset`, as request `number`
  kReadChunk,   // the payload belongs to request `number`, at `offset` of what was asked for
  kFlush,       // asks for kFlushed once `number` chunks are placed, as request `value`
  kFlushed,     // answers request `value`
};

struct MessageHeader {
  std::uint64_t token = 0;  // of the channel
  MessageKind kind = MessageKind::kSignal;
  std::uint32_t region = 0;
  std::uint64_t offset = 0;
  // Of a chunk: which one of its channel and direction, from 1. Of a signal or flush: how many chunks it comes after.
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // of a signal: for the word
  std::uint32_t signal = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(MessageHeader) == 48, "it is the header of the message on the wire");

}  // namespace tesser::transport
