#include "runtime/control_messages.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "runtime/json_reader.h"

namespace tesser::runtime {
namespace {

std::string text_of(std::int64_t number) { return std::to_string(number); }
std::string text_of(double number) { return json_number_text(number); }
std::string text_of(bool truth) { return truth ? "true" : "false"; }
std::string text_of(const std::string& string) { return json_string(string); }

template <typename T, typename Text>
std::string list(const std::vector<T>& values, const Text& text) {
  std::string joined = "[";
  for (const T& value : values) {
    joined += (joined.size() > 1 ? "," : "") + text(value);
  }
  return joined + "]";
}

template <typename T>
std::string list(const std::vector<T>& values) {
  return list(values, [](const T& value) { return text_of(value); });
}

// Collects the members of an object.
class Members {
 public:
  template <typename T>
  Members& add(std::string_view key, const T& value) {
    return add_text(key, text_of(value));
  }
  Members& add(std::string_view key, int value) { return add_text(key, std::to_string(value)); }
  Members& add_text(std::string_view key, const std::string& text) {
    text_ += fmt::format("{}\"{}\":{}", text_.empty() ? "" : ",", key, text);
    return *this;
  }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

int small_integer(JsonReader& reader, std::string_view key) {
  const std::int64_t value = reader.integer(key, 0);
  if (value > std::numeric_limits<int>::max()) {
    reader.fail(fmt::format("'{}' is too large", key));
    return 0;
  }
  return static_cast<int>(value);
}

// Parses, reads the object with `read`, and gives what it made or what was wrong.
template <typename T, typename Read>
Result<T> read_object(const std::string& text, const std::string& what, const Read& read) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  JsonReader reader(json, what);
  T value{};
  read(reader, value);
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return value;
}

// The objects in an array.
template <typename T, typename Read>
std::vector<T> read_list(JsonReader& reader, std::string_view key, const Read& read) {
  std::vector<T> values;
  for (const Json& entry : reader.array(key)) {
    JsonReader member(entry, std::string(key));
    T value{};
    read(member, value);
    if (const Result<void> outcome = member.outcome(); !outcome) {
      reader.fail(outcome.error().message);
    }
    values.push_back(std::move(value));
  }
  return values;
}

void read_batch_value(JsonReader& reader, BatchValue& value) {
  value.name = reader.string("name");
  value.shape = reader.integers("shape");
  const auto dtype = dtype_from_name(reader.string("dtype"));
  if (!dtype || !checked_bytes(*dtype, value.shape)) {
    reader.fail("impossible type of a batch value");
  } else {
    value.dtype = *dtype;
  }
}

std::string memory_text(const WorkerMemory& memory) {
  return Members()
      .add("predicted_bytes", memory.predicted_bytes)
      .add("measured_bytes", memory.measured_bytes)
      .add("scratch_bytes", memory.scratch_bytes)
      .add("unplanned_allocations", memory.unplanned_allocations)
      .add("unplanned_bytes", memory.unplanned_bytes)
      .add("resident_bytes", memory.resident_bytes)
      .object();
}

void read_memory(JsonReader& reader, WorkerMemory& memory) {
  memory.predicted_bytes = reader.integer("predicted_bytes");
  memory.measured_bytes = reader.integer("measured_bytes");
  memory.scratch_bytes = reader.integer("scratch_bytes");
  memory.unplanned_allocations = reader.integer("unplanned_allocations");
  memory.unplanned_bytes = reader.integer("unplanned_bytes");
  memory.resident_bytes = reader.integer("resident_bytes");
}

std::string step_text(const WorkerStep& step) {
  return Members()
      .add("step", step.step)
      .add("loss", step.loss)
      .add_text("metrics", list(step.metrics))
      .add("seconds", step.seconds)
      .add("waiting_seconds", step.waiting_seconds)
      .add("transfer_seconds", step.transfer_seconds)
      .add("sent_bytes", step.sent_bytes)
      .object();
}

void read_step(JsonReader& reader, WorkerStep& step) {
  step.step = reader.integer("step");
  step.loss = reader.number("loss");
  step.metrics = reader.numbers("metrics");
  step.seconds = reader.number("seconds");
  step.waiting_seconds = reader.number("waiting_seconds");
  step.transfer_seconds = reader.number("transfer_seconds");
  step.sent_bytes = reader.integer("sent_bytes");
}

std::string written_text(const WrittenShards& written) {
  return Members()
      .add("snapshot", written.snapshot)
      .add("step", written.step)
      .add("seconds", written.seconds)
      .add_text("shards", list(written.shards,
                               [](const ShardDescription& shard) {
                                 return Members()
                                     .add("file", shard.file)
                                     .add("bytes", static_cast<std::int64_t>(shard.bytes))
                                     .add("checksum", static_cast<std::int64_t>(shard.checksum))
                                     .object();
                               }))
      .object();
}

void read_written(JsonReader& reader, WrittenShards& written) {
  written.snapshot = reader.boolean("snapshot");
  written.step = reader.integer("step");
  written.seconds = reader.number("seconds");
  written.shards = read_list<ShardDescription>(reader, "shards", [](JsonReader& member, ShardDescription& shard) {
    shard.file = member.string("file");
    shard.bytes = static_cast<std::uint64_t>(member.integer("bytes", 0));
    shard.checksum = static_cast<std::uint32_t>(member.integer("checksum", 0));
  });
}

std::string operator_text(const OperatorTotal& total) {
  return Members()
      .add("op", total.op)
      .add("calls", total.calls)
      .add("seconds", total.seconds)
      .add("scratch_bytes", total.scratch_bytes)
      .object();
}

}  // namespace

std::string to_json(const WorkerTask& task) {
  return Members()
      .add("workers", task.workers)
      .add("program", task.program)
      .add("lowered", task.lowered)
      .add("data", task.data)
      .add_text("batch", list(task.batch,
                              [](const BatchValue& value) {
                                return Members()
                                    .add("name", value.name)
                                    .add("dtype", std::string(dtype_name(value.dtype)))
                                    .add_text("shape", list(value.shape))
                                    .object();
                              }))
      .add("resume", task.resume)
      .add("step", task.step)
      .add("epoch", task.next.epoch)
      .add("batch_number", task.next.batch)
      .add("seed", task.seed)
      .add("shuffle", task.shuffle)
      .add("first_step", task.first_step)
      .add("until_step", task.until_step)
      .add("checkpoint", task.checkpoint)
      .add("every", task.every)
      .add("snapshot", task.snapshot)
      .add_text("shards",
                list(task.shards,
                     [](const ShardTask& shard) {
                       return Members().add("file", shard.file).add_text("values", list(shard.values)).object();
                     }))
      .add("threads", task.threads)
      .add("check_nan", task.check_nan)
      .add("profile", task.profile)
      .add("network", task.network)
      .add("traced_steps", task.traced_steps)
      .add("trace_begin", task.trace_begin)
      .add("trace", task.trace)
      .object();
}

Result<WorkerTask> read_task(const std::string& text) {
  return read_object<WorkerTask>(text, "task", [](JsonReader& reader, WorkerTask& task) {
    task.workers = small_integer(reader, "workers");
    task.program = reader.string("program");
    task.lowered = reader.string("lowered");
    task.data = reader.string("data");
    task.batch = read_list<BatchValue>(reader, "batch", read_batch_value);
    task.resume = reader.string("resume");
    task.step = reader.integer("step", 0);
    task.next = {reader.integer("epoch", 0), reader.integer("batch_number", 0)};
    task.seed = reader.integer("seed");
    task.shuffle = reader.boolean("shuffle");
    task.first_step = reader.integer("first_step", 0);
    task.until_step = reader.integer("until_step", 0);
    task.checkpoint = reader.string("checkpoint");
    task.every = reader.integer("every", 1);
    task.snapshot = reader.string("snapshot");
    task.shards = read_list<ShardTask>(reader, "shards", [](JsonReader& member, ShardTask& shard) {
      shard.file = member.string("file");
      shard.values = member.strings("values");
    });
    task.threads = small_integer(reader, "threads");
    task.check_nan = reader.boolean("check_nan");
    task.profile = reader.boolean("profile");
    task.network = reader.boolean("network");
    task.traced_steps = reader.integer("traced_steps", 0);
    task.trace_begin = reader.integer("trace_begin");
    task.trace = reader.string("trace");
  });
}

std::string to_json(const Joining& joining) {
  return Members()
      .add("worker", joining.worker)
      .add("host", joining.host)
      .add("process", joining.process)
      .add("address", joining.address)
      .object();
}

Result<Joining> read_joining(const std::string& text) {
  return read_object<Joining>(text, "join", [](JsonReader& reader, Joining& joining) {
    joining.worker = small_integer(reader, "worker");
    joining.host = reader.string("host");
    joining.process = reader.integer("process");
    joining.address = reader.string("address");
  });
}

Result<int> read_worker_number(const std::string& text) {
  return read_object<int>(text, "request",
                          [](JsonReader& reader, int& worker) { worker = small_integer(reader, "worker"); });
}

std::string to_json(const std::vector<std::string>& addresses) {
  return Members().add_text("addresses", list(addresses)).object();
}

Result<std::vector<std::string>> read_addresses(const std::string& text) {
  return read_object<std::vector<std::string>>(
      text, "addresses",
      [](JsonReader& reader, std::vector<std::string>& addresses) { addresses = reader.strings("addresses"); });
}

std::string to_json(const WorkerReport& report) {
  Members members;
  members.add("worker", report.worker)
      .add_text("paths", list(report.paths))
      .add_text("steps", list(report.steps, step_text))
      .add_text("written", list(report.written, written_text))
      .add("ended", report.ended)
      .add_text("operators", list(report.operators, operator_text));
  if (report.memory) {
    members.add_text("memory", memory_text(*report.memory));
  }
  if (report.failure) {
    members.add_text("failure", Members()
                                    .add("message", report.failure->message)
                                    .add("exit_code", report.failure->exit_code)
                                    .add_text("lost_peers", list(report.failure->lost_peers))
                                    .object());
  }
  return members.object();
}

Result<WorkerReport> read_report(const std::string& text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  JsonReader reader(json, "report");
  WorkerReport report;
  report.worker = small_integer(reader, "worker");
  report.paths = reader.strings("paths");
  report.steps = read_list<WorkerStep>(reader, "steps", read_step);
  report.written = read_list<WrittenShards>(reader, "written", read_written);
  report.ended = reader.boolean("ended");
  report.operators = read_list<OperatorTotal>(reader, "operators", [](JsonReader& member, OperatorTotal& total) {
    total.op = member.string("op");
    total.calls = member.integer("calls");
    total.seconds = member.number("seconds");
    total.scratch_bytes = member.integer("scratch_bytes");
  });
  if (const Json* memory = json.find("memory")) {
    JsonReader member(*memory, "memory");
    read_memory(member, report.memory.emplace());
    TESSER_RETURN_IF_ERROR(member.outcome());
  }
  if (const Json* failure = json.find("failure")) {
    JsonReader member(*failure, "failure");
    report.failure =
        WorkerFailure{member.string("message"), small_integer(member, "exit_code"), member.integers("lost_peers")};
    TESSER_RETURN_IF_ERROR(member.outcome());
  }
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return report;
}

std::string to_json(const ReportAnswer& answer) {
  return Members().add("until_step", answer.until_step).add("final", answer.final).add("abort", answer.abort).object();
}

Result<ReportAnswer> read_answer(const std::string& text) {
  return read_object<ReportAnswer>(text, "answer", [](JsonReader& reader, ReportAnswer& answer) {
    answer.until_step = reader.integer("until_step", 0);
    answer.final = reader.boolean("final");
    answer.abort = reader.boolean("abort");
  });
}

}  // namespace tesser::runtime
