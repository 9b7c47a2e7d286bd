// The jobs that somebody has to see to, in memory, as the store's changes make them. Internal to this folder.
//
// One thread.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "platform/scheduler/scheduler.h"
#include "platform/store/store.h"

namespace tesser::platform {

// What the scheduler knows of a job. A job that has run waits from its submission on, so that it loses nothing when it
// is queued again; one that its owner had halted waits from the moment it was resumed.
JobRequest request_of(const JobRecord& job);

class LiveJobs {
 public:
  using Queue = std::map<QueueOrder, const JobRecord*>;

  explicit LiveJobs(Seconds aging) : aging_(aging) {}

  // Whether that gives or takes places, or makes somebody wait for them.
  bool hear(const JobChange& change);

  // Null when it is over, or not there.
  const JobRecord* find(const std::string& id) const;
  // Those with a guardian, and those that are to be halted or deleted.
  const std::map<std::string, const JobRecord*>& active() const { return active_; }
  // Those that wait for places and are wanted to run, all, and each team's.
  const Queue& queue() const { return queue_; }
  const std::map<std::string, Queue>& team_queues() const { return team_queues_; }

 private:
  void enter(const JobRecord& job);
  void leave(const JobRecord& job);

  const Seconds aging_;
  std::unordered_map<std::string, JobRecord> jobs_;
  std::map<std::string, const JobRecord*> active_;
  Queue queue_;
  std::map<std::string, Queue> team_queues_;
};

}  // namespace tesser::platform
