#include "hub/wire.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace tesser::hub {
namespace {

constexpr std::uint64_t kAlignment = 64;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::uint64_t bytes_of(const ChunkMap& map, DType dtype) {
  return aligned(static_cast<std::uint64_t>(map.elements) * element_size(dtype));
}

std::uint64_t row_bytes_of(const ChunkMap& map) {
  return aligned(static_cast<std::uint64_t>(map.row_entries) * sizeof(RowNumber));
}

std::uint64_t slot_bytes_of(const JobSettings& settings) {
  return aligned(settings.groups.size() * sizeof(Hyperparameters));
}

}  // namespace

WorkerMemory::WorkerMemory(const ChunkMap& map, const JobSettings& settings)
    : gradients_begin(bytes_of(map, DType::kFloat32) + (kMostStateTensors + 1) * kStagger),
      rows(gradients(settings.replicas) + bytes_of(map, settings.wire)),
      slots(rows + row_bytes_of(map)),
      slot_bytes(slot_bytes_of(settings)),
      bytes(slots + kStepSlots * slot_bytes) {}

Inbox::Inbox(const ChunkMap& map, const JobSettings& settings, int cores)
    : rows(gradients(settings.replicas) + bytes_of(map, settings.wire)),
      slots(rows + row_bytes_of(map)),
      slot_bytes(slot_bytes_of(settings)),
      bytes(slots + static_cast<std::uint64_t>(cores) * kStepSlots * slot_bytes) {}

JobMemory::JobMemory(const ChunkMap& map, const JobSettings& settings) : tensor_bytes(bytes_of(map, DType::kFloat32)) {
  for (const ParameterGroup& group : settings.groups) {
    state_tensors = std::max(state_tensors, group.state_tensors());
  }
  bytes = updates() + aligned(map.chunks.size() * sizeof(std::int64_t));
}

std::uint32_t push_capacity(const ChunkMap::Load& core) { return 2 * static_cast<std::uint32_t>(core.chunks) + 2; }
std::uint32_t pull_capacity(const ChunkMap::Load& core) { return static_cast<std::uint32_t>(core.chunks) + 1; }

std::uint64_t signal_bytes(const std::vector<ChunkMap::Load>& cores, std::size_t queues) {
  constexpr std::uint64_t kPage = 4096;
  constexpr std::uint64_t kOthers = std::uint64_t{1} << 20;  // the ends' own words, and what transport needs itself
  std::uint64_t bytes = 0;
  for (const ChunkMap::Load& core : cores) {
    bytes += queues * (std::bit_ceil(push_capacity(core)) * sizeof(std::uint64_t) + 4 * kAlignment);
  }
  return (kOthers + bytes + kPage - 1) / kPage * kPage;
}

std::string worker_name(std::int64_t rank) { return fmt::format("rank {}", rank); }
std::string push_queue(int core) { return fmt::format("push {}", core); }
std::string pull_queue(int core) { return fmt::format("pull {}", core); }

std::uint64_t run_of(const std::string& job, const std::string& nonce) {
  // FNV-1a, over both with what separates them.
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char byte : job + '\0' + nonce) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
  }
  return hash | 1;
}

}  // namespace tesser::hub
