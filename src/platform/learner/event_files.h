// Metrics as TensorBoard's event files, one directory a learner, which TensorBoard reads while they grow.
//
// One thread per object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

#include "base/result.h"

namespace tesser::platform {

class EventFiles {
 public:
  // Makes `directory` when there is something to write; files of an earlier export of the same job are replaced.
  explicit EventFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

  // `time` in microseconds since 1970; `value` may be not a number.
  Result<void> add(int learner, std::int64_t step, std::int64_t time, std::string_view name, double value);
  // What was added is in the files when this returns.
  Result<void> flush();

 private:
  struct File {
    std::filesystem::path path;
    std::ofstream stream;
  };
  std::filesystem::path directory_;
  std::map<int, File> files_;
};

}  // namespace tesser::platform
