// Control groups of learners, where this process may make some: limits of processors and memory, and the end of all
// processes in one. Version 1, version 2 and both together. Internal to this folder.
//
// One thread at a time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "platform/job/resources.h"

namespace tesser::platform {

class LocalCgroups {
 public:
  // `name` is that of the groups' parent; engines with the same one see the same groups.
  explicit LocalCgroups(const std::string& name);

  // The files to write "0" to, to enter the groups of a learner, which are made if they are not there. Empty where none
  // can be made.
  std::vector<std::filesystem::path> make(const std::string& job, int attempt, int rank, const Resources& limits);
  // Ends every process in the groups of one attempt, or of all, and removes the groups.
  Result<void> end(const std::string& job, std::optional<int> attempt);
  // Whether the system has ended a process of this learner because it used too much memory.
  bool ran_out_of_memory(const std::string& job, int attempt, int rank) const;

  // What learners are not limited in and why, for people; empty when all limits can be had.
  const std::string& missing() const { return missing_; }

 private:
  struct Hierarchy {
    std::filesystem::path parent;  // goes when nothing is in it, and comes when something is
    bool is_version_2 = false;
    bool limits_processors = false;
    bool limits_memory = false;
  };
  std::vector<Hierarchy> hierarchies_;
  std::string missing_;
};

}  // namespace tesser::platform
