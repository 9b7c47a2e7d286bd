// Clipping by one norm across jobs of a hub that have the parts of one model: once every job has given the squares of
// its part of a step, all are told the total. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::hub {

class NormGroup {
 public:
  explicit NormGroup(std::size_t jobs) : members_(jobs) {}

  // As job `number` of the group, until leave(). `publish` is given the total of each step, `broken` is told when a job
  // has left whose squares are needed; both on the thread of any job, quick. kInvalidInput where another job has the
  // number, or the group has another size.
  Result<void> join(std::size_t number, std::size_t jobs, std::function<void(double)> publish,
                    std::function<void(const std::string&)> broken);
  void leave(std::size_t number);
  // The squares of a step, once the total of the step before has been published.
  void give(std::size_t number, double squares);

 private:
  struct Member {
    std::function<void(double)> publish;  // empty: not there
    std::function<void(const std::string&)> broken;
    std::optional<double> squares;
    bool has_left = false;
  };

  std::mutex mutex_;  // what follows
  std::vector<Member> members_;
};

}  // namespace tesser::hub
