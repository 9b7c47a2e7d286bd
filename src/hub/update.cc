#include "hub/update.h"

#include <algorithm>

#include "base/instruction_set.h"
#include "hub/fused_loops.h"
#include "optimizer/update.h"

namespace tesser::hub {
namespace {

// Short, so that the reading of gradients and that of weights and state alternate quickly enough for the processor to
// do both at once. From memory, 256 elements run up to a third faster than 2048; with shorter blocks calls begin to
// count.
constexpr std::int64_t kBlock = 256;

optimizer::SgdSettings sgd_settings(const ParameterGroup& group, const Hyperparameters& numbers) {
  return {numbers.momentum, numbers.dampening, numbers.weight_decay, group.nesterov, group.maximize};
}

optimizer::AdamSettings adam_settings(const ParameterGroup& group, const Hyperparameters& numbers) {
  return {numbers.beta1, numbers.beta2, numbers.eps, numbers.weight_decay, group.decoupled_weight_decay,
          group.maximize};
}

// What the fused loops take: all that is summed, in its order. Nothing where they do not fit.
struct FusedSources {
  std::array<const float*, kMostFused> at{};
  int count = 0;
};

FusedSources fused_sources(const float* first, std::span<const void* const> sources, WireElement element) {
  FusedSources fused;
  if (element != WireElement::kFloat32 || sources.size() + (first != nullptr ? 1 : 0) > fused.at.size()) {
    return fused;
  }
  if (first != nullptr) {
    fused.at[static_cast<std::size_t>(fused.count++)] = first;
  }
  for (const void* source : sources) {
    fused.at[static_cast<std::size_t>(fused.count++)] = static_cast<const float*>(source);
  }
  return fused;
}

// Calls update(begin, elements, gradient) for each block of the chunk.
template <typename Update>
void for_blocks(const ChunkMemory& memory, const float* first, std::span<const void* const> sources,
                WireElement element, const Update& update) {
  if (sources.empty()) {
    if (first != nullptr) {
      update(0, memory.elements, first);
    }
    return;
  }
  const SumLoops& loops = sum_loops();
  const std::size_t width = element == WireElement::kFloat32 ? sizeof(float) : sizeof(std::uint16_t);
  const auto count = static_cast<int>(sources.size());
  alignas(64) float sum[kBlock];
  std::array<const void*, kMostReplicas> at{};
  for (std::int64_t begin = 0; begin < memory.elements; begin += kBlock) {
    const std::int64_t elements = std::min(kBlock, memory.elements - begin);
    for (std::size_t source = 0; source < sources.size(); ++source) {
      at[source] = static_cast<const std::byte*>(sources[source]) + static_cast<std::size_t>(begin) * width;
    }
    if (first != nullptr) {
      std::copy_n(first + begin, elements, sum);
      loops.add(sum, at.data(), count, elements, element);
    } else {
      loops.sum(sum, at.data(), count, elements, element);
    }
    update(begin, elements, sum);
  }
}

}  // namespace

const FusedLoops& fused_loops() {
#if defined(__x86_64__)
  switch (best_instruction_set()) {
    case InstructionSet::kAvx512:
      return avx512::kFusedLoops;
    case InstructionSet::kAvx2:
      return avx2::kFusedLoops;
    case InstructionSet::kPortable:
      break;
  }
#endif
  return portable::kFusedLoops;
}

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
  const auto& state = memory.state;
  if (group.algorithm == Algorithm::kAssign) {
    for_blocks(memory, first, sources, element, [&](std::int64_t begin, std::int64_t elements, const float* sum) {
      std::copy_n(sum, elements, memory.weights + begin);
    });
    return;
  }
  const FusedSources fused = fused_sources(first, sources, element);
  if (group.algorithm == Algorithm::kSgd) {
    const auto scalars = optimizer::sgd_scalars(sgd_settings(group, numbers), numbers.learning_rate, updates, scale);
    float* buffer = group.has_momentum ? state[0] : nullptr;
    if (fused_loops().sgd(memory.weights, buffer, fused.at.data(), fused.count, memory.elements, scalars)) {
      return;
    }
    for_blocks(memory, first, sources, element, [&](std::int64_t begin, std::int64_t elements, const float* gradient) {
      optimizer::sgd_update(memory.weights + begin, gradient, buffer == nullptr ? nullptr : buffer + begin, elements,
                            scalars);
    });
    return;
  }
  const auto scalars = optimizer::adam_scalars(adam_settings(group, numbers), numbers.learning_rate, updates, scale);
  if (!group.amsgrad &&
      fused_loops().adam(memory.weights, state[0], state[1], fused.at.data(), fused.count, memory.elements, scalars)) {
    return;
  }
  for_blocks(memory, first, sources, element, [&](std::int64_t begin, std::int64_t elements, const float* gradient) {
    optimizer::adam_update(memory.weights + begin, gradient, state[0] + begin, state[1] + begin,
                           group.amsgrad ? state[2] + begin : nullptr, elements, scalars);
  });
}

}  // namespace tesser::hub
