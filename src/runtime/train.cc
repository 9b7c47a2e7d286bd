#include "runtime/train.h"

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

#include "graph/read.h"
#include "runtime/data.h"
#include "runtime/data_order.h"
#include "runtime/element.h"
#include "runtime/executor.h"
#include "runtime/loader.h"
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

Result<void> check_options(const TrainOptions& options) {
  if (options.steps && options.epochs) {
    return invalid_input("give the length of the run in steps or in epochs, not both");
  }
  if (options.steps.value_or(0) < 0 || options.epochs.value_or(0) < 0 || options.every < 1 || options.keep < 1 ||
      options.threads < 0) {
    return invalid_input("steps, epochs and threads must not be negative; every and keep must be at least 1");
  }
  if (options.resume && !options.checkpoint) {
    return invalid_input("a run resumes from its checkpoint directory: say which with --checkpoint DIR");
  }
  return {};
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
  Result<void> prepare_checkpoints(const graph::Program& program);
  Result<void> check_resumed() const;
  Result<void> check_batch(DataPosition position) const;
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
  std::optional<Checkpoint> resumed_;
  std::optional<DataSet> data_;
  std::optional<DataSet> evaluation_data_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Executor> forward_;
  std::optional<CheckpointWriter> writer_;
  std::optional<Loader> loader_;
  std::vector<MutableTensorView> batch_;

  CheckpointInfo info_;  // where the run stands
  std::int64_t until_step_ = 0;
  std::optional<std::int64_t> saved_step_;  // of the last checkpoint that was begun or resumed from
  std::optional<Path> last_checkpoint_;
  std::optional<std::int64_t> evaluated_step_;
  std::int64_t steps_ = 0;
  double step_seconds_ = 0;
  std::optional<double> loss_;
};

Result<void> Training::prepare() {
  TESSER_RETURN_IF_ERROR(check_options(options_));
  std::error_code error;
  if (std::filesystem::is_regular_file(options_.program, error)) {
    return invalid_input(
        fmt::format("{}: is a file, expected a program directory NAME.tesser", options_.program.string()));
  }
  TESSER_ASSIGN_OR_RETURN(graph::Program program, graph::read_program(options_.program));
  if (program.kind != graph::Kind::kStep) {
    return invalid_input(
        fmt::format("{}: is a forward program; only a training step can be trained", options_.program.string()));
  }
  TESSER_ASSIGN_OR_RETURN(data_, DataSet::open(options_.data, batch_values(program)));
  TESSER_RETURN_IF_ERROR(prepare_evaluation());

  info_.program = program.name;
  TESSER_ASSIGN_OR_RETURN(info_.program_checksum, program_checksum(options_.program / "program.json"));
  info_.step = program.first_step;
  info_.seed = options_.seed.value_or(0);
  info_.shuffle = options_.shuffle;
  info_.data_fingerprint = data_->fingerprint();
  const std::int64_t first_step = program.first_step;
  TESSER_RETURN_IF_ERROR(prepare_checkpoints(program));

  std::int64_t length = options_.steps.value_or(0);
  if (!options_.steps && __builtin_mul_overflow(options_.epochs.value_or(1), data_->batches(), &length)) {
    return invalid_input(fmt::format("{} epochs are more steps than can be counted", *options_.epochs));
  }
  if (__builtin_add_overflow(first_step, length, &until_step_)) {
    return invalid_input(fmt::format("{} steps are more than can be counted", length));
  }

  ExecutorOptions executor_options;
  executor_options.threads = options_.threads;
  executor_options.check_nan = options_.check_nan;
  executor_options.profile = options_.profile;
  TESSER_ASSIGN_OR_RETURN(executor_, Executor::create(std::move(program), executor_options));
  if (resumed_) {
    TESSER_RETURN_IF_ERROR(write_checkpoint_state(*executor_, options_.program, *resumed_));
    resumed_.reset();
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
  loader_.emplace(*data_, LoaderOptions{info_.seed, info_.shuffle, info_.next});
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

Result<void> Training::prepare_checkpoints(const graph::Program& program) {
  if (!options_.checkpoint) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(lock_, CheckpointLock::acquire(*options_.checkpoint));
  if (options_.resume) {
    std::vector<std::string> notes;
    TESSER_ASSIGN_OR_RETURN(resumed_, open_for_resume(*lock_, notes));
    for (const std::string& note : notes) {
      reporter_.note(note);
    }
    if (resumed_) {
      TESSER_RETURN_IF_ERROR(check_resumed());
      info_ = resumed_->info();
      saved_step_ = info_.step;
      last_checkpoint_ = resumed_->path();
    } else {
      reporter_.note(fmt::format("{} holds no complete checkpoint; the run begins at its beginning",
                                 options_.checkpoint->string()));
    }
  } else {
    TESSER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, checkpoint_entries(*options_.checkpoint));
    for (const CheckpointEntry& entry : entries) {
      if (entry.suffix.empty()) {
        return invalid_input(
            fmt::format("{}: holds the checkpoints of an earlier run ({}); add --resume to go on with it, or give "
                        "another directory",
                        options_.checkpoint->string(), entry.path.filename().string()));
      }
    }
  }
  CheckpointWriterOptions writer_options;
  writer_options.keep = options_.keep;
  writer_.emplace(*lock_, writer_options, state_values(program));
  return {};
}

// Refuses to continue what would not be the same run.
Result<void> Training::check_resumed() const {
  const CheckpointInfo& found = resumed_->info();
  const std::string where = resumed_->path().string();
  if (found.program_checksum != info_.program_checksum) {
    return invalid_input(
        fmt::format("{}: was written by another program ('{}', checksum {}), {} has checksum {}; to train a changed "
                    "program give another "
                    "--checkpoint directory",
                    where, found.program, found.program_checksum, options_.program.string(), info_.program_checksum));
  }
  if (found.data_fingerprint != info_.data_fingerprint) {
    return invalid_input(fmt::format(
        "{}: was written with other data (fingerprint {}) than {} ({}); a run resumes with the data it began with",
        where, found.data_fingerprint, options_.data.string(), info_.data_fingerprint));
  }
  if (options_.seed && *options_.seed != found.seed) {
    return invalid_input(fmt::format("{}: was written with seed {}, not {}; leave --seed out to go on with it", where,
                                     found.seed, *options_.seed));
  }
  if (!options_.shuffle && found.shuffle) {
    return invalid_input(
        fmt::format("{}: was written by a run that shuffles its data; leave --no-shuffle out to go on with it", where));
  }
  if (found.step < info_.step || found.next.batch >= data_->batches()) {
    return invalid_input(
        fmt::format("{}: stands at step {}, batch {} of its epoch, which this program and data do not have", where,
                    found.step, found.next.batch));
  }
  return {};
}

// Under --check-nan, before an operator is blamed for it: whether the data itself holds NaN. Infinity may be meant, as
// in a mask.
Result<void> Training::check_batch(DataPosition position) const {
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    const MutableTensorView& view = batch_[i];
    if (!is_floating(view.dtype)) {
      continue;
    }
    const std::int64_t elements = element_count(view.shape);
    for (std::int64_t k = 0; k < elements; ++k) {
      if (!std::isnan(element_as_double(view.dtype, view.data, static_cast<std::size_t>(k)))) {
        continue;
      }
      std::int64_t sample = position.batch * data_->batch_size() + k / (elements / data_->batch_size());
      if (info_.shuffle) {
        sample = shuffled_order(info_.seed, position.epoch, data_->samples())[static_cast<std::size_t>(sample)];
      }
      return failed(fmt::format("sample {} (from 0) of batch value '{}' in {} holds NaN", sample,
                                data_->values()[i].name, options_.data.string()));
    }
  }
  return {};
}

Result<void> Training::step() {
  const auto begin = Clock::now();
  const DataPosition position = loader_->next(batch_);
  const Result<void> checked = options_.check_nan ? check_batch(position) : Result<void>();
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
    return failed(fmt::format(
        "step {} (epoch {}): the loss is {}; the run stops here{}{}", number, position.epoch + 1,
        std::isnan(result->loss) ? "nan"
        : result->loss > 0       ? "inf"
                                 : "-inf",
        options_.check_nan ? ""
                           : ". Run it with --check-nan to see the first operator that gave a value that is not finite",
        advice()));
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
  TrainStart start;
  start.program = info_.program;
  start.step = info_.step;
  start.until_step = until_step_;
  start.epoch = info_.next.epoch;
  start.batches_per_epoch = data_->batches();
  start.batch_size = data_->batch_size();
  start.samples = data_->samples();
  start.left_out = data_->left_out();
  start.seed = info_.seed;
  start.threads = options_.threads;
  start.resumed_from = last_checkpoint_;
  start.predicted_peak_bytes = executor_->memory().predicted_peak_bytes;
  reporter_.started(start);

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
