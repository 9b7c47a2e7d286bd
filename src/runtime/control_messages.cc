#include "runtime/control_messages.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"

namespace tesser::runtime {
namespace {

int small_integer(JsonReader& reader, std::string_view key) {
  const std::int64_t value = reader.integer(key, 0);
  if (value > std::numeric_limits<int>::max()) {
    reader.fail(fmt::format("'{}' is too large", key));
    return 0;
  }
  return static_cast<int>(value);
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
  return JsonMembers()
      .add("predicted_bytes", memory.predicted_bytes)
      .add("measured_bytes", memory.measured_bytes)
      .add("scratch_bytes", memory.scratch_bytes)
      .add("unplanned_allocations", memory.unplanned_allocations)
      .add("unplanned_bytes", memory.unplanned_bytes)
      .add("copied_gradient_bytes", memory.copied_gradient_bytes)
      .add("resident_bytes", memory.resident_bytes)
      .object();
}

void read_memory(JsonReader& reader, WorkerMemory& memory) {
  memory.predicted_bytes = reader.integer("predicted_bytes");
  memory.measured_bytes = reader.integer("measured_bytes");
  memory.scratch_bytes = reader.integer("scratch_bytes");
  memory.unplanned_allocations = reader.integer("unplanned_allocations");
  memory.unplanned_bytes = reader.integer("unplanned_bytes");
  memory.copied_gradient_bytes = reader.integer("copied_gradient_bytes");
  memory.resident_bytes = reader.integer("resident_bytes");
}

std::string step_text(const WorkerStep& step) {
  return JsonMembers()
      .add("step", step.step)
      .add("loss", step.loss)
      .add_text("metrics", json_list(step.metrics))
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
  return JsonMembers()
      .add("step", written.step)
      .add("seconds", written.seconds)
      .add_text("shards", json_list(written.shards,
                                    [](const ShardDescription& shard) {
                                      return JsonMembers()
                                          .add("file", shard.file)
                                          .add("bytes", static_cast<std::int64_t>(shard.bytes))
                                          .add("checksum", static_cast<std::int64_t>(shard.checksum))
                                          .object();
                                    }))
      .object();
}

void read_written(JsonReader& reader, WrittenShards& written) {
  written.step = reader.integer("step");
  written.seconds = reader.number("seconds");
  written.shards = read_json_list<ShardDescription>(reader, "shards", [](JsonReader& member, ShardDescription& shard) {
    shard.file = member.string("file");
    shard.bytes = static_cast<std::uint64_t>(member.integer("bytes", 0));
    shard.checksum = static_cast<std::uint32_t>(member.integer("checksum", 0));
  });
}

std::string evaluation_text(const WorkerEvaluation& evaluation) {
  return JsonMembers()
      .add("step", evaluation.step)
      .add_text("names", json_list(evaluation.names))
      .add_text("results", json_list(evaluation.results))
      .add("batches", evaluation.batches)
      .add("samples", evaluation.samples)
      .add("left_out", evaluation.left_out)
      .add("seconds", evaluation.seconds)
      .object();
}

void read_evaluation(JsonReader& reader, WorkerEvaluation& evaluation) {
  evaluation.step = reader.integer("step");
  evaluation.names = reader.strings("names");
  evaluation.results = reader.numbers("results");
  evaluation.batches = reader.integer("batches");
  evaluation.samples = reader.integer("samples");
  evaluation.left_out = reader.integer("left_out");
  evaluation.seconds = reader.number("seconds");
  if (evaluation.names.size() != evaluation.results.size()) {
    reader.fail("an evaluation has a result for each name");
  }
}

std::string batch_value_text(const BatchValue& value) {
  return JsonMembers()
      .add("name", value.name)
      .add("dtype", std::string(dtype_name(value.dtype)))
      .add_text("shape", json_list(value.shape))
      .object();
}

std::string operator_text(const OperatorTotal& total) {
  return JsonMembers()
      .add("op", total.op)
      .add("calls", total.calls)
      .add("seconds", total.seconds)
      .add("scratch_bytes", total.scratch_bytes)
      .object();
}

}  // namespace

std::string worker_name(const WorkerTask& task, int worker) {
  return task.replicas > 1 ? fmt::format("replica {}, worker {}", worker / task.workers, worker % task.workers)
                           : fmt::format("worker {}", worker);
}

std::string to_json(const WorkerTask& task) {
  return JsonMembers()
      .add("workers", task.workers)
      .add("replicas", task.replicas)
      .add("hub", task.hub)
      .add("hub_job", task.hub_job)
      .add("hub_token", task.hub_token)
      .add("hub_nonce", task.hub_nonce)
      .add("clip_norm", task.clip_norm)
      .add("clip_parts", task.clip_parts)
      .add("clip_part", task.clip_part)
      .add_text("clip_values", json_list(task.clip_values))
      .add("program", task.program)
      .add("program_checksum", task.program_checksum)
      .add("state_bytes", task.state_bytes)
      .add("data_fingerprint", task.data_fingerprint)
      .add("data", task.data)
      .add_text("batch", json_list(task.batch, batch_value_text))
      .add("resume", task.resume)
      .add("step", task.step)
      .add("epoch", task.next.epoch)
      .add("batch_number", task.next.batch)
      .add("seed", task.seed)
      .add("shuffle", task.shuffle)
      .add("first_step", task.first_step)
      .add("until_step", task.until_step)
      .add("checkpoint", task.checkpoint)
      .add("checkpoint_mark", task.checkpoint_mark)
      .add("every", task.every)
      .add("evaluation_data", task.evaluation_data)
      .add_text("evaluation_batch", json_list(task.evaluation_batch, batch_value_text))
      .add_text(
          "shards",
          json_list(task.shards,
                    [](const ShardTask& shard) {
                      return JsonMembers().add("file", shard.file).add_text("values", json_list(shard.values)).object();
                    }))
      .add("threads", task.threads)
      .add("sharing", task.sharing)
      .add("check_nan", task.check_nan)
      .add("profile", task.profile)
      .add("network", task.network)
      .add("traced_steps", task.traced_steps)
      .add("trace_begin", task.trace_begin)
      .add("trace", task.trace)
      .object();
}

Result<WorkerTask> read_task(const std::string& text) {
  return read_json_object<WorkerTask>(text, "task", [](JsonReader& reader, WorkerTask& task) {
    task.workers = small_integer(reader, "workers");
    task.replicas = small_integer(reader, "replicas");
    task.hub = reader.string("hub");
    task.hub_job = reader.string("hub_job");
    task.hub_token = reader.string("hub_token");
    task.hub_nonce = reader.string("hub_nonce");
    task.clip_norm = reader.number("clip_norm");
    task.clip_parts = static_cast<int>(reader.integer("clip_parts", 1));
    task.clip_part = static_cast<int>(reader.integer("clip_part"));
    task.clip_values = reader.strings("clip_values");
    task.program = reader.string("program");
    task.program_checksum = reader.string("program_checksum");
    task.state_bytes = reader.integer("state_bytes", 0);
    task.data_fingerprint = reader.string("data_fingerprint");
    task.data = reader.string("data");
    task.batch = read_json_list<BatchValue>(reader, "batch", read_batch_value);
    task.resume = reader.string("resume");
    task.step = reader.integer("step", 0);
    task.next = {reader.integer("epoch", 0), reader.integer("batch_number", 0)};
    task.seed = reader.integer("seed");
    task.shuffle = reader.boolean("shuffle");
    task.first_step = reader.integer("first_step", 0);
    task.until_step = reader.integer("until_step", 0);
    task.checkpoint = reader.string("checkpoint");
    task.checkpoint_mark = reader.string("checkpoint_mark");
    task.every = reader.integer("every", 1);
    task.evaluation_data = reader.string("evaluation_data");
    task.evaluation_batch = read_json_list<BatchValue>(reader, "evaluation_batch", read_batch_value);
    task.shards = read_json_list<ShardTask>(reader, "shards", [](JsonReader& member, ShardTask& shard) {
      shard.file = member.string("file");
      shard.values = member.strings("values");
    });
    task.threads = small_integer(reader, "threads");
    task.sharing = small_integer(reader, "sharing");
    task.check_nan = reader.boolean("check_nan");
    task.profile = reader.boolean("profile");
    task.network = reader.boolean("network");
    task.traced_steps = reader.integer("traced_steps", 0);
    task.trace_begin = reader.integer("trace_begin");
    task.trace = reader.string("trace");
  });
}

std::string to_json(const WorkerPrograms& programs) {
  return JsonMembers().add("step", programs.step).add("forward", programs.forward).object();
}

Result<WorkerPrograms> read_programs(const std::string& text) {
  return read_json_object<WorkerPrograms>(text, "programs", [](JsonReader& reader, WorkerPrograms& programs) {
    programs.step = reader.string("step");
    programs.forward = reader.string("forward");
  });
}

std::string to_json(const Joining& joining) {
  return JsonMembers()
      .add("worker", joining.worker)
      .add("host", joining.host)
      .add("process", joining.process)
      .add("address", joining.address)
      .object();
}

Result<Joining> read_joining(const std::string& text) {
  return read_json_object<Joining>(text, "join", [](JsonReader& reader, Joining& joining) {
    joining.worker = small_integer(reader, "worker");
    joining.host = reader.string("host");
    joining.process = reader.integer("process");
    joining.address = reader.string("address");
  });
}

Result<int> read_worker_number(const std::string& text) {
  return read_json_object<int>(text, "request",
                               [](JsonReader& reader, int& worker) { worker = small_integer(reader, "worker"); });
}

std::string to_json(const std::vector<std::string>& addresses) {
  return JsonMembers().add_text("addresses", json_list(addresses)).object();
}

Result<std::vector<std::string>> read_addresses(const std::string& text) {
  return read_json_object<std::vector<std::string>>(
      text, "addresses",
      [](JsonReader& reader, std::vector<std::string>& addresses) { addresses = reader.strings("addresses"); });
}

std::string to_json(const WorkerReport& report) {
  JsonMembers members;
  members.add("worker", report.worker)
      .add_text("paths", json_list(report.paths))
      .add_text("steps", json_list(report.steps, step_text))
      .add_text("written", json_list(report.written, written_text))
      .add_text("evaluations", json_list(report.evaluations, evaluation_text))
      .add("ended", report.ended)
      .add_text("operators", json_list(report.operators, operator_text));
  if (report.memory) {
    members.add_text("memory", memory_text(*report.memory));
  }
  if (report.failure) {
    members.add_text("failure", JsonMembers()
                                    .add("message", report.failure->message)
                                    .add("exit_code", report.failure->exit_code)
                                    .add_text("lost_peers", json_list(report.failure->lost_peers))
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
  report.steps = read_json_list<WorkerStep>(reader, "steps", read_step);
  report.written = read_json_list<WrittenShards>(reader, "written", read_written);
  report.evaluations = read_json_list<WorkerEvaluation>(reader, "evaluations", read_evaluation);
  report.ended = reader.boolean("ended");
  report.operators = read_json_list<OperatorTotal>(reader, "operators", [](JsonReader& member, OperatorTotal& total) {
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
  return JsonMembers()
      .add("until_step", answer.until_step)
      .add("final", answer.final)
      .add("abort", answer.abort)
      .object();
}

Result<ReportAnswer> read_answer(const std::string& text) {
  return read_json_object<ReportAnswer>(text, "answer", [](JsonReader& reader, ReportAnswer& answer) {
    answer.until_step = reader.integer("until_step", 0);
    answer.final = reader.boolean("final");
    answer.abort = reader.boolean("abort");
  });
}

}  // namespace tesser::runtime
