#include "runtime/train.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "runtime/data.h"
#include "runtime/executor.h"
#include "runtime/loader.h"
#include "runtime/memory_limit.h"
#include "runtime/training_run.h"
#include "runtime/weights.h"

namespace tesser::runtime {
namespace {

using Path = std::filesystem::path;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::int64_t resident_peak_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

// One run: everything the loop needs, set up in the order in which a user's mistakes are best found.
class Training {
 public:
  Training(const TrainOptions& options, TrainReporter& reporter, const std::atomic<bool>& stop)
      : options_(options), reporter_(reporter), stop_(stop) {}

  Result<void> prepare();
  Result<TrainEnd> loop();

 private:
  Result<void> prepare_evaluation();
  Result<void> step();
  Result<void> evaluate_now(std::int64_t epoch);
  Result<void> begin_checkpoint();
  Result<void> take_checkpoint(std::optional<Result<CheckpointWritten>> outcome);

  // Where the last complete checkpoint is, as the end of a message; waits for one that is being written.
  std::string advice() {
    if (writer_) {
      if (const auto outcome = writer_->wait_outcome(); outcome && *outcome) {
        last_checkpoint_ = (*outcome)->path;
        reporter_.checkpoint_written(**outcome);
      }
    }
    if (last_checkpoint_) {
      return fmt::format("; {} is complete: go on from it with --resume", last_checkpoint_->string());
    }
    return "";
  }

  const TrainOptions& options_;
  TrainReporter& reporter_;
  const std::atomic<bool>& stop_;

  std::optional<CheckpointLock> lock_;
  std::optional<DataSet> data_;
  std::optional<DataSet> evaluation_data_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Executor> forward_;
  std::optional<CheckpointWriter> writer_;
  std::optional<Loader> loader_;
  std::vector<MutableTensorView> batch_;

  CheckpointInfo info_;  // where the run stands
  TrainStart start_;
  std::int64_t until_step_ = 0;
  std::optional<std::int64_t> saved_step_;  // of the last checkpoint that was begun or resumed from
  std::optional<Path> last_checkpoint_;
  std::optional<std::int64_t> evaluated_step_;
  std::int64_t steps_ = 0;
  double step_seconds_ = 0;
  std::optional<double> loss_;
};

Result<void> Training::prepare() {
  TESSER_ASSIGN_OR_RETURN(TrainingRun run, open_run(options_));
  TESSER_RETURN_IF_ERROR(prepare_evaluation());
  TESSER_RETURN_IF_ERROR(open_checkpoints(options_, reporter_, run));
  info_ = run.info;
  until_step_ = run.until_step;
  start_ = training_start(options_, run);
  data_ = std::move(run.data);
  if (run.lock) {
    lock_ = std::move(run.lock);
    CheckpointWriterOptions writer_options;
    writer_options.keep = options_.keep;
    writer_.emplace(*lock_, writer_options, state_values(run.program));
  }
  ExecutorOptions executor_options;
  executor_options.threads = options_.threads;
  executor_options.check_nan = options_.check_nan;
  executor_options.profile = options_.profile;
  TESSER_ASSIGN_OR_RETURN(executor_, Executor::create(std::move(run.program), executor_options));
  const std::int64_t forward_bytes = forward_ ? forward_->memory().predicted_peak_bytes : 0;
  TESSER_RETURN_IF_ERROR(check_memory(executor_->memory().predicted_peak_bytes + forward_bytes, memory_limit()));
  if (run.resumed) {
    TESSER_RETURN_IF_ERROR(write_checkpoint_state(*executor_, options_.program, *run.resumed));
    saved_step_ = info_.step;
    last_checkpoint_ = run.resumed->path();
  } else {
    TESSER_RETURN_IF_ERROR(write_initial_state(*executor_, options_.program));
  }
  if (forward_) {
    // Everything the step does not have (constants, buffers of its own); copy_state() then brings what is trained.
    TESSER_RETURN_IF_ERROR(write_initial_state(*forward_, options_.program));
  }
  for (const BatchValue& value : data_->values()) {
    batch_.push_back(executor_->batch(value.name));
  }
  loader_.emplace(*data_, LoaderOptions{info_.seed, info_.shuffle, info_.next, {}});
  return {};
}

Result<void> Training::prepare_evaluation() {
  if (!options_.evaluate) {
    return {};
  }
  ExecutorOptions executor_options;
  executor_options.threads = options_.threads;
  TESSER_ASSIGN_OR_RETURN(forward_, load_forward(options_.program, executor_options));
  TESSER_RETURN_IF_ERROR(check_scalar_results(forward_->program()));
  TESSER_ASSIGN_OR_RETURN(evaluation_data_, DataSet::open(*options_.evaluate, batch_values(forward_->program())));
  return {};
}

Result<void> Training::step() {
  const auto begin = Clock::now();
  const DataPosition position = loader_->next(batch_);
  const Result<void> checked =
      options_.check_nan ? check_batch(*data_, options_.data, info_, position) : Result<void>();
  const Result<StepResult> result =
      checked ? executor_->run(info_.step, info_.seed) : Result<StepResult>(tl::unexpected<Error>(checked.error()));
  const std::int64_t number = info_.step + 1;
  if (!result) {
    return tl::unexpected<Error>(
        Error{result.error().code,
              fmt::format("step {} (epoch {}): {}{}", number, position.epoch + 1, result.error().message, advice())});
  }
  StepReport report;
  report.step = number;
  report.epoch = position.epoch;
  report.loss = result->loss;
  report.seconds = seconds_since(begin);
  const graph::Program& program = executor_->program();
  for (std::size_t i = 0; i < program.metrics.size(); ++i) {
    report.metrics.emplace_back(program.metrics[i].name, result->metrics[i]);
  }
  for (const graph::Schedule& schedule : program.schedules) {
    report.learning_rates.push_back(schedule.at(info_.step));
  }
  loss_ = result->loss;
  ++steps_;
  step_seconds_ += report.seconds;
  reporter_.stepped(report);
  if (!std::isfinite(result->loss)) {
    return failed(non_finite_loss(number, position.epoch, result->loss, options_.check_nan) + advice());
  }
  info_.step = number;
  info_.next = following(position, *data_);
  return {};
}

Result<void> Training::evaluate_now(std::int64_t epoch) {
  if (!forward_ || evaluated_step_ == info_.step) {
    return {};
  }
  TESSER_RETURN_IF_ERROR(copy_state(*executor_, *forward_));
  TESSER_ASSIGN_OR_RETURN(const Evaluation evaluation, evaluate(*forward_, *evaluation_data_));
  evaluated_step_ = info_.step;
  reporter_.evaluated(info_.step, epoch, evaluation);
  return {};
}

Result<void> Training::begin_checkpoint() {
  TESSER_RETURN_IF_ERROR(take_checkpoint(writer_->wait_outcome()));
  const std::span<const MutableTensorView> staging = writer_->staging();
  const std::vector<StateValue> values = state_values(executor_->program());
  for (std::size_t i = 0; i < values.size(); ++i) {
    TESSER_RETURN_IF_ERROR(executor_->read_state(values[i].name, staging[i]));
  }
  writer_->start(info_);
  saved_step_ = info_.step;
  return {};
}

Result<void> Training::take_checkpoint(std::optional<Result<CheckpointWritten>> outcome) {
  if (!outcome) {
    return {};
  }
  if (!*outcome) {
    return failed(fmt::format("the checkpoint could not be written, so the run stops after step {}: {}{}", info_.step,
                              outcome->error().message, advice()));
  }
  last_checkpoint_ = (*outcome)->path;
  reporter_.checkpoint_written(**outcome);
  for (const std::string& note : (*outcome)->notes) {
    reporter_.note(note);
  }
  return {};
}

Result<TrainEnd> Training::loop() {
  start_.resumed_from = last_checkpoint_;
  start_.predicted_peak_bytes = executor_->memory().predicted_peak_bytes;
  reporter_.started(start_);

  const auto begin = Clock::now();
  std::int64_t epoch = info_.next.epoch;  // of the last step
  while (info_.step < until_step_ && !stop_) {
    epoch = info_.next.epoch;
    TESSER_RETURN_IF_ERROR(step());
    if (info_.next.epoch != epoch) {
      TESSER_RETURN_IF_ERROR(evaluate_now(epoch));
    }
    if (writer_) {
      TESSER_RETURN_IF_ERROR(take_checkpoint(writer_->take_outcome()));
      if ((info_.step - executor_->program().first_step) % options_.every == 0) {
        TESSER_RETURN_IF_ERROR(begin_checkpoint());
      }
    }
  }
  if (!stop_) {
    TESSER_RETURN_IF_ERROR(evaluate_now(epoch));
  }
  if (writer_) {
    if (saved_step_ != info_.step) {
      TESSER_RETURN_IF_ERROR(begin_checkpoint());
    }
    TESSER_RETURN_IF_ERROR(take_checkpoint(writer_->wait_outcome()));
  }

  TrainEnd end;
  end.steps = steps_;
  end.step = info_.step;
  end.seconds = seconds_since(begin);
  end.samples_per_second = step_seconds_ > 0 ? static_cast<double>(steps_ * data_->batch_size()) / step_seconds_ : 0;
  end.memory = executor_->memory();
  end.operators = executor_->profile();
  end.resident_peak_bytes = resident_peak_bytes();
  end.interrupted = info_.step < until_step_;
  end.final_loss = loss_;
  end.checkpoint = last_checkpoint_;
  reporter_.ended(end);
  return end;
}

}  // namespace

Result<TrainEnd> train(const TrainOptions& options, TrainReporter& reporter, const std::atomic<bool>& stop) {
  Training training(options, reporter, stop);
  TESSER_RETURN_IF_ERROR(training.prepare());
  return training.loop();
}

}  // namespace tesser::runtime
