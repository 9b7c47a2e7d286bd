// Groups of processes, each with a share of the processors, as if on machines of their own (control groups of Linux,
// version 1 or 2).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::bench {

class ProcessorShares {
 public:
  // Needs root, and a controller for processors that nobody else has taken. The groups together go before other
  // processes of the machine.
  static Result<ProcessorShares> open();
  ProcessorShares(ProcessorShares&& other) noexcept;
  ProcessorShares& operator=(ProcessorShares&&) = delete;
  ~ProcessorShares();  // removes the groups, whose processes must have ended

  // A group whose processes have `weight` of what all groups' weights add up to, when processors are scarce; 1 to 1000.
  Result<void> add(const std::string& group, int weight);
  // From the process itself, before it starts threads.
  Result<void> enter(const std::string& group) const;

 private:
  explicit ProcessorShares(std::filesystem::path folder, bool is_first)
      : folder_(std::move(folder)), is_first_(is_first) {}

  std::filesystem::path folder_;
  bool is_first_ = false;  // version 1
  std::vector<std::string> groups_;
};

}  // namespace tesser::bench
