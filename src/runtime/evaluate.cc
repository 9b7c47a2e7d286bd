#include "runtime/evaluate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <system_error>

#include <fmt/format.h>

#include "base/check.h"
#include "base/safetensors.h"
#include "graph/read.h"
#include "runtime/element.h"
#include "runtime/loader.h"

namespace tesser::runtime {
namespace {

// Memory for one result of a forward program.
struct ResultBuffer {
  std::string name;
  std::vector<std::byte> memory;
  MutableTensorView view;
};

ResultBuffer make_buffer(const graph::Program& program, const graph::NamedOutput& output) {
  const graph::Value& value = program.value(output.value);
  ResultBuffer buffer{output.name,
                      std::vector<std::byte>(static_cast<std::size_t>(value.bytes())),
                      {value.dtype, value.shape, nullptr}};
  buffer.view.data = buffer.memory.data();
  return buffer;
}

}  // namespace

Result<graph::Program> read_forward(const std::filesystem::path& program_directory) {
  std::error_code error;
  if (std::filesystem::is_directory(program_directory, error) &&
      !std::filesystem::exists(program_directory / "forward.json", error)) {
    return invalid_input(
        fmt::format("{}: has no forward program (forward.json); give the step file's tesser.Step a forward=... "
                    "function and capture it again",
                    program_directory.string()));
  }
  TESSER_ASSIGN_OR_RETURN(graph::Program program, graph::read_program(program_directory, "forward"));
  if (program.kind != graph::Kind::kForward) {
    return invalid_input(fmt::format("{}: is not a forward program", (program_directory / "forward.json").string()));
  }
  return program;
}

Result<std::unique_ptr<Executor>> load_forward(const std::filesystem::path& program_directory,
                                               const ExecutorOptions& options) {
  TESSER_ASSIGN_OR_RETURN(graph::Program program, read_forward(program_directory));
  return Executor::create(std::move(program), options);
}

std::vector<std::optional<Rectangle>> batch_parts(const graph::Program& program, const DataSet& data) {
  std::vector<std::optional<Rectangle>> parts;
  for (const BatchValue& batch : data.values()) {
    const graph::ValueId id = program.find(batch.name);
    std::optional<Rectangle>& part = parts.emplace_back();
    if (id != graph::kNone) {
      const graph::Value& value = program.value(id);
      part = value.whole_shape.empty() ? whole_rectangle(value.shape) : Rectangle{value.region_begin, value.shape};
    }
  }
  return parts;
}

std::vector<MutableTensorView> batch_memory(Executor& executor, const DataSet& data) {
  std::vector<MutableTensorView> batch;
  for (const BatchValue& value : data.values()) {
    if (executor.program().find(value.name) != graph::kNone) {
      batch.push_back(executor.batch(value.name));
    }
  }
  return batch;
}

Result<void> check_scalar_results(const graph::Program& forward) {
  const bool any = std::any_of(forward.results.begin(), forward.results.end(), [&](const graph::NamedOutput& output) {
    return forward.value(output.value).shape.empty();
  });
  if (!any) {
    return invalid_input(
        fmt::format("the forward program '{}' has no scalar result to average; have the step file's forward return "
                    "some, say a mapping with "
                    "\"loss\" and \"accuracy\"",
                    forward.name));
  }
  return {};
}

Result<Evaluation> evaluate(Executor& forward, const DataSet& data) {
  const auto begin = std::chrono::steady_clock::now();
  const graph::Program& program = forward.program();
  TESSER_RETURN_IF_ERROR(check_scalar_results(program));
  std::vector<ResultBuffer> buffers;
  for (const graph::NamedOutput& output : program.results) {
    if (program.value(output.value).shape.empty()) {
      buffers.push_back(make_buffer(program, output));
    }
  }
  std::vector<double> sums(buffers.size(), 0.0);
  const std::vector<MutableTensorView> batch = batch_memory(forward, data);
  Loader loader(data, LoaderOptions{0, false, {}, batch_parts(program, data)});
  for (std::int64_t i = 0; i < data.batches(); ++i) {
    loader.next(batch);
    TESSER_RETURN_IF_ERROR(forward.run(0, 0));
    for (std::size_t k = 0; k < buffers.size(); ++k) {
      TESSER_RETURN_IF_ERROR(forward.read_result(buffers[k].name, buffers[k].view));
      sums[k] += element_as_double(buffers[k].view.dtype, buffers[k].view.data, 0);
    }
  }
  Evaluation evaluation;
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    evaluation.results.emplace_back(buffers[k].name, sums[k] / static_cast<double>(data.batches()));
  }
  evaluation.batches = data.batches();
  evaluation.samples = data.batches() * data.batch_size();
  evaluation.left_out = data.left_out();
  evaluation.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return evaluation;
}

Result<void> copy_state(const Executor& from, Executor& to) {
  std::vector<std::byte> memory;
  const graph::Program& source = from.program();
  for (const graph::ValueId id : to.program().inputs) {
    const graph::Value& value = to.program().value(id);
    const graph::ValueId found = source.find(value.name);
    if (!value.is_state() || found == graph::kNone || !source.value(found).is_state()) {
      continue;
    }
    memory.resize(std::max(memory.size(), static_cast<std::size_t>(value.bytes())));
    TESSER_RETURN_IF_ERROR(from.read_state(value.name, {value.dtype, value.shape, memory.data()}));
    TESSER_RETURN_IF_ERROR(to.write_state(value.name, {value.dtype, value.shape, memory.data()}));
  }
  return {};
}

Result<void> run_once(Executor& forward, const DataSet& data, AtomicFile output) {
  if (data.samples() != data.batch_size()) {
    return invalid_input(fmt::format("the input has {} samples, the forward program '{}' takes exactly {}",
                                     data.samples(), forward.program().name, data.batch_size()));
  }
  std::vector<std::uint32_t> samples(static_cast<std::size_t>(data.batch_size()));
  std::iota(samples.begin(), samples.end(), 0U);
  const std::vector<MutableTensorView> batch = batch_memory(forward, data);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    data.gather(i, samples, batch[i].data);
  }
  TESSER_RETURN_IF_ERROR(forward.run(0, 0));
  std::vector<SafetensorsEntry> entries;
  const graph::Program& program = forward.program();
  for (const graph::NamedOutput& result : program.results) {
    entries.push_back({result.name, program.value(result.value).dtype, program.value(result.value).shape});
  }
  TESSER_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::create(std::move(output), std::move(entries)));
  for (const graph::NamedOutput& result : program.results) {
    const ResultBuffer buffer = make_buffer(program, result);
    TESSER_RETURN_IF_ERROR(forward.read_result(buffer.name, buffer.view));
    TESSER_RETURN_IF_ERROR(writer.write(result.name, {buffer.view.dtype, buffer.view.shape, buffer.view.data}));
  }
  return writer.commit();
}

}  // namespace tesser::runtime
