#include "runtime/training_run.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "graph/read.h"
#include "runtime/data_order.h"
#include "runtime/element.h"

namespace tesser::runtime {
namespace {

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

// Refuses to continue what would not be the same run.
Result<void> check_resumed(const TrainOptions& options, const TrainingRun& run) {
  const CheckpointInfo& found = run.resumed->info();
  const std::string where = run.resumed->path().string();
  if (found.program_checksum != run.info.program_checksum) {
    return invalid_input(
        fmt::format("{}: was written by another program ('{}', checksum {}), {} has checksum {}; to train a changed "
                    "program give another "
                    "--checkpoint directory",
                    where, found.program, found.program_checksum, options.program.string(), run.info.program_checksum));
  }
  if (found.data_fingerprint != run.info.data_fingerprint) {
    return invalid_input(fmt::format(
        "{}: was written with other data (fingerprint {}) than {} ({}); a run resumes with the data it began with",
        where, found.data_fingerprint, options.data.string(), run.info.data_fingerprint));
  }
  if (options.seed && *options.seed != found.seed) {
    return invalid_input(fmt::format("{}: was written with seed {}, not {}; leave --seed out to go on with it", where,
                                     found.seed, *options.seed));
  }
  if (!options.shuffle && found.shuffle) {
    return invalid_input(
        fmt::format("{}: was written by a run that shuffles its data; leave --no-shuffle out to go on with it", where));
  }
  if (found.step < run.info.step || found.next.batch >= run.data.batches()) {
    return invalid_input(
        fmt::format("{}: stands at step {}, batch {} of its epoch, which this program and data do not have", where,
                    found.step, found.next.batch));
  }
  return {};
}

}  // namespace

Result<TrainingRun> open_run(const TrainOptions& options) {
  TESSER_RETURN_IF_ERROR(check_options(options));
  std::error_code error;
  if (std::filesystem::is_regular_file(options.program, error)) {
    return invalid_input(
        fmt::format("{}: is a file, expected a program directory NAME.tesser", options.program.string()));
  }
  TESSER_ASSIGN_OR_RETURN(graph::Program program, graph::read_program(options.program));
  if (program.kind != graph::Kind::kStep) {
    return invalid_input(
        fmt::format("{}: is a forward program; only a training step can be trained", options.program.string()));
  }
  TESSER_ASSIGN_OR_RETURN(DataSet data, DataSet::open(options.data, batch_values(program)));
  TrainingRun run{std::move(program), std::move(data), {}, 0, std::nullopt, std::nullopt, options.replicas};
  if (run.data.batches() < run.replicas) {
    return invalid_input(
        fmt::format("{}: has {} full batches of {} samples, fewer than the {} replicas, each of which takes a batch in "
                    "every step",
                    options.data.string(), run.data.batches(), run.data.batch_size(), run.replicas));
  }
  run.info.program = run.program.name;
  TESSER_ASSIGN_OR_RETURN(run.info.program_checksum, program_checksum(options.program / "program.json"));
  run.info.step = run.program.first_step;
  run.info.seed = options.seed.value_or(0);
  run.info.shuffle = options.shuffle;
  run.info.data_fingerprint = run.data.fingerprint();
  std::int64_t length = options.steps.value_or(0);
  if (!options.steps && __builtin_mul_overflow(options.epochs.value_or(1), run.steps_per_epoch(), &length)) {
    return invalid_input(fmt::format("{} epochs are more steps than can be counted", *options.epochs));
  }
  if (__builtin_add_overflow(run.program.first_step, length, &run.until_step)) {
    return invalid_input(fmt::format("{} steps are more than can be counted", length));
  }
  for (const graph::Schedule& schedule : run.program.schedules) {
    if (const auto end = schedule.ends_at(); end.has_value() && run.until_step > *end) {
      return invalid_input(fmt::format(
          "the learning-rate schedule has rates for {} steps (OneCycleLR ends, as in PyTorch), and this run ends with "
          "step {}; train {} steps, or capture the program with a longer schedule",
          *end, run.until_step, std::max<std::int64_t>(0, *end - run.program.first_step)));
    }
  }
  return run;
}

Result<void> open_checkpoints(const TrainOptions& options, TrainReporter& reporter, TrainingRun& run) {
  if (!options.checkpoint) {
    return {};
  }
  TESSER_ASSIGN_OR_RETURN(run.lock, CheckpointLock::acquire(*options.checkpoint));
  if (options.resume) {
    std::vector<std::string> notes;
    Result<std::optional<Checkpoint>> resumed = open_for_resume(*run.lock, notes);
    for (const std::string& note : notes) {
      reporter.note(note);
    }
    if (!resumed) {
      return tl::unexpected<Error>(resumed.error());
    }
    run.resumed = std::move(*resumed);
    if (run.resumed) {
      TESSER_RETURN_IF_ERROR(check_resumed(options, run));
      run.info = run.resumed->info();
      // It may have been written by fewer replicas.
      run.info.next = with_batches(run.info.next, run.data, run.replicas);
    } else {
      reporter.note(fmt::format("{} holds no complete checkpoint; the run begins at its beginning",
                                options.checkpoint->string()));
    }
  } else {
    TESSER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, checkpoint_entries(*options.checkpoint));
    for (const CheckpointEntry& entry : entries) {
      if (entry.suffix.empty()) {
        return invalid_input(
            fmt::format("{}: holds the checkpoints of an earlier run ({}); add --resume to go on with it, or give "
                        "another directory",
                        options.checkpoint->string(), entry.path.filename().string()));
      }
    }
  }
  return {};
}

std::int64_t initial_state_bytes(const std::filesystem::path& program) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(program / "state.safetensors", error);
  return error ? 0 : static_cast<std::int64_t>(bytes);
}

DataPosition position_after(const TrainingRun& run, std::int64_t steps) {
  const std::int64_t left = (run.data.batches() - run.info.next.batch) / run.replicas;  // in the first epoch
  if (steps < left) {
    return {run.info.next.epoch, run.info.next.batch + steps * run.replicas};
  }
  const std::int64_t after = steps - left;
  return {run.info.next.epoch + 1 + after / run.steps_per_epoch(), after % run.steps_per_epoch() * run.replicas};
}

TrainStart training_start(const TrainOptions& options, const TrainingRun& run) {
  TrainStart start;
  start.program = run.info.program;
  start.step = run.info.step;
  start.until_step = run.until_step;
  start.epoch = run.info.next.epoch;
  start.batches_per_epoch = run.steps_per_epoch();
  start.batch_size = run.data.batch_size() * run.replicas;
  start.samples = run.data.samples();
  start.left_out = start.samples - start.batches_per_epoch * start.batch_size;
  start.replicas = run.replicas;
  start.seed = run.info.seed;
  start.threads = options.threads;
  return start;
}

Result<void> check_batch(const DataSet& data, const std::filesystem::path& path, const CheckpointInfo& info,
                         DataPosition position) {
  const auto batch_size = static_cast<std::size_t>(data.batch_size());
  const auto first = static_cast<std::size_t>(position.batch) * batch_size;
  std::vector<std::uint32_t> samples(batch_size);
  if (info.shuffle) {
    const std::vector<std::uint32_t> order = shuffled_order(info.seed, position.epoch, data.samples());
    std::copy_n(order.begin() + static_cast<std::ptrdiff_t>(first), batch_size, samples.begin());
  } else {
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(first));
  }
  std::vector<std::byte> memory;
  for (std::size_t i = 0; i < data.values().size(); ++i) {
    const BatchValue& value = data.values()[i];
    if (!is_floating(value.dtype)) {
      continue;
    }
    const auto elements = static_cast<std::size_t>(element_count(value.shape));
    memory.resize(elements * element_size(value.dtype));
    data.gather(i, samples, memory.data());
    for (std::size_t k = 0; k < elements; ++k) {
      if (std::isnan(element_as_double(value.dtype, memory.data(), k))) {
        return failed(fmt::format("sample {} (from 0) of batch value '{}' in {} holds NaN",
                                  samples[k / (elements / batch_size)], value.name, path.string()));
      }
    }
  }
  return {};
}

std::string non_finite_loss(std::int64_t step, std::int64_t epoch, double loss, bool check_nan) {
  return fmt::format("step {} (epoch {}): the loss is {}; the run stops here{}", step, epoch + 1,
                     std::isnan(loss) ? "nan"
                     : loss > 0       ? "inf"
                                      : "-inf",
                     check_nan ? ""
                               : ". Run it with --check-nan to see the first operator that gave a value that is not "
                                 "finite");
}

}  // namespace tesser::runtime
