#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include <malloc.h>
#include <sched.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <c10/core/InferenceMode.h>

#include "base/check.h"
#include "graph/verify.h"
#include "layout/layouts.h"
#include "runtime/arena.h"
#include "runtime/exchange.h"
#include "runtime/gradient_exchange.h"
#include "runtime/kernels.h"
#include "runtime/passes/passes.h"
#include "runtime/passes/peak_memory.h"
#include "runtime/step_allocator.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::NodeId;
using graph::Program;
using graph::Role;
using graph::ValueId;

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kWarmUpSteps = 2;  // the first step records storages, and kernels build what they keep

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool reads(const graph::Node& node, ValueId id) {
  const std::vector<ValueId> values = graph::values_read(node);
  return std::find(values.begin(), values.end(), id) != values.end();
}

// A kernel whose results lie as the layouts say. Most leave them so; what one leaves otherwise is copied, and a view of
// other strides than foreseen ends the step: whatever was decided by them would be wrong.
Kernel laid_out_as_stated(Kernel kernel, const graph::Node& node, const layout::Layouts& layouts) {
  struct Stated {
    std::size_t index;
    layout::Strides strides;
  };
  std::vector<Stated> results;
  for (const ValueId id : node.outputs) {
    if (id != kNone) results.push_back({static_cast<std::size_t>(id), layouts[id]});
  }
  if (results.empty()) return kernel;
  return [kernel = std::move(kernel), results = std::move(results),
          is_view = layouts.is_view(node)](Registers& registers) {
    kernel(registers);
    for (const Stated& stated : results) {
      at::Tensor& tensor = registers[stated.index];
      if (!tensor.defined() || tensor.strides() == at::IntArrayRef(stated.strides)) continue;
      if (tensor.dim() != static_cast<std::int64_t>(stated.strides.size()))
        continue;  // a wrong shape is told elsewhere
      if (layout::same(tensor.sizes().vec(), tensor.strides().vec(), stated.strides)) {
        tensor = tensor.as_strided(tensor.sizes(), stated.strides);
        continue;
      }
      TORCH_CHECK(!is_view, "a view lies in memory with strides ", tensor.strides(), ", not ", stated.strides,
                  " as foreseen; this is a mistake of tesser");
      const at::Tensor arranged = at::empty_strided(tensor.sizes(), stated.strides, tensor.options());
      arranged.copy_(tensor);
      tensor = arranged;
    }
  };
}

int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

struct Executor::Impl {
  Program program;   // as given
  Program compiled;  // after the passes; its inputs have the same ValueIds
  ExecutorOptions options;
  std::optional<Arena> arena;
  std::int64_t state_bytes = 0;
  std::int64_t hub_bytes = 0;  // of those, what a hub has in this executor's place
  std::vector<std::span<std::byte>> placed;
  std::vector<NodeId> waits;  // by number of a pushed gradient: the node from which on its memory may change
  std::vector<std::span<std::byte>> gradient_memory;  // announced
  std::int64_t predicted_peak_bytes = 0;
  std::size_t step_bytes = 0;
  std::optional<layout::Layouts> layouts;  // of the compiled program
  Registers registers;
  Movement movement;
  std::vector<Kernel> kernels;
  std::vector<std::vector<ValueId>> releases;       // by node: values nobody reads later
  std::vector<graph::StateOutput> copied_state;     // new state that no update has put in place
  std::vector<std::vector<ValueId>> kept_results;   // by node: results among those, which may be views of state
  std::unordered_map<std::string, ValueId> inputs;  // by name
  std::unordered_map<std::string, ValueId> results;
  AllocationScript script;
  std::vector<NodeSpan> spans;       // under options.trace, of the last step
  std::vector<double> node_seconds;  // under options.profile, of all steps from the third on
  std::int64_t steps_run = 0;
  std::vector<bool> infinite;     // under options.check_nan: values of this step that hold an infinity
  NodeId first_infinite = kNone;  // the first node that made one out of none

  ~Impl() {
    kernels.clear();  // one that failed still holds its arguments
    movement.staged.clear();
    registers.clear();
    for (const std::span<std::byte>& memory : gradient_memory) forget_memory(memory);
    if (arena) forget_memory(arena->memory());
  }

  Result<void> lay_out_state();
  Result<void> bind();
  bool is_in_state(const at::Tensor& tensor) const {
    const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
    const auto holds = [&](const std::span<std::byte>& each) {
      return data >= each.data() && data < each.data() + each.size();
    };
    return (data >= arena->base() && data < arena->base() + state_bytes) ||
           std::any_of(placed.begin(), placed.end(), holds);
  }
  void run_timed(std::size_t index);
  void pin_gradient(const graph::Node& node);
  Result<void> check_finite(NodeId id);
  Result<void> check_loss() const;
  std::vector<std::int64_t> node_scratch() const;  // bytes, by node; zeros before the first step
  std::string infinity_advice() const;
  Result<at::Tensor> state_tensor(const std::string& name, DType dtype, const Shape& shape) const;
  at::Tensor& state_tensor(const std::string& name);
};

Result<void> Executor::Impl::lay_out_state() {
  std::int64_t bytes = 0;
  std::vector<std::pair<ValueId, std::int64_t>> places;
  for (const ValueId id : program.inputs) {
    places.emplace_back(id, bytes);
    bytes += aligned(std::max<std::int64_t>(program.value(id).bytes(), 1));
  }
  state_bytes = bytes;
  if (options.gradients != nullptr) {
    for (const UpdatedParameter& each : options.gradients->updates().parameters) {
      hub_bytes += static_cast<std::int64_t>(1 + each.state.size()) * aligned(program.value(each.parameter).bytes());
    }
  }
  predicted_peak_bytes = predict_step_memory(compiled).peak_bytes - hub_bytes;
  // Address space is free; what a step turns out to need beyond the prediction must fit all the same.
  const std::int64_t capacity = bytes + 4 * std::max<std::int64_t>(predicted_peak_bytes, 1) + (std::int64_t{4} << 30);
  TESSER_ASSIGN_OR_RETURN(Arena reserved, Arena::reserve(static_cast<std::size_t>(capacity)));
  arena.emplace(std::move(reserved));
  announce_memory(arena->memory());
  registers.resize(compiled.values.size());
  for (const auto& [id, offset] : places) {
    const graph::Value& value = program.value(id);
    registers[static_cast<std::size_t>(id)] =
        at::from_blob(arena->base() + offset, value.shape, (*layouts)[id], at::TensorOptions(scalar_type(value.dtype)));
  }
  return {};
}

Result<void> Executor::Impl::bind() {
  const Uses uses(compiled);
  const auto count = static_cast<NodeId>(compiled.nodes.size());
  releases.resize(compiled.nodes.size());
  kept_results.resize(compiled.nodes.size());
  for (ValueId id = 0; id < static_cast<ValueId>(compiled.values.size()); ++id) {
    const graph::Value& value = compiled.value(id);
    if (value.producer == kNone || uses.is_output[static_cast<std::size_t>(id)]) continue;
    const auto& readers = uses.readers[static_cast<std::size_t>(id)];
    releases[static_cast<std::size_t>(readers.empty() ? value.producer : readers.back())].push_back(id);
  }
  for (const graph::StateOutput& output : compiled.state_outputs) {
    const NodeId producer = compiled.value(output.value).producer;
    const bool in_place =
        producer != kNone && is_update(compiled.node(producer)) && reads(compiled.node(producer), output.state);
    if (in_place || output.state == output.value) continue;
    copied_state.push_back(output);
    if (producer != kNone) kept_results[static_cast<std::size_t>(producer)].push_back(output.value);
  }
  kernels.reserve(compiled.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const graph::Node& node = compiled.node(id);
    if (node.op == kWaitForWeights) {
      const auto number = static_cast<std::size_t>(std::get<std::int64_t>(node.args[kWaitedNumber]));
      waits.resize(std::max(waits.size(), number + 1));
      waits[number] = id;
    }
    TESSER_ASSIGN_OR_RETURN(Kernel kernel, bind_node(compiled, node, movement));
    kernels.push_back(laid_out_as_stated(std::move(kernel), node, *layouts));
  }
  return {};
}

void Executor::Impl::run_timed(std::size_t index) {
  NodeSpan span;
  span.begin = std::chrono::steady_clock::now();
  kernels[index](registers);
  span.end = std::chrono::steady_clock::now();
  if (options.trace) {
    spans.resize(kernels.size());
    spans[index] = span;
  }
  if (options.profile && steps_run >= kWarmUpSteps) {
    node_seconds.resize(kernels.size());
    node_seconds[index] += std::chrono::duration<double>(span.end - span.begin).count();
  }
}

// A pushed gradient, while the step is recorded: from the next one on its kernel writes where the hub reads. Elements
// that lie in another order than the parameter's are copied in every step.
void Executor::Impl::pin_gradient(const graph::Node& node) {
  const auto number = static_cast<std::size_t>(std::get<std::int64_t>(node.args[kPushedNumber]));
  const at::Tensor& weight = registers[static_cast<std::size_t>(graph::value_argument(node, 0))];
  const at::Tensor& gradient = registers[static_cast<std::size_t>(graph::value_argument(node, 1))];
  const std::span<std::byte> memory = std::as_writable_bytes(options.gradients->gradient(number));
  if (gradient.storage_offset() == 0 && lies_alike(gradient, weight) &&
      script.pin(gradient.const_data_ptr(), memory.size(), memory.data(), waits[number]) &&
      std::none_of(gradient_memory.begin(), gradient_memory.end(),
                   [&](const auto& known) { return known.data() == memory.data(); })) {
    announce_memory(memory);
    gradient_memory.push_back(memory);
  }
}

// Under check_nan, after a node has run. A NaN ends the step; where infinity first came from is remembered, since masks
// hold infinities on purpose.
Result<void> Executor::Impl::check_finite(NodeId id) {
  const graph::Node& node = compiled.node(id);
  bool from_infinity = std::any_of(node.args.begin(), node.args.end(), [](const graph::Argument& argument) {
    const auto* number = std::get_if<double>(&argument);
    return number != nullptr && std::isinf(*number);
  });
  for (const ValueId input : graph::values_read(node))
    from_infinity = from_infinity || infinite[static_cast<std::size_t>(input)];
  for (const ValueId output : node.outputs) {
    if (output == kNone || !is_floating(compiled.value(output).dtype)) continue;
    const at::Tensor& tensor = registers[static_cast<std::size_t>(output)];
    if (at::isnan(tensor).any().item<bool>()) {
      return failed(
          describe(node) + " is the first operator whose result is not a number (NaN); its value '" +
          compiled.value(output).name + "' has shape " + c10::str(tensor.sizes()) + "." + infinity_advice() +
          " Look at its inputs there: a too large learning rate, a logarithm or root of what may be zero, or bad data");
    }
    if (!at::isinf(tensor).any().item<bool>()) continue;
    infinite[static_cast<std::size_t>(output)] = true;
    if (!from_infinity && first_infinite == kNone) first_infinite = id;
  }
  return {};
}

Result<void> Executor::Impl::check_loss() const {
  if (compiled.loss == kNone || first_infinite == kNone) return {};
  if (!at::isinf(registers[static_cast<std::size_t>(compiled.loss)]).item<bool>()) return {};
  return failed("the loss is infinite." + infinity_advice());
}

std::string Executor::Impl::infinity_advice() const {
  if (first_infinite == kNone) return "";
  return " The first operator whose result became infinite was " + describe(compiled.node(first_infinite)) + ".";
}

Result<at::Tensor> Executor::Impl::state_tensor(const std::string& name, DType dtype, const Shape& shape) const {
  const auto found = inputs.find(name);
  if (found == inputs.end()) return not_found("the program has no state value '" + name + "'");
  const graph::Value& value = program.value(found->second);
  if (value.dtype != dtype || value.shape != shape) {
    return invalid_input("'" + name + "' is " + std::string(dtype_name(value.dtype)) + " of shape " +
                         c10::str(at::IntArrayRef(value.shape)) + " in the program, but " +
                         std::string(dtype_name(dtype)) + " of shape " + c10::str(at::IntArrayRef(shape)) +
                         " was given");
  }
  return registers[static_cast<std::size_t>(found->second)];
}

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(graph::Program program, const ExecutorOptions& options) {
  TESSER_RETURN_IF_ERROR(graph::verify(program));
  install_step_allocator();
  const int threads = options.threads > 0 ? options.threads : usable_processors();
  if (threads != at::get_num_threads()) at::set_num_threads(threads);
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  const auto weights = options.choose_layout ? layout::Weights::kChannelsLast : layout::Weights::kRowMajor;
  impl->compiled = prepare(program, options.fuse, weights);
  impl->program = std::move(program);
  impl->movement.exchange = options.exchange;
  impl->movement.gradients = options.gradients;
  if (options.gradients != nullptr) {
    impl->compiled = push_gradients(std::move(impl->compiled), options.gradients->updates());
  }
  impl->layouts.emplace(layout::Layouts::of(impl->compiled, weights));
  if (options.exchange != nullptr) TESSER_RETURN_IF_ERROR(options.exchange->prepare(impl->compiled));
  for (const ValueId id : impl->program.inputs) impl->inputs.emplace(impl->program.value(id).name, id);
  for (const auto& result : impl->compiled.results) impl->results.emplace(result.name, result.value);
  try {
    TESSER_RETURN_IF_ERROR(impl->lay_out_state());
    TESSER_RETURN_IF_ERROR(impl->bind());
  } catch (const std::exception& error) {
    return failed(std::string("cannot prepare the program: ") + error.what());
  }
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

const graph::Program& Executor::program() const { return impl_->program; }

Result<void> Executor::write_state(const std::string& name, const TensorView& source) {
  TESSER_ASSIGN_OR_RETURN(at::Tensor tensor, impl_->state_tensor(name, source.dtype, source.shape));
  const c10::InferenceMode guard;
  tensor.copy_(at::from_blob(const_cast<void*>(source.data), source.shape, tensor.options()));
  return {};
}

Result<void> Executor::read_state(const std::string& name, const MutableTensorView& target) const {
  TESSER_ASSIGN_OR_RETURN(const at::Tensor tensor, impl_->state_tensor(name, target.dtype, target.shape));
  const c10::InferenceMode guard;
  at::from_blob(target.data, target.shape, tensor.options()).copy_(tensor);
  return {};
}

at::Tensor& Executor::Impl::state_tensor(const std::string& name) {
  const auto found = inputs.find(name);
  TESSER_CHECK(found != inputs.end() && program.value(found->second).is_state(), "'" + name + "', which is no state");
  return registers[static_cast<std::size_t>(found->second)];
}

std::span<std::byte> Executor::state_memory(const std::string& name) {
  const at::Tensor& tensor = impl_->state_tensor(name);
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

void Executor::place_state(const std::string& name, std::byte* memory) {
  forget_state(name);
  at::Tensor& tensor = impl_->state_tensor(name);
  impl_->placed.emplace_back(memory, tensor.nbytes());
  tensor = at::from_blob(memory, tensor.sizes(), tensor.strides(), tensor.options());
}

void Executor::forget_state(const std::string& name) {
  const std::span<std::byte> memory = state_memory(name);
  Arena::give_back(memory.data(), memory.size());
}

MutableTensorView Executor::batch(const std::string& name) {
  const auto found = impl_->inputs.find(name);
  TESSER_CHECK(found != impl_->inputs.end() && impl_->program.value(found->second).role == Role::kBatch,
               "'" + name + "', which is no batch value of the program");
  const graph::Value& value = impl_->program.value(found->second);
  return {value.dtype, value.shape, impl_->registers[static_cast<std::size_t>(found->second)].data_ptr()};
}

Result<StepResult> Executor::run(std::int64_t step, std::int64_t seed) {
  Impl& self = *impl_;
  const Program& compiled = self.compiled;
  for (const ValueId id : compiled.inputs) {
    const graph::Value& value = compiled.value(id);
    void* data = self.registers[static_cast<std::size_t>(id)].data_ptr();
    if (value.role == Role::kStep) *static_cast<std::int64_t*>(data) = step;
    if (value.role == Role::kSeed) *static_cast<std::int64_t*>(data) = seed;
    if (value.role == Role::kLearningRate) {
      *static_cast<double*>(data) = compiled.schedules[static_cast<std::size_t>(value.schedule)].at(step);
    }
  }
  const c10::InferenceMode guard;
  for (graph::NodeId id = 0; id < static_cast<NodeId>(compiled.nodes.size()); ++id) {
    for (const ValueId output : compiled.node(id).outputs) {
      if (output != kNone) self.registers[static_cast<std::size_t>(output)].reset();  // what the last step left
    }
  }
  // New state that is other state as it was before the step: an update may overwrite that before it is copied.
  std::vector<at::Tensor> saved(self.copied_state.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const ValueId source = self.copied_state[i].value;
    if (compiled.value(source).producer == kNone) saved[i] = self.registers[static_cast<std::size_t>(source)].clone();
  }
  NodeId running = 0;
  StepResult result;
  bool recorded = false;
  try {
    const ScriptScope scope(self.script);
    self.script.begin_step(compiled.nodes.size());
    self.movement.copied_gradient_bytes = 0;
    self.infinite.assign(compiled.values.size(), false);
    self.first_infinite = kNone;
    for (; running < static_cast<NodeId>(compiled.nodes.size()); ++running) {
      const auto index = static_cast<std::size_t>(running);
      self.script.begin_node(running);
      if (self.options.profile || self.options.trace) {
        self.run_timed(index);
      } else {
        self.kernels[index](self.registers);
      }
      for (const ValueId id : self.kept_results[index]) {
        at::Tensor& result = self.registers[static_cast<std::size_t>(id)];
        if (self.is_in_state(result)) result = result.clone();
      }
      if (compiled.nodes[index].op == kPushGradient && !self.script.planned()) {
        self.pin_gradient(compiled.nodes[index]);
      }
      if (self.options.check_nan) TESSER_RETURN_IF_ERROR(self.check_finite(running));
      self.script.end_node();
      for (const ValueId id : self.releases[index]) self.registers[static_cast<std::size_t>(id)].reset();
    }
    recorded = self.script.end_step();
    TESSER_RETURN_IF_ERROR(self.check_loss());
  } catch (const c10::Error& error) {
    return failed(describe(compiled.node(running)) + ": " + error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return failed(describe(compiled.node(running)) + ": out of memory; use a smaller batch or more workers");
  } catch (const std::exception& error) {
    return failed(describe(compiled.node(running)) + ": " + error.what());
  }
  ++self.steps_run;
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const graph::StateOutput& output = self.copied_state[i];
    self.registers[static_cast<std::size_t>(output.state)].copy_(
        saved[i].defined() ? saved[i] : self.registers[static_cast<std::size_t>(output.value)]);
  }
  if (compiled.loss != kNone) result.loss = self.registers[static_cast<std::size_t>(compiled.loss)].item<double>();
  for (const auto& metric : compiled.metrics) {
    result.metrics.push_back(self.registers[static_cast<std::size_t>(metric.value)].item<double>());
  }
  if (recorded) {
    self.step_bytes = self.script.plan(*self.arena, static_cast<std::size_t>(self.state_bytes));
    malloc_trim(0);  // the heap that the recorded step used is never needed again
  }
  return result;
}

Result<void> Executor::read_result(const std::string& name, const MutableTensorView& target) const {
  const auto found = impl_->results.find(name);
  if (found == impl_->results.end()) return not_found("the program has no result '" + name + "'");
  const graph::Value& value = impl_->compiled.value(found->second);
  const at::Tensor& tensor = impl_->registers[static_cast<std::size_t>(found->second)];
  if (value.dtype != target.dtype || value.shape != target.shape || !tensor.defined()) {
    return invalid_input("result '" + name + "' is " + std::string(dtype_name(value.dtype)) + " of shape " +
                         c10::str(at::IntArrayRef(value.shape)) + " after a run");
  }
  if (tensor.sizes() != at::IntArrayRef(value.shape) || tensor.scalar_type() != scalar_type(value.dtype)) {
    return failed((value.producer == kNone ? "'" + name + "'" : describe(impl_->compiled.node(value.producer))) +
                  ": the kernel made " + c10::toString(tensor.scalar_type()) + " of shape " + c10::str(tensor.sizes()) +
                  ", the program says " + type_text(value.dtype, value.shape));
  }
  const c10::InferenceMode guard;
  at::from_blob(target.data, target.shape, tensor.options()).copy_(tensor);
  return {};
}

std::vector<std::int64_t> Executor::Impl::node_scratch() const {
  std::vector<std::int64_t> bytes(compiled.nodes.size());
  for (const AllocationScript::Allocation& allocation : script.allocations()) {
    if (allocation.scratch)
      bytes[static_cast<std::size_t>(allocation.node)] += static_cast<std::int64_t>(allocation.bytes);
  }
  return bytes;
}

std::vector<OperatorTime> Executor::profile() const {
  const std::vector<std::int64_t> scratch = impl_->node_scratch();
  std::map<std::string, OperatorTime> by_operator;
  const std::int64_t steps = std::max<std::int64_t>(impl_->steps_run - kWarmUpSteps, 1);
  for (std::size_t i = 0; i < impl_->node_seconds.size(); ++i) {
    OperatorTime& time = by_operator[impl_->compiled.nodes[i].op];
    time.op = impl_->compiled.nodes[i].op;
    ++time.calls;
    time.scratch_bytes = std::max(time.scratch_bytes, scratch[i]);
    time.seconds += impl_->node_seconds[i] / static_cast<double>(steps);
  }
  std::vector<OperatorTime> times;
  for (auto& [op, time] : by_operator) times.push_back(std::move(time));
  std::sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

const graph::Program& Executor::prepared_program() const { return impl_->compiled; }
const std::vector<NodeSpan>& Executor::last_step() const { return impl_->spans; }

MemoryReport Executor::memory() const {
  MemoryReport report;
  report.state_bytes = impl_->state_bytes - impl_->hub_bytes;
  report.predicted_peak_bytes = impl_->predicted_peak_bytes;
  if (impl_->movement.exchange != nullptr) report.exchange_bytes = impl_->movement.exchange->buffer_bytes();
  report.arena_bytes = impl_->step_bytes == 0 ? 0 : report.state_bytes + static_cast<std::int64_t>(impl_->step_bytes);
  for (const std::int64_t bytes : impl_->node_scratch()) report.scratch_bytes = std::max(report.scratch_bytes, bytes);
  report.unplanned_allocations = impl_->script.unplanned_allocations();
  report.unplanned_bytes = impl_->script.unplanned_peak_bytes();
  report.copied_gradient_bytes = impl_->movement.copied_gradient_bytes;
  return report;
}

}  // namespace tesser::runtime
