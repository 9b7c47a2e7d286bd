#include "hub/processor_shares.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <unistd.h>

namespace tesser::bench {
namespace {

constexpr const char* kFirst = "/sys/fs/cgroup/cpu";
constexpr const char* kSecond = "/sys/fs/cgroup";
constexpr int kMostWeight = 1000;
constexpr int kSharesOfOne = 256;  // of version 1, which has 2 to 262144

Result<void> write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file.good()) {
    return failed("cannot write " + text + " to " + path.string() + ": " + std::strerror(errno));
  }
  return {};
}

Result<void> make(const std::filesystem::path& folder, bool is_first, int weight) {
  std::error_code error;
  if (!std::filesystem::create_directory(folder, error)) {
    return failed("cannot make the group " + folder.string() + ": " + error.message());
  }
  return is_first ? write(folder / "cpu.shares", std::to_string(weight * kSharesOfOne))
                  : write(folder / "cpu.weight", std::to_string(weight));
}

}  // namespace

Result<ProcessorShares> ProcessorShares::open() {
  const bool is_first = std::filesystem::exists(std::filesystem::path(kFirst) / "cpu.shares");
  const std::filesystem::path root = is_first ? kFirst : kSecond;
  if (!is_first) {
    TESSER_RETURN_IF_ERROR(write(root / "cgroup.subtree_control", "+cpu"));
  }
  ProcessorShares shares(root / ("bench-" + std::to_string(::getpid())), is_first);
  TESSER_RETURN_IF_ERROR(make(shares.folder_, is_first, kMostWeight));
  if (!is_first) {
    TESSER_RETURN_IF_ERROR(write(shares.folder_ / "cgroup.subtree_control", "+cpu"));
  }
  return shares;
}

ProcessorShares::ProcessorShares(ProcessorShares&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), is_first_(other.is_first_), groups_(std::move(other.groups_)) {}

ProcessorShares::~ProcessorShares() {
  if (folder_.empty()) {
    return;
  }
  std::error_code error;
  for (const std::string& group : groups_) {
    std::filesystem::remove(folder_ / group, error);
  }
  std::filesystem::remove(folder_, error);
}

Result<void> ProcessorShares::add(const std::string& group, int weight) {
  TESSER_RETURN_IF_ERROR(make(folder_ / group, is_first_, weight));
  groups_.push_back(group);
  return {};
}

Result<void> ProcessorShares::enter(const std::string& group) const {
  return write(folder_ / group / "cgroup.procs", std::to_string(::getpid()));
}

}  // namespace tesser::bench
