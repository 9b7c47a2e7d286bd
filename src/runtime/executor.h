// Runs a program on this machine's processor: one worker's part of a training step, out of one arena.
//
// The first run() traces every allocation of every node; from then on each comes from its planned place in the arena,
// and no tensor storage is allocated outside it (DESIGN.md, Runtime; the RDMA paper's dynamic tracing). State is kept
// inside and updated in place.
//
// Thread rule: an Executor belongs to the thread that created it; kernels use `threads` threads of the process-wide
// pool. One Executor at a time may run() in a process. No ATen type appears here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "graph/program.h"

namespace tesser::runtime {

class Exchange;
class GradientExchange;

struct ExecutorOptions {
  int threads = 0;         // 0: all processors this process may use
  bool check_nan = false;  // stop at the first operator whose result holds a NaN
  bool fuse = true;        // run elementwise chains without writing their intermediates; same numbers
  bool choose_layout = true;
  bool profile = false;  // measure each operator's time
  bool trace = false;    // remember when each node of the last step ran
  Exchange* exchange =
      nullptr;  // of one worker's lowered program: how it reaches the others; must outlive the executor
  // Of a replica: the hub takes its gradients and updates the weights, in place of the program's updates; must outlive
  // the executor.
  GradientExchange* gradients = nullptr;
};

// Time that the nodes of one operator took.
struct OperatorTime {
  std::string op;
  std::int64_t calls = 0;          // a step
  double seconds = 0;              // a step, on average over the steps after the first two
  std::int64_t scratch_bytes = 0;  // most that a kernel of it took for itself while it ran
};

// When a node ran.
struct NodeSpan {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

// Bytes of tensor storage, all for one step.
struct MemoryReport {
  std::int64_t state_bytes = 0;           // parameters, optimizer state, buffers, constants, batch
  std::int64_t predicted_peak_bytes = 0;  // before the first run: state and arena, from the program alone
  std::int64_t exchange_bytes = 0;        // buffers into which other workers write
  std::int64_t arena_bytes = 0;           // state and planned arena as laid out after tracing; 0 before the first run
  std::int64_t scratch_bytes = 0;         // most that one node's kernel took for itself while it ran; part of the arena
  std::int64_t unplanned_allocations = 0;  // storage allocations of the last step that did not come from the arena
  std::int64_t unplanned_bytes = 0;        // their largest sum at one time
  // Of a replica: gradients of the last step that were copied to where the hub reads them, since no kernel put them
  // there. All of them in the first step.
  std::int64_t copied_gradient_bytes = 0;
};

struct StepResult {
  double loss = 0;              // step programs
  std::vector<double> metrics;  // in the order of Program::metrics
};

class Executor {
 public:
  // Verified program in; compiles it. Fails with kInvalidInput naming the node when an operator or its arguments are
  // unknown to the runtime.
  static Result<std::unique_ptr<Executor>> create(graph::Program program, const ExecutorOptions& options);
  ~Executor();

  const graph::Program& program() const;

  // Copies into or out of an input value of role parameter, optimizer_state, buffer or constant. Row-major in both
  // directions, whatever layout the executor keeps; dtype and shape must be the program's (checked). `initial: zeros`
  // values start as zeros.
  Result<void> write_state(const std::string& name, const TensorView& source);
  Result<void> read_state(const std::string& name, const MutableTensorView& target) const;

  // A state value as the executor keeps it: its elements in the order of memory, which is the same for a parameter and
  // its optimizer state. Aborts on a name that is no state value.
  std::span<std::byte> state_memory(const std::string& name);
  // From now on the value lies at `memory`, in that order; its own memory is given back to the system.
  void place_state(const std::string& name, std::byte* memory);
  // The content is not needed; whole pages of its memory are given back to the system.
  void forget_state(const std::string& name);

  // Where the caller puts the next batch value of this name: contiguous row-major memory inside the arena, valid for
  // the executor's life, which run() reads. Aborts on a name that is no batch value.
  MutableTensorView batch(const std::string& name);

  // Runs one step: `step` is the number of steps done before, `seed` the run's seed; learning rates come from the
  // program's schedules. kFailed with the operator's name, module and source when a kernel fails, or a value is NaN
  // under check_nan (state then is partly updated and must not be saved).
  Result<StepResult> run(std::int64_t step, std::int64_t seed);

  // A result of a forward program after run(): copies it row-major.
  Result<void> read_result(const std::string& name, const MutableTensorView& target) const;

  MemoryReport memory() const;

  // Under ExecutorOptions::profile: operators by their time, longest first; empty before the third step.
  std::vector<OperatorTime> profile() const;

  // The program as it runs, after the passes, and under ExecutorOptions::trace when its nodes ran in the last step.
  const graph::Program& prepared_program() const;
  const std::vector<NodeSpan>& last_step() const;

 private:
  struct Impl;
  explicit Executor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tesser::runtime
