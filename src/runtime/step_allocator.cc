#include "runtime/step_allocator.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include "base/check.h"
#include "memory/layout.h"

namespace tesser::runtime {
namespace {

// Vector loads of a whole cache line never cross into another block, and one kernel's writes never share a line with
// another's.
constexpr std::size_t kAlignment = 64;

thread_local AllocationScript* active_script = nullptr;
// Address ranges of planned memory: releasing a block inside one is nothing to do, whoever does it. They are few and
// live long.
std::mutex announced_mutex;
std::vector<std::pair<std::byte*, std::byte*>> announced;
std::atomic<std::uintptr_t> lowest_announced{UINTPTR_MAX};
std::atomic<std::uintptr_t> highest_announced{0};

bool is_announced(void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (value < lowest_announced.load(std::memory_order_relaxed) ||
      value >= highest_announced.load(std::memory_order_relaxed))
    return false;
  const std::lock_guard lock(announced_mutex);
  return std::any_of(announced.begin(), announced.end(), [&](const auto& range) {
    return static_cast<std::byte*>(address) >= range.first && static_cast<std::byte*>(address) < range.second;
  });
}

void release_block(void* address) {
  if (address == nullptr || is_announced(address)) return;
  if (active_script != nullptr) active_script->release(address);
  c10::free_cpu(address);
}

class StepAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (active_script == nullptr || bytes == 0) return c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* address = active_script->allocate(bytes);
    return {address, address, &release_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

}  // namespace

void install_step_allocator() {
  static StepAllocator allocator;
  static std::once_flag once;
  std::call_once(once, [] { c10::SetCPUAllocator(&allocator, /*priority=*/100); });
}

void announce_memory(std::span<std::byte> memory) {
  const std::lock_guard lock(announced_mutex);
  std::byte* const end = memory.data() + memory.size();
  announced.emplace_back(memory.data(), end);
  lowest_announced = std::min(lowest_announced.load(), reinterpret_cast<std::uintptr_t>(memory.data()));
  highest_announced = std::max(highest_announced.load(), reinterpret_cast<std::uintptr_t>(end));
}

void forget_memory(std::span<std::byte> memory) {
  const std::lock_guard lock(announced_mutex);
  std::erase_if(announced, [&](const auto& range) { return range.first == memory.data(); });
}

ScriptScope::ScriptScope(AllocationScript& script) {
  TESSER_CHECK(active_script == nullptr, "another script active on this thread");
  active_script = &script;
}
ScriptScope::~ScriptScope() { active_script = nullptr; }

void AllocationScript::begin_step(std::size_t nodes) {
  nodes_ = nodes;
  clock_ = 0;
  mismatch_ = false;
  unplanned_allocations_ = 0;
  unplanned_bytes_ = 0;
  unplanned_peak_bytes_ = 0;
  heap_blocks_.clear();
  if (!planned_) {
    allocations_.clear();
    recorded_.clear();
  }
}

void AllocationScript::begin_node(std::int32_t node) {
  node_ = node;
  if (planned_) cursor_ = first_of_node_[static_cast<std::size_t>(node)];
}

void AllocationScript::end_node() {
  if (planned_) {
    if (cursor_ != first_of_node_[static_cast<std::size_t>(node_) + 1]) mismatch_ = true;
    return;
  }
  for (auto i = allocations_.rbegin(); i != allocations_.rend() && i->node == node_; ++i) i->scratch = i->end != 0;
}

bool AllocationScript::pin(const void* storage, std::size_t bytes, std::byte* address, std::int32_t earliest) {
  const auto found = planned_ ? recorded_.end() : recorded_.find(const_cast<void*>(storage));
  if (found == recorded_.end()) return false;
  Allocation& allocation = allocations_[found->second];
  if (allocation.bytes != bytes || allocation.node < earliest) return false;
  if (allocation.pinned == nullptr) allocation.pinned = address;
  return allocation.pinned == address;
}

bool AllocationScript::end_step() {
  if (planned_) {
    if (mismatch_) discard_plan();
    return false;
  }
  for (Allocation& allocation : allocations_) {
    if (allocation.end == 0) allocation.end = clock_ + 1;
  }
  recorded_.clear();
  return true;
}

void AllocationScript::discard_plan() { planned_ = false; }

std::size_t AllocationScript::plan(const Arena& arena, std::size_t offset) {
  std::vector<memory::Block> blocks;
  blocks.reserve(allocations_.size());
  for (const Allocation& allocation : allocations_) {
    memory::Block block;
    block.bytes = allocation.pinned != nullptr ? 0 : static_cast<std::int64_t>(allocation.bytes);
    block.first_node = static_cast<std::int32_t>(allocation.begin);
    block.last_node =
        static_cast<std::int32_t>(allocation.end - 1);  // a release and the next allocation have different times
    block.alignment = kAlignment;
    blocks.push_back(block);
  }
  const memory::Layout layout = memory::place(blocks);
  TESSER_CHECK(offset + static_cast<std::size_t>(layout.total) <= arena.capacity(),
               std::to_string(layout.total) + " bytes after " + std::to_string(offset));
  first_of_node_.assign(nodes_ + 1, allocations_.size());
  for (std::size_t i = allocations_.size(); i-- > 0;) {
    allocations_[i].offset = static_cast<std::size_t>(layout.offsets[i]);
    first_of_node_[static_cast<std::size_t>(allocations_[i].node)] = i;
  }
  for (std::size_t node = nodes_; node-- > 0;)
    first_of_node_[node] = std::min(first_of_node_[node], first_of_node_[node + 1]);
  memory_ = arena.base() + offset;
  planned_ = true;
  return static_cast<std::size_t>(layout.total);
}

void* AllocationScript::allocate(std::size_t bytes) {
  if (!planned_) {
    void* address = c10::alloc_cpu(bytes);
    recorded_[address] = allocations_.size();
    Allocation allocation;
    allocation.node = node_;
    allocation.bytes = bytes;
    allocation.begin = ++clock_;
    allocations_.push_back(allocation);
    return address;
  }
  if (cursor_ < first_of_node_[static_cast<std::size_t>(node_) + 1] && allocations_[cursor_].bytes == bytes) {
    const Allocation& allocation = allocations_[cursor_++];
    return allocation.pinned != nullptr ? allocation.pinned : memory_ + allocation.offset;
  }
  mismatch_ = true;
  return allocate_from_heap(bytes);
}

void* AllocationScript::allocate_from_heap(std::size_t bytes) {
  void* address = c10::alloc_cpu(bytes);
  heap_blocks_[address] = bytes;
  ++unplanned_allocations_;
  unplanned_bytes_ += static_cast<std::int64_t>(bytes);
  unplanned_peak_bytes_ = std::max(unplanned_peak_bytes_, unplanned_bytes_);
  return address;
}

void AllocationScript::release(void* address) {
  if (!planned_) {
    const auto found = recorded_.find(address);
    if (found == recorded_.end()) return;
    allocations_[found->second].end = ++clock_;
    recorded_.erase(found);
    return;
  }
  const auto found = heap_blocks_.find(address);
  if (found == heap_blocks_.end()) return;
  unplanned_bytes_ -= static_cast<std::int64_t>(found->second);
  heap_blocks_.erase(found);
}

}  // namespace tesser::runtime
