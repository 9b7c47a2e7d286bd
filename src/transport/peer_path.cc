#include "transport/peer_path.h"

namespace tesser::transport {

void PeerPath::write_layout(const std::byte* from, const Strided& source, const RemoteRegion& to, const Strided& target,
                            Completion& completion) {
  if (source.axes.empty() && target.axes.empty()) {
    write(from + source.offset, to, target.offset, source.run_bytes, completion);
    return;
  }
  RunPairs runs(source, target);
  while (const auto run = runs.next()) {
    write(from + run->first, to, run->second, run->bytes, completion);
  }
}

void PeerPath::read_layout(const RemoteRegion& from, const Strided& source, std::byte* to, const Strided& target,
                           Completion& completion) {
  if (source.axes.empty() && target.axes.empty()) {
    read(from, source.offset, to + target.offset, source.run_bytes, completion);
    return;
  }
  RunPairs runs(source, target);
  while (const auto run = runs.next()) {
    read(from, run->first, to + run->second, run->bytes, completion);
  }
}

void PeerPath::write_layout_and_notify(const std::byte* from, const Strided& source, const RemoteRegion& to,
                                       const Strided& target, const RemoteRegion& signals, std::uint32_t signal,
                                       std::uint64_t value, Notification order, Completion& completion) {
  const std::size_t joint = largest_joint();
  if (joint != 0 && source.run_bytes <= joint && source.axes.empty() && target.axes.empty()) {
    write_and_notify(from + source.offset, to, target.offset, source.run_bytes, signal, value, completion);
    return;
  }
  write_layout(from, source, to, target, completion);
  notify(signals, signal, value, order, completion);
}

}  // namespace tesser::transport
