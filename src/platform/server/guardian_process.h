// Guardians as processes of this machine: started in sessions of their own, so that they outlive the server, and found
// again by the next one. Internal to this folder.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

// One living process. Move-only; its end neither ends the process nor waits for it.
class GuardianProcess {
 public:
  // `tesser guardian` on this volume; what it says goes to guardian/log there.
  static Result<GuardianProcess> start(const std::vector<std::string>& command, const std::filesystem::path& volume);
  // All guardians of this machine with volumes in the directory, by the volume's name. There may be two of one volume
  // for a moment; of those only one has the journal.
  static std::vector<std::pair<std::string, GuardianProcess>> find(const std::filesystem::path& volumes);

  GuardianProcess(GuardianProcess&& other) noexcept
      : pid_(other.pid_), descriptor_(std::exchange(other.descriptor_, -1)) {}
  GuardianProcess& operator=(GuardianProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~GuardianProcess();

  pid_t pid() const { return pid_; }
  int descriptor() const { return descriptor_; }  // becomes readable when it has ended
  bool has_ended() const;
  void kill() const;  // SIGKILL
  // After it has ended: how, in words; takes the process's end from the system where it is this process's child.
  std::string outcome() const;

 private:
  GuardianProcess(pid_t pid, int descriptor) : pid_(pid), descriptor_(descriptor) {}

  pid_t pid_;
  int descriptor_;  // a pidfd: it never means another process with the same number
};

}  // namespace tesser::platform
