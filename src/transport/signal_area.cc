#include "transport/signal_area.h"

#include <climits>
#include <cstring>
#include <utility>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

namespace tesser::transport {

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free &&
                  std::atomic_ref<std::uint32_t>::is_always_lock_free,
              "words shared by processes need lock-free atomics");

void ring(Doorbell& doorbell) {
  if (std::atomic_ref<std::uint32_t>(doorbell.sleepers).load(std::memory_order_seq_cst) == 0) {
    return;
  }
  std::atomic_ref<std::uint32_t>(doorbell.word).fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &doorbell.word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

SignalArea::SignalArea(std::shared_ptr<MemoryRegion> region)
    : region_(std::move(region)), offsets_(sizeof(Doorbell), region_->bytes(), kWordBytes) {}

Outcome<std::uint32_t> SignalArea::allocate(std::uint32_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto offset = offsets_.allocate(bytes, kWordBytes);
  if (!offset) {
    return failure(FailureKind::kOutOfMemory, "",
                   fmt::format("the device has no {} bytes left for signals, of {} altogether; close transfers not in "
                               "use, or give it more (DeviceOptions::signal_bytes)",
                               bytes, region_->bytes()));
  }
  for (std::uint32_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    store_signal(data(), static_cast<std::uint32_t>(*offset) + i, 0);
  }
  return static_cast<std::uint32_t>(*offset);
}

Outcome<std::uint32_t> SignalArea::allocate_block() {
  auto offset = allocate(kBlockBytes);
  if (offset) {
    const std::lock_guard lock(mutex_);
    blocks_.insert(*offset);
  }
  return offset;
}

bool SignalArea::is_block(std::uint64_t offset, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (offset >= region_->bytes() || bytes > kBlockBytes) {
    return false;
  }
  auto block = blocks_.upper_bound(static_cast<std::uint32_t>(offset));
  if (block == blocks_.begin()) {
    return false;
  }
  --block;
  return offset + bytes <= std::uint64_t{*block} + kBlockBytes;
}

void SignalArea::free(std::uint32_t offset) {
  const std::lock_guard lock(mutex_);
  offsets_.free(offset);
  tags_.erase(offset);
  rings_.erase(offset);
  blocks_.erase(offset);
}

void SignalArea::expect(std::uint32_t offset, std::uint32_t tag) {
  const std::lock_guard lock(mutex_);
  tags_[offset] = tag;
}

void SignalArea::expect_ring(std::uint32_t offset, std::uint32_t bytes, std::uint32_t tag) {
  const std::lock_guard lock(mutex_);
  rings_[offset] = {bytes, tag};
}

bool SignalArea::expects(std::uint32_t offset, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  return expects_locked(offset, value);
}

bool SignalArea::expects_locked(std::uint32_t offset, std::uint64_t value) const {
  const auto given = static_cast<std::uint32_t>(value >> 32);
  if (const auto tag = tags_.find(offset); tag != tags_.end()) {
    return tag->second == given;
  }
  auto ring = rings_.upper_bound(offset);
  if (ring == rings_.begin() || offset % sizeof(std::uint64_t) != 0) {
    return false;
  }
  --ring;
  return offset - ring->first < ring->second.bytes && ring->second.tag == given;
}

void SignalArea::deliver(std::uint32_t offset, std::uint64_t value) {
  {
    const std::lock_guard lock(mutex_);
    if (!expects_locked(offset, value)) {
      return;
    }
    store_signal(data(), offset, value);
  }
  ring();
}

}  // namespace tesser::transport
