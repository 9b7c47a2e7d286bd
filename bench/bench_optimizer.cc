// Memory speed of the update kernels and of the random and recurrent operators' kernels, next to a plain copy.
//
// bytes_per_second counts each array once for every time it is read and once for every time it is written. The copy of
// the same number of elements is what memory allows. Counts: in the second-level cache, and far beyond every cache.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/philox.h"
#include "kernels/recurrent_cells.h"
#include "optimizer/update.h"

namespace tesser {
namespace {

void count_bytes(benchmark::State& state, int arrays_touched) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * arrays_touched *
                          static_cast<std::int64_t>(sizeof(float)));
}

std::vector<float> filled(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  kernels::uniform(values.data(), 0, count, 0.1, 1.0, 1, 0, 0);
  return values;
}

void copy(benchmark::State& state) {
  const std::vector<float> from = filled(state.range(0));
  std::vector<float> to = filled(state.range(0));
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2);
}

void sgd(benchmark::State& state) {
  std::vector<float> parameter = filled(state.range(0));
  const std::vector<float> gradient = filled(state.range(0));
  for (auto _ : state) {
    optimizer::sgd_update(parameter.data(), gradient.data(), nullptr, 0, state.range(0), {}, 1e-6, 1);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 3);
}

void sgd_momentum(benchmark::State& state) {
  std::vector<float> parameter = filled(state.range(0));
  const std::vector<float> gradient = filled(state.range(0));
  std::vector<float> buffer = filled(state.range(0));
  const optimizer::SgdSettings settings = {.momentum = 0.9, .weight_decay = 1e-4};
  for (auto _ : state) {
    optimizer::sgd_update(parameter.data(), gradient.data(), buffer.data(), 0, state.range(0), settings, 1e-6, 1);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 5);
}

void adamw(benchmark::State& state) {
  std::vector<float> parameter = filled(state.range(0));
  const std::vector<float> gradient = filled(state.range(0));
  std::vector<float> average = filled(state.range(0));
  std::vector<float> square = filled(state.range(0));
  const optimizer::AdamSettings settings = {.weight_decay = 0.01, .decoupled_weight_decay = true};
  for (auto _ : state) {
    optimizer::adam_update(parameter.data(), gradient.data(), average.data(), square.data(), nullptr, 0, state.range(0),
                           settings, 1e-6, 1);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 7);
}

void dropout(benchmark::State& state) {
  const std::vector<float> x = filled(state.range(0));
  std::vector<float> result = filled(state.range(0));
  for (auto _ : state) {
    kernels::dropout(x.data(), result.data(), 0, state.range(0), 0.1, 1, 2, 3);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2);
}

// 256 hidden units; range(0) is batch times hidden.
void lstm_cell(benchmark::State& state) {
  const std::int64_t cells = state.range(0);
  const std::vector<float> gates = filled(4 * cells);
  const std::vector<float> c = filled(cells);
  std::vector<float> h(c.size());
  std::vector<float> c_next(c.size());
  std::vector<float> activations(gates.size());
  for (auto _ : state) {
    kernels::lstm_cell(gates.data(), c.data(), h.data(), c_next.data(), activations.data(), 0, cells / 256, 256);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 11);
}

constexpr std::int64_t kInCache = 1 << 16;
constexpr std::int64_t kInMemory = 1 << 24;

BENCHMARK(copy)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK(sgd)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK(sgd_momentum)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK(adamw)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK(dropout)->Arg(kInCache)->Arg(kInMemory);
BENCHMARK(lstm_cell)->Arg(32 * 256);

}  // namespace
}  // namespace tesser
