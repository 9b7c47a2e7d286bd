#include "platform/learner/event_files.h"

#include <cerrno>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/learner/event_file.h"

namespace tesser::platform {

Result<void> EventFiles::add(int learner, std::int64_t step, std::int64_t time, std::string_view name, double value) {
  const double seconds = static_cast<double>(time) / 1e6;
  std::string records;
  auto found = files_.find(learner);
  if (found == files_.end()) {
    const std::filesystem::path folder = directory_ / fmt::format("learner-{}", learner);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return tl::unexpected(file_error(folder, "create", error.value()));
    }
    // TensorBoard takes files with "tfevents" in their names, in the order of the number behind it.
    File file;
    file.path = folder / fmt::format("events.out.tfevents.{:010}.tesser", time / 1'000'000);
    file.stream.open(file.path, std::ios::binary | std::ios::trunc);
    if (!file.stream) {
      return tl::unexpected(file_error(file.path, "create", errno));
    }
    found = files_.emplace(learner, std::move(file)).first;
    append_tf_record(records, version_event_bytes(seconds));
  }
  append_tf_record(records, event_bytes({seconds, step, {{std::string(name), value}}}));
  if (!found->second.stream.write(records.data(), static_cast<std::streamsize>(records.size()))) {
    return tl::unexpected(file_error(found->second.path, "write", errno));
  }
  return {};
}

Result<void> EventFiles::flush() {
  for (auto& [learner, file] : files_) {
    if (!file.stream.flush()) {
      return tl::unexpected(file_error(file.path, "write", errno));
    }
  }
  return {};
}

}  // namespace tesser::platform
