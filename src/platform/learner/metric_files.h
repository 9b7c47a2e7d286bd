// Follows the files in which a command writes metrics: lines of JSON, and TensorBoard's event files.
//
// One thread at a time per object. Memory is bounded whatever the files hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "platform/job/manifest.h"
#include "platform/learner/metrics_writer.h"

namespace tesser::platform {

class MetricFiles {
 public:
  // `roots`: where an extractor's path is looked for.
  explicit MetricFiles(std::vector<std::filesystem::path> roots) : roots_(std::move(roots)) {}

  // Extractor number `index` of the manifest, of type json with a path, or tensorboard.
  Result<void> add(int index, const MetricExtractor& extractor);
  bool is_empty() const { return extractors_.empty(); }

  // Reads what is new. `found` gets what was found besides, for progress. What people should know of files that cannot
  // be read, once a file.
  std::vector<std::string> read(MetricsWriter& writer,
                                const std::function<void(const FoundMetrics&, std::int64_t time)>& found);

 private:
  struct Extractor {
    int index = 0;
    std::filesystem::path path;
    std::unique_ptr<LineExtractor> lines;  // none: event files
  };
  struct File {
    std::uint64_t offset = 0;
    std::uint64_t number = 0;  // of its inode: a file that was written again is another
    bool is_bad = false;
  };

  void read_file(const Extractor& extractor, const std::filesystem::path& path, const std::string& name,
                 MetricsWriter& writer, const std::function<void(const FoundMetrics&, std::int64_t)>& found);

  std::vector<std::filesystem::path> roots_;
  std::vector<std::string> notes_;
  std::vector<Extractor> extractors_;
  std::map<std::string, File> files_;  // by source
};

}  // namespace tesser::platform
