#include "runtime/memory_limit.h"

#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

namespace tesser::runtime {
namespace {

namespace fs = std::filesystem;

// The kernel's files, which do not say how large they are.
std::string read_all(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Lowers the limit to the one in `file`, where that is a number.
void consider(const fs::path& file, MemoryLimit& limit) {
  const std::string text = read_all(file);
  std::int64_t bytes = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), bytes).ec == std::errc() && bytes > 0 &&
      bytes < limit.bytes) {
    limit = {bytes, "memory limit of its control group, " + file.string()};
  }
}

// The group and those that it is in. Inside a container the path may be another than the one that is mounted.
void consider_groups(const fs::path& mount, const std::string& group, const std::string& file, MemoryLimit& limit) {
  for (fs::path path = fs::path(group).relative_path(); !path.empty(); path = path.parent_path()) {
    consider(mount / path / file, limit);
  }
  consider(mount / file, limit);
}

std::string mebibytes(std::int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

MemoryLimit memory_limit(const fs::path& groups, const fs::path& root) {
  MemoryLimit limit{std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE), "memory of this machine"};
  std::istringstream lines(read_all(groups));
  // "NUMBER:CONTROLLERS:PATH", of version 2 "0::PATH".
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") {
      consider_groups(root, line.substr(second + 1), "memory.max", limit);
    } else if (controllers.find(",memory,") != std::string::npos) {
      consider_groups(root / "memory", line.substr(second + 1), "memory.limit_in_bytes", limit);
    }
  }
  return limit;
}

Result<void> check_memory(std::int64_t bytes, const MemoryLimit& limit) {
  if (bytes <= limit.bytes) {
    return {};
  }
  return failed(fmt::format(
      "a step needs {} of memory for its tensors, as foreseen, and this process has {} ({}); train it on more workers "
      "(--workers), with a smaller batch, or give it more memory",
      mebibytes(bytes), mebibytes(limit.bytes), limit.what));
}

}  // namespace tesser::runtime
