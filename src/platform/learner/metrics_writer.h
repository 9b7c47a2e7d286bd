// Writes a learner's metrics (docs/formats/logs.md, metrics), each once however often its source is read, and the
// job's progress.
//
// One thread at a time per object, one object a file.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "platform/job/volume.h"
#include "platform/learner/metric_extractor.h"
#include "platform/learner/metrics_reader.h"

namespace tesser::platform {

// A line of the file.
struct MetricLine {
  std::int64_t step = 0;
  std::int64_t time = 0;
  std::string name;
  double value = 0;  // not a number: null
  std::string source;
  std::uint64_t position = 0;
};
void append_metric_line(std::string& to, const MetricLine& line);
// Without its line feed; none when it is none.
std::optional<MetricLine> parse_metric_line(std::string_view line);

class MetricsWriter {
 public:
  // Makes the directory; cuts off what a dead writer left of a line. No more than `most_bytes` are kept.
  static Result<MetricsWriter> open(std::filesystem::path path, std::int64_t most_bytes);
  MetricsWriter(MetricsWriter&& other) noexcept;
  MetricsWriter& operator=(MetricsWriter&&) = delete;
  ~MetricsWriter();

  // How far a source has been read for the last metric that is in the file; 0: not at all.
  std::uint64_t position(const std::string& source) const;
  // The source begins anew, as a file that was written again.
  void restart(const std::string& source) { sources_[source] = {}; }
  // What was found in the record of a source that ends at `position`: positions of a source grow. `time` is that of
  // values without one of their own.
  void add(const std::string& source, std::uint64_t position, const FoundMetrics& found, std::int64_t time);
  Result<void> flush();
  Result<void> sync();
  // Whether metrics have been left out for want of room.
  bool is_full() const { return is_full_; }

 private:
  struct Source {
    std::uint64_t position = 0;
    std::size_t count = 0;  // metrics there, of this position
  };

  MetricsWriter() = default;

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t bytes_ = 0;
  std::uint64_t most_bytes_ = 0;
  bool is_full_ = false;
  std::string unwritten_;
  std::map<std::string, Source> sources_;
  std::map<std::string, std::int64_t> last_step_;  // by name
};

// progress.json, written once a second at most.
class ProgressWriter {
 public:
  ProgressWriter(const Volume& volume, int attempt);
  void saw(const FoundMetrics& found, std::int64_t time);
  // `now`: in any case.
  Result<void> write(bool now);

 private:
  std::filesystem::path path_;
  Progress progress_;
  std::deque<std::pair<std::int64_t, std::int64_t>> seen_;  // time and step, a second apart: the speed of late
  std::int64_t written_ = 0;                                // time
  bool has_changed_ = false;
};

}  // namespace tesser::platform
