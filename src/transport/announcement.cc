#include "transport/announcement.h"

#include <fmt/format.h>

#include "transport/wire.h"

namespace tesser::transport {
namespace {

constexpr std::uint32_t kMostDimensions = 64;
constexpr std::uint32_t kMostAxes = 8;

}  // namespace

std::string Announcement::serialise() const {
  WireWriter writer;
  writer.put(role).text(name).put(nonce).put(signal).put(ring_words).put(block).put(first_sequence).put(flags);
  writer.put(static_cast<std::uint32_t>(dtype)).put(static_cast<std::uint32_t>(shape.size()));
  for (const std::int64_t dimension : shape) {
    writer.put(dimension);
  }
  writer.put(region).put(layout.offset).put(layout.run_bytes).put(static_cast<std::uint32_t>(layout.axes.size()));
  for (const Strided::Axis& axis : layout.axes) {
    writer.put(axis.count).put(axis.pitch);
  }
  return writer.take();
}

Outcome<Announcement> Announcement::parse(std::string_view bytes, const std::string& peer) {
  WireReader reader(bytes);
  Announcement announcement;
  announcement.role = reader.get<Role>();
  announcement.name = reader.text();
  announcement.nonce = reader.get<std::uint32_t>();
  announcement.signal = reader.get<std::uint32_t>();
  announcement.ring_words = reader.get<std::uint32_t>();
  announcement.block = reader.get<std::uint32_t>();
  announcement.first_sequence = reader.get<std::uint32_t>();
  announcement.flags = reader.get<std::uint32_t>();
  const auto dtype = reader.get<std::uint32_t>();
  const auto rank = reader.get<std::uint32_t>();
  bool good = dtype <= static_cast<std::uint32_t>(DType::kBool) && rank <= kMostDimensions;
  for (std::uint32_t i = 0; good && i < rank; ++i) {
    announcement.shape.push_back(reader.get<std::int64_t>());
  }
  announcement.region = reader.get<std::uint32_t>();
  announcement.layout.offset = reader.get<std::uint64_t>();
  announcement.layout.run_bytes = reader.get<std::uint64_t>();
  const auto axes = reader.get<std::uint32_t>();
  good = good && axes <= kMostAxes;
  for (std::uint32_t i = 0; good && i < axes; ++i) {
    Strided::Axis axis;
    axis.count = reader.get<std::uint64_t>();
    axis.pitch = reader.get<std::uint64_t>();
    announcement.layout.axes.push_back(axis);
  }
  good = good && reader.at_end() && announcement.role >= Role::kStaticSender &&
         announcement.role <= Role::kNotificationReader && announcement.nonce != 0;
  if (good) {
    announcement.dtype = static_cast<DType>(dtype);
    good = checked_bytes(announcement.dtype, announcement.shape).has_value() && announcement.layout.checked_end();
  }
  if (!good) {
    return failure(FailureKind::kProtocol, peer, fmt::format("{} announces a transfer that cannot be right", peer));
  }
  return announcement;
}

}  // namespace tesser::transport
