#include "transport/tcp_message.h"

#include "transport/wire.h"

namespace tesser::transport {

std::string TcpMessage::serialise() const {
  WireWriter writer;
  writer.put(kind)
      .put(static_cast<std::uint32_t>(layout.axes.size()))
      .put(value)
      .put(region)
      .put(signal)
      .put(layout.offset)
      .put(layout.run_bytes);
  for (const Strided::Axis& axis : layout.axes) {
    writer.put(axis.count).put(axis.pitch);
  }
  return writer.take();
}

std::optional<TcpMessage::Parsed> TcpMessage::parse(std::string_view bytes) {
  Parsed parsed;
  if (bytes.size() < kFixedBytes) {
    return parsed;
  }
  WireReader reader(bytes);
  TcpMessage& message = parsed.message;
  message.kind = reader.get<TcpKind>();
  const auto axes = reader.get<std::uint32_t>();
  if (message.kind < TcpKind::kWrite || message.kind > TcpKind::kReadReply || axes > kMostAxes) {
    return std::nullopt;
  }
  if (bytes.size() < kFixedBytes + axes * 16) {
    return parsed;
  }
  message.value = reader.get<std::uint64_t>();
  message.region = reader.get<std::uint32_t>();
  message.signal = reader.get<std::uint32_t>();
  message.layout.offset = reader.get<std::uint64_t>();
  message.layout.run_bytes = reader.get<std::uint64_t>();
  message.layout.axes.resize(axes);
  for (Strided::Axis& axis : message.layout.axes) {
    axis.count = reader.get<std::uint64_t>();
    axis.pitch = reader.get<std::uint64_t>();
  }
  if (!message.layout.checked_end()) {
    return std::nullopt;
  }
  parsed.used = kFixedBytes + axes * 16;
  return parsed;
}

}  // namespace tesser::transport
