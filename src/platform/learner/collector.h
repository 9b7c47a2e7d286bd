// Brings the output of a learner's command into its log, and metrics out of it (docs/formats/logs.md).
//
// Everything that a collector must remember is in the files it writes: one that was killed at any moment is replaced
// by another, and each line and metric is there once. One thread at a time per object.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/manifest.h"
#include "platform/job/volume.h"
#include "platform/learner/log_segments.h"
#include "platform/learner/metric_files.h"
#include "platform/learner/metrics_writer.h"

namespace tesser::platform {

struct CollectorOptions {
  Volume volume;
  int rank = 0;
  int attempt = 0;  // whose command runs now; raw output of earlier ones is known to be complete
  std::int64_t log_bytes = 0;
  std::vector<MetricExtractor> metrics;
};
// As the manifest says; a tesser program without extractors has its own events.
CollectorOptions collector_options(const Volume& volume, const Manifest& manifest, int rank, int attempt);

class Collector {
 public:
  // kNotFound while another collector has the log.
  static Result<Collector> open(CollectorOptions options);
  Collector(Collector&&) noexcept;
  Collector& operator=(Collector&&) = delete;
  ~Collector();

  // Takes what there is; `at_end`: the command has ended. True when it took something. An error (a full disk) loses
  // nothing: the next call goes on.
  Result<bool> collect(bool at_end);
  // After collect(true) took nothing more: makes log and metrics durable, and gives back the raw output.
  Result<void> finish();

  std::uint64_t lines() const { return writer_.next_sequence() - 1; }

 private:
  struct FoundLine {
    std::uint64_t sequence = 0;
    std::int64_t time = 0;
    std::string text;
  };
  struct LogExtractor {
    std::string source;
    std::unique_ptr<LineExtractor> extractor;
  };

  Collector(CollectorOptions options, LogWriter writer, MetricsWriter metrics);
  Result<void> begin();
  Result<void> find_again();
  Result<bool> drain(int attempt, bool at_end);
  Result<void> open_raw(int attempt);
  void close_raw();
  void pass_over(std::uint64_t size, std::uint64_t& consumed);
  void give_back(std::uint64_t consumed);
  Result<void> write();
  void extract(const FoundLine& line);
  std::vector<int> raw_attempts() const;

  CollectorOptions options_;
  LogWriter writer_;
  MetricsWriter metrics_;
  std::unique_ptr<ProgressWriter> progress_;  // of rank 0
  std::unique_ptr<MetricFiles> files_;
  std::vector<LogExtractor> extractors_;
  std::vector<FoundLine> found_;  // lines not looked at yet: they are when they are in the log
  std::string chunk_;
  int raw_ = -1;
  int raw_attempt_ = 0;
  std::uint64_t seen_size_ = 0;   // of the raw output, when all of it that makes lines was taken
  std::uint64_t given_back_ = 0;  // bytes of it that are a hole now
  bool can_give_back_ = true;
  std::int64_t files_read_ = 0;  // time
  bool said_full_ = false;
};

// Brings what a dead learner's command has written into the log: what a guardian does before a job's last state shows.
// Waits up to `patience` for a collector that still lives. The number of the last line.
Result<std::uint64_t> collect_remaining(const Volume& volume, const Manifest& manifest, int rank,
                                        std::chrono::milliseconds patience);

}  // namespace tesser::platform
