// What a learner says of the machine it runs on, and what it takes there for its command.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "platform/job/volume.h"
#include "platform/learner/markers.h"

namespace tesser::platform {

// Node (TESSER_NODE, SLURMD_NODENAME, or the host's name), host, network, process and addresses of this process.
LearnerUp this_host();

// A TCP port that nobody else gets while this object lives; move-only. It lies outside the range from which the system
// takes ports for connections, so that it is most likely still free a moment later.
class ReservedPort {
 public:
  static Result<ReservedPort> take();
  ReservedPort(ReservedPort&& other) noexcept;
  ReservedPort& operator=(ReservedPort&& other) noexcept;
  ~ReservedPort();
  int number() const { return number_; }

 private:
  ReservedPort(int socket, int number) : socket_(socket), number_(number) {}
  int socket_ = -1;
  int number_ = 0;
};

// The secret of a tesser program's run, which rank 0 makes for each attempt.
std::filesystem::path run_token_path(const Volume& volume, int attempt);
// Writes a file that its owner alone may read (0600), complete or not at all.
Result<void> write_secret(const std::filesystem::path& path, const std::string& secret);

}  // namespace tesser::platform
