// Where the files of a job lie (docs/platform.md, a job's volume). Paths only: nothing here touches the disk.
//
// Values; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace tesser::platform {

class Volume {
 public:
  explicit Volume(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }

  std::filesystem::path manifest() const { return root_ / "manifest.yaml"; }
  std::filesystem::path job() const { return root_ / "job.json"; }
  std::filesystem::path secrets() const { return root_ / "secrets.json"; }
  std::filesystem::path token() const { return root_ / "token"; }
  std::filesystem::path code() const { return root_ / "code"; }
  std::filesystem::path data() const { return root_ / "data"; }
  std::filesystem::path checkpoints() const { return root_ / "checkpoints"; }
  std::filesystem::path results() const { return root_ / "results"; }
  std::filesystem::path state() const { return root_ / "state"; }
  std::filesystem::path progress() const { return all_metrics() / "progress.json"; }
  // Of the secrets those that the command's environment names; learners read it.
  std::filesystem::path learner_secrets() const { return root_ / "learner-secrets.json"; }

  std::filesystem::path guardian() const { return root_ / "guardian"; }
  std::filesystem::path journal() const { return guardian() / "journal.jsonl"; }
  std::filesystem::path guardian_log() const { return guardian() / "log"; }

  // Attempts count from 1, ranks from 0.
  std::filesystem::path attempts() const { return root_ / "attempts"; }
  std::filesystem::path attempt(int number) const { return attempts() / std::to_string(number); }
  std::filesystem::path deployment(int attempt_number) const { return attempt(attempt_number) / "deployment.json"; }
  std::filesystem::path go(int attempt_number) const { return attempt(attempt_number) / "go.json"; }
  std::filesystem::path stop(int attempt_number) const { return attempt(attempt_number) / "stop"; }
  std::filesystem::path learner_up(int attempt_number, int rank) const {
    return attempt(attempt_number) / ("learner-" + std::to_string(rank) + ".json");
  }
  std::filesystem::path learner_exit(int attempt_number, int rank) const {
    return attempt(attempt_number) / ("exit-" + std::to_string(rank) + ".json");
  }
  // What the learner process itself says, for people who look for the reason of a failure; appended.
  std::filesystem::path learner_output(int attempt_number, int rank) const {
    return attempt(attempt_number) / ("learner-" + std::to_string(rank) + ".log");
  }

  std::filesystem::path logs() const { return root_ / "logs"; }
  std::filesystem::path log(int rank) const { return logs() / std::to_string(rank); }
  // The command's own output, standard output and standard error together.
  std::filesystem::path raw_log(int rank, int attempt_number) const {
    return log(rank) / ("raw-" + std::to_string(attempt_number));
  }
  // LOG_DIR of the command.
  std::filesystem::path log_files(int rank) const { return log(rank) / "files"; }
  std::filesystem::path all_metrics() const { return root_ / "metrics"; }
  std::filesystem::path metrics(int rank) const { return all_metrics() / (std::to_string(rank) + ".jsonl"); }

 private:
  std::filesystem::path root_;
};

}  // namespace tesser::platform
