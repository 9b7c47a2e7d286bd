// PyTorch's CPU allocator, replaced: every tensor storage that a kernel asks for during a step is known by its node and
// its place in that node's sequence (the RDMA paper's dynamic tracing). The first step records them; from then on each
// comes from its planned address.
//
// AllocationScript holds one program's sequence. Allocations made while no script is active on the calling thread, and
// those of the pool's other threads, go to PyTorch's own allocator. One script may be active on a thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/arena.h"

namespace tesser::runtime {

class AllocationScript {
 public:
  // One storage a kernel asked for, in the order of asking. Times count allocations and releases of a step.
  struct Allocation {
    std::int32_t node = 0;
    std::size_t bytes = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;         // time of release, or the end of the step
    std::size_t offset = 0;       // from the start of the step's memory, once planned
    bool scratch = false;         // released before its node ended
    std::byte* pinned = nullptr;  // where it lies instead of the step's memory; null for most
  };

  AllocationScript() = default;

  // Starts a step of `nodes` nodes: recording when there is no plan, replaying otherwise.
  void begin_step(std::size_t nodes);
  void begin_node(std::int32_t node);
  void end_node();
  // While recording, before it is released: from the next step on the storage at `storage`, which has so many bytes,
  // lies at `address`, whose memory is announced. Does nothing and returns false where there is no such storage, where
  // a node before `earliest` has asked for it, or where another address is given to it already.
  bool pin(const void* storage, std::size_t bytes, std::byte* address, std::int32_t earliest);
  // Ends the step. Returns true when it recorded a sequence that plan() has not seen.
  bool end_step();

  // Fixes every recorded allocation that is not pinned at an address of the arena from `offset` on. Returns the bytes
  // the step needs there.
  std::size_t plan(const Arena& arena, std::size_t offset);
  // Forgets the plan, so that the next step records again.
  void discard_plan();

  bool planned() const { return planned_; }
  const std::vector<Allocation>& allocations() const { return allocations_; }
  std::int64_t unplanned_allocations() const { return unplanned_allocations_; }
  std::int64_t unplanned_peak_bytes() const { return unplanned_peak_bytes_; }

  // For the allocator.
  void* allocate(std::size_t bytes);
  void release(void* address);

 private:
  void* allocate_from_heap(std::size_t bytes);

  std::vector<Allocation> allocations_;
  std::vector<std::size_t> first_of_node_;  // index into allocations_; one more entry than nodes
  std::size_t nodes_ = 0;
  std::int32_t node_ = 0;
  std::size_t cursor_ = 0;
  std::int64_t clock_ = 0;
  bool planned_ = false;
  bool mismatch_ = false;
  std::byte* memory_ = nullptr;

  std::unordered_map<void*, std::size_t> recorded_;     // address to allocation, while recording
  std::unordered_map<void*, std::size_t> heap_blocks_;  // address to bytes, while replaying
  std::int64_t unplanned_allocations_ = 0;
  std::int64_t unplanned_bytes_ = 0;
  std::int64_t unplanned_peak_bytes_ = 0;
};

// While it lives, the calling thread's storages follow the script.
class ScriptScope {
 public:
  explicit ScriptScope(AllocationScript& script);
  ~ScriptScope();
  ScriptScope(const ScriptScope&) = delete;
  ScriptScope& operator=(const ScriptScope&) = delete;
};

// Releasing a block inside announced memory is nothing to do, whichever thread does it. Announced before storages lie
// there, an arena or where storages are pinned; forgotten before it is unmapped.
void announce_memory(std::span<std::byte> memory);
void forget_memory(std::span<std::byte> memory);

// Puts the allocator in place, once a process; later calls do nothing.
void install_step_allocator();

}  // namespace tesser::runtime
