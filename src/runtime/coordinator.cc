#include "runtime/coordinator.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/coordination.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLocalJoinLimit{120};
constexpr std::chrono::seconds kExternalJoinLimit{600};
constexpr std::chrono::seconds kStoppedLimit{3};
constexpr std::chrono::seconds kGoodbye{2};  // for workers to hear of the end
// How far workers may run ahead of what has been reported, so that they need not wait for permission but all stop soon.
constexpr double kAheadSeconds = 0.3;
constexpr std::int64_t kFewestStepsAhead = 2;
constexpr std::int64_t kMostStepsAhead = 1000;
constexpr int kLogLines = 8;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

Path Coordinator::trace_file(std::size_t worker) const {
  return directory_->path() / fmt::format("trace-{}.json", worker);
}

std::string Coordinator::advice() const {
  return last_checkpoint_ ? fmt::format("; {} is complete: go on from it with --resume", last_checkpoint_->string())
                          : "";
}

Result<void> Coordinator::check_joined() {
  const auto limit = distributed_.external ? kExternalJoinLimit : kLocalJoinLimit;
  const std::vector<int> missing = table_->missing();
  if (!missing.empty() && Clock::now() - began_ > limit) {
    return failed(fmt::format("worker{} {} did not come within {} s", missing.size() > 1 ? "s" : "",
                              fmt::join(missing, ", "), limit.count()));
  }
  // Before it has joined, a worker's silence means nothing.
  for (const int worker : processes_.empty() ? std::vector<int>() : missing) {
    if (!processes_[static_cast<std::size_t>(worker)].is_stopped()) {
      stopped_.erase(worker);
    } else if (Clock::now() - stopped_.try_emplace(worker, Clock::now()).first->second > kStoppedLimit) {
      return failed(fmt::format("{} has been stopped by a signal", table_->name_of(worker)));
    }
  }
  return {};
}

Result<void> Coordinator::check_workers() {
  if (!started_) {
    TESSER_RETURN_IF_ERROR(check_joined());
  }
  std::vector<std::optional<std::string>> died(static_cast<std::size_t>(workers_));
  for (std::size_t worker = 0; worker < processes_.size(); ++worker) {
    died[worker] = processes_[worker].how_it_ended();
  }
  const std::optional<WorkerTrouble> trouble = table_->trouble(died);
  if (!trouble) {
    return {};
  }
  // The data may be to blame. Not all workers may have reported the last step that was good.
  for (std::int64_t step = reported_; options_.check_nan && started_ && step < std::min(allowed_, reported_ + 2);
       ++step) {
    DataPosition position = position_after(*run_, step - run_->info.step);
    for (std::int64_t replica = 0; replica < options_.replicas; ++replica, ++position.batch) {
      if (const Result<void> checked = check_batch(run_->data, options_.data, run_->info, position); !checked) {
        return failed(
            fmt::format("step {} (epoch {}): {}{}", step + 1, position.epoch + 1, checked.error().message, advice()));
      }
    }
  }
  const std::string lines =
      processes_.empty() ? "" : processes_[static_cast<std::size_t>(trouble->worker)].last_lines(kLogLines);
  const std::string message = trouble->message + advice() + (lines.empty() ? "" : "\n  its last lines:" + lines);
  return trouble->is_input ? Result<void>(invalid_input(message)) : Result<void>(failed(message));
}

void Coordinator::remove_mark() {
  if (mark_) {
    std::error_code ignored;
    std::filesystem::remove(*mark_, ignored);
    mark_.reset();
  }
}

// Every worker has made its file by now.
Result<void> Coordinator::check_traces() const {
  for (int worker = 0; distributed_.trace && worker < workers_; ++worker) {
    std::error_code error;
    if (!std::filesystem::exists(trace_file(static_cast<std::size_t>(worker)), error)) {
      return invalid_input(
          fmt::format("{} writes its part of the trace where the coordinator does not see it; give a "
                      "--run-directory that all machines share",
                      table_->name_of(worker)));
    }
  }
  return {};
}

void Coordinator::report_start() {
  remove_mark();
  TrainStart start = training_start(options_, *run_);
  start.workers = workers_;
  start.paths = table_->paths();
  start.resumed_from = last_checkpoint_;
  for (const WorkerSummary& summary : table_->summaries()) {
    start.predicted_peak_bytes = std::max(start.predicted_peak_bytes, summary.predicted_peak_bytes);
  }
  reporter_.started(start);
  began_ = Clock::now();
  started_ = true;
}

void Coordinator::allow_steps() {
  if (final_) {
    return;
  }
  if (stop_) {
    final_ = true;
  } else {
    const double steps = recent_seconds_ > 0 ? kAheadSeconds / recent_seconds_ : 0;
    const std::int64_t ahead =
        std::clamp(static_cast<std::int64_t>(std::min(steps, 1e6)), kFewestStepsAhead, kMostStepsAhead);
    allowed_ = std::max(allowed_, std::min(run_->until_step, reported_ + ahead));
    final_ = allowed_ >= run_->until_step;
  }
  table_->allow(allowed_, final_);
}

Result<void> Coordinator::report_steps(std::int64_t until) {
  TESSER_ASSIGN_OR_RETURN(std::vector<WorkerStep> steps, table_->take_steps());
  std::move(steps.begin(), steps.end(), std::back_inserter(unreported_));
  // After the steps: a worker reports an evaluation before the step that follows it.
  TESSER_ASSIGN_OR_RETURN(std::vector<WorkerEvaluation> evaluations, table_->take_evaluations());
  std::move(evaluations.begin(), evaluations.end(), std::back_inserter(evaluations_));
  report_evaluations();
  while (!unreported_.empty() && unreported_.front().step <= until) {
    const WorkerStep step = std::move(unreported_.front());
    unreported_.pop_front();
    StepReport report;
    report.step = step.step;
    report.epoch = epoch_of(step.step);
    report.loss = step.loss;
    report.seconds = step.seconds;
    const graph::Program& program = run_->program;
    for (std::size_t i = 0; i < std::min(program.metrics.size(), step.metrics.size()); ++i) {
      report.metrics.emplace_back(program.metrics[i].name, step.metrics[i]);
    }
    for (const graph::Schedule& schedule : program.schedules) {
      report.learning_rates.push_back(schedule.at(step.step - 1));
    }
    reported_ = step.step;
    loss_ = step.loss;
    step_seconds_ += step.seconds;
    recent_seconds_ = recent_seconds_ > 0 ? 0.8 * recent_seconds_ + 0.2 * step.seconds : step.seconds;
    reporter_.stepped(report);
    if (!std::isfinite(step.loss)) {
      return failed(non_finite_loss(step.step, report.epoch, step.loss, options_.check_nan) + advice());
    }
    report_evaluations();
  }
  return {};
}

// Those after steps that have been reported.
void Coordinator::report_evaluations() {
  while (!evaluations_.empty() && evaluations_.front().step <= reported_) {
    const WorkerEvaluation made = std::move(evaluations_.front());
    evaluations_.pop_front();
    Evaluation evaluation;
    for (std::size_t i = 0; i < made.names.size(); ++i) {
      evaluation.results.emplace_back(made.names[i], made.results[i]);
    }
    evaluation.batches = made.batches;
    evaluation.samples = made.samples;
    evaluation.left_out = made.left_out;
    evaluation.seconds = made.seconds;
    const std::int64_t epoch = made.step > run_->info.step ? epoch_of(made.step) : run_->info.next.epoch;
    reporter_.evaluated(made.step, epoch, evaluation);
  }
}

Result<void> Coordinator::complete_checkpoints() {
  for (const auto& [worker, written] : table_->take_written()) {
    std::optional<Manifest> manifest = shards_->add(worker, written);
    if (!manifest) {
      continue;
    }
    manifest->info = run_->info;
    manifest->info.step = written.step;
    manifest->info.next = position_after(*run_, written.step - run_->info.step);
    CheckpointWriterOptions writer_options;
    writer_options.keep = options_.keep;
    Result<CheckpointWritten> complete = complete_checkpoint(*run_->lock, writer_options, *manifest);
    if (!complete) {
      return failed(fmt::format("the checkpoint could not be written, so the run stops after step {}: {}{}", reported_,
                                complete.error().message, advice()));
    }
    complete->seconds += written.seconds;
    TESSER_RETURN_IF_ERROR(report_steps(written.step));
    last_checkpoint_ = complete->path;
    reporter_.checkpoint_written(*complete);
    for (const std::string& note : complete->notes) {
      reporter_.note(note);
    }
  }
  return {};
}

Result<void> Coordinator::lead() {
  while (true) {
    table_->wait();
    // What was done and written before a worker failed still counts.
    if (started_) {
      TESSER_RETURN_IF_ERROR(complete_checkpoints());
      TESSER_RETURN_IF_ERROR(report_steps());
    }
    TESSER_RETURN_IF_ERROR(check_workers());
    if (!started_ && table_->all_prepared()) {
      TESSER_RETURN_IF_ERROR(check_traces());
      report_start();
    }
    if (started_) {
      allow_steps();
      if (table_->all_ended()) {
        TESSER_RETURN_IF_ERROR(complete_checkpoints());
        return report_steps();
      }
    }
  }
}

// Workers hear of the end with their next report; local ones that do not end then are killed.
void Coordinator::dismiss_workers(bool failed) {
  remove_mark();
  if (!table_ || !server_) {
    return;
  }
  table_->abort();
  if (failed) {
    for (WorkerProcess& process : processes_) {
      process.kill();
    }
  }
  const auto has_ended = [](WorkerProcess& process) { return process.how_it_ended().has_value(); };
  const auto deadline = Clock::now() + kGoodbye;
  while (Clock::now() < deadline) {
    const bool gone =
        processes_.empty() ? table_->all_know_the_end() : std::all_of(processes_.begin(), processes_.end(), has_ended);
    if (gone) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  processes_.clear();
  if (failed && run_->lock) {
    Result<std::vector<CheckpointEntry>> entries = checkpoint_entries(run_->lock->directory());
    for (const CheckpointEntry& entry : entries ? *entries : std::vector<CheckpointEntry>()) {
      std::error_code ignored;
      if (entry.suffix == ".writing") {
        std::filesystem::remove_all(entry.path, ignored);
      }
    }
  }
}

// Chrome's trace format: a process a worker.
Result<void> Coordinator::write_trace() {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  const std::vector<WorkerSummary> summaries = table_->summaries();
  for (std::size_t worker = 0; worker < summaries.size(); ++worker) {
    TESSER_ASSIGN_OR_RETURN(const std::string events, read_file(trace_file(worker)));
    const std::string name = worker_name(task(), static_cast<int>(worker));
    text += fmt::format("{}{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"args\":{{\"name\":{}}}}}{}",
                        worker > 0 ? ",\n" : "", worker,
                        json_string(fmt::format("{} on {}", name, summaries[worker].host)), events);
  }
  TESSER_RETURN_IF_ERROR(trace_->append(text + "\n]}\n"));
  return trace_->commit();
}

TrainEnd Coordinator::ending() const {
  TrainEnd end;
  end.steps = reported_ - run_->info.step;
  end.step = reported_;
  end.seconds = seconds_since(began_);
  end.samples_per_second =
      step_seconds_ > 0 ? static_cast<double>(end.steps * run_->data.batch_size() * run_->replicas) / step_seconds_ : 0;
  end.workers = table_->summaries();
  for (const WorkerSummary& worker : end.workers) {
    end.memory.predicted_peak_bytes = std::max(end.memory.predicted_peak_bytes, worker.predicted_peak_bytes);
    end.memory.arena_bytes = std::max(end.memory.arena_bytes, worker.peak_bytes - worker.unplanned_bytes);
    end.memory.scratch_bytes = std::max(end.memory.scratch_bytes, worker.scratch_bytes);
    end.memory.unplanned_allocations = std::max(end.memory.unplanned_allocations, worker.unplanned_allocations);
    end.memory.unplanned_bytes = std::max(end.memory.unplanned_bytes, worker.unplanned_bytes);
    end.resident_peak_bytes = std::max(end.resident_peak_bytes, worker.resident_peak_bytes);
  }
  for (const OperatorTotal& total : table_->operators()) {
    end.operators.push_back({total.op, total.calls, total.seconds, total.scratch_bytes});
  }
  end.interrupted = reported_ < run_->until_step;
  end.final_loss = loss_;
  end.checkpoint = last_checkpoint_;
  return end;
}

Result<TrainEnd> Coordinator::run() {
  Result<void> outcome = prepare();
  if (outcome) {
    outcome = lead();
  }
  if (outcome && distributed_.trace) {
    outcome = write_trace();
    if (!outcome) {
      outcome.error().message += advice();
    }
  }
  if (!outcome) {
    dismiss_workers(true);
    return tl::unexpected<Error>(outcome.error());
  }
  const TrainEnd end = ending();
  dismiss_workers(false);
  reporter_.ended(end);
  return end;
}

Result<TrainEnd> train_distributed(const TrainOptions& options, const DistributedOptions& distributed,
                                   TrainReporter& reporter, const std::atomic<bool>& stop) {
  Coordinator coordinator(options, distributed, reporter, stop);
  return coordinator.run();
}

}  // namespace tesser::runtime
