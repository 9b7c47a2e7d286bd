#include "hub/update.h"

#include <algorithm>

#include "base/instruction_set.h"
#include "optimizer/update.h"

namespace tesser::hub {
namespace {

// The sum of a block stays in the first cache between the two passes over it.
constexpr std::int64_t kBlock = 2048;

void update_block(const ChunkMemory& memory, const float* gradient, std::int64_t begin, std::int64_t elements,
                  const ParameterGroup& group, const Hyperparameters& numbers, std::int64_t updates, float scale) {
  const auto state = [&](int tensor) {
    float* memory_of_tensor = memory.state[static_cast<std::size_t>(tensor)];
    return memory_of_tensor == nullptr ? nullptr : memory_of_tensor + begin;
  };
  if (group.algorithm == Algorithm::kSgd) {
    const optimizer::SgdSettings settings{numbers.momentum, numbers.dampening, numbers.weight_decay, group.nesterov,
                                          group.maximize};
    optimizer::sgd_update(memory.weights + begin, gradient, group.has_momentum ? state(0) : nullptr, 0, elements,
                          settings, numbers.learning_rate, updates, scale);
    return;
  }
  const optimizer::AdamSettings settings{
      numbers.beta1, numbers.beta2, numbers.eps, numbers.weight_decay, group.decoupled_weight_decay, group.maximize};
  optimizer::adam_update(memory.weights + begin, gradient, state(0), state(1), group.amsgrad ? state(2) : nullptr, 0,
                         elements, settings, numbers.learning_rate, updates, scale);
}

}  // namespace

const SumLoops& sum_loops() {
#if defined(__x86_64__)
  switch (best_instruction_set()) {
    case InstructionSet::kAvx512:
      return avx512::kSumLoops;
    case InstructionSet::kAvx2:
      return avx2::kSumLoops;
    case InstructionSet::kPortable:
      break;
  }
#endif
  return portable::kSumLoops;
}

void update_chunk(const ChunkMemory& memory, const float* first, std::span<const void* const> sources,
                  WireElement element, const ParameterGroup& group, const Hyperparameters& numbers,
                  std::int64_t updates, float scale) {
  if (sources.empty()) {
    if (first != nullptr) {
      update_block(memory, first, 0, memory.elements, group, numbers, updates, scale);
    }
    return;
  }
  const SumLoops& loops = sum_loops();
  const std::size_t width = element == WireElement::kFloat32 ? sizeof(float) : sizeof(std::uint16_t);
  alignas(64) float sum[kBlock];
  std::array<const void*, kMostReplicas> at{};
  for (std::int64_t begin = 0; begin < memory.elements; begin += kBlock) {
    const std::int64_t elements = std::min(kBlock, memory.elements - begin);
    for (std::size_t source = 0; source < sources.size(); ++source) {
      at[source] = static_cast<const std::byte*>(sources[source]) + static_cast<std::size_t>(begin) * width;
    }
    const auto count = static_cast<int>(sources.size());
    if (first != nullptr) {
      std::copy_n(first + begin, elements, sum);
      loops.add(sum, at.data(), count, elements, element);
    } else {
      loops.sum(sum, at.data(), count, elements, element);
    }
    update_block(memory, sum, begin, elements, group, numbers, updates, scale);
  }
}

}  // namespace tesser::hub
