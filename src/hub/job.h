// One job at one hub: a device of its own, so that no other tenant's memory is ever shown to its workers, its cores'
// threads, and a thread that takes workers in and notices their loss (docs/hub.md).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "hub/job_core.h"
#include "hub/messages.h"
#include "hub/norm_group.h"
#include "hub/racks.h"

namespace tesser::hub {

// Where a hub runs a job.
struct JobPlace {
  std::string host = "127.0.0.1";               // to listen at, on a port that the system chooses
  std::vector<int> processors;                  // one for each core of the hub; -1: wherever the system puts it
  std::string adapters;                         // as UCX_NET_DEVICES; empty: those named there, else all
  std::shared_ptr<RateLimit> rate_limit;        // null: none
  std::string token;                            // of the hubs of other racks
  std::shared_ptr<NormGroup> norm_group;        // of settings.norm_group; null without
  bool through_network = false;                 // never shared memory, for tests
  bool huge_pages = true;                       // where the system has them
  std::function<void(const std::string&)> log;  // of events, a line each; any thread
  bool has_other_jobs = false;                  // which run on the same processors
  std::chrono::milliseconds patience{60'000};   // for a job that gathers and has nobody
  // Whether a hub at this address may be connected to; a request has named it.
  std::function<Result<void>(const std::string&)> check_hub;
};

// Figures for metrics.
struct JobFigures {
  std::string job;
  std::string state;
  std::int64_t workers = 0;  // connected
  std::uint64_t memory_bytes = 0;
  std::uint64_t updates = 0;
  std::uint64_t gradient_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t rack_bytes = 0;
  std::uint64_t refused = 0;  // requests
};

// Functions may be called from any thread.
class Job {
 public:
  // For the first worker's request. Blocks for system calls. kInvalidInput for settings that cannot be.
  static Result<std::unique_ptr<Job>> open(const JobPlace& place, const JoinRequest& first);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Bytes of memory that a job with these settings takes at a hub, besides `inboxes` inboxes.
  static Result<std::uint64_t> memory_bytes(const JobSettings& settings, const std::vector<std::int64_t>& cores);

  const std::string& name() const { return name_; }
  const std::string& nonce() const { return nonce_; }
  bool has_nonce(const std::string& nonce) const;

  // Each refuses with kInvalidInput in words for the worker's user.
  Result<JoinAnswer> join(const JoinRequest& request);
  Result<ConnectedAnswer> connected(const WorkerRequest& request);
  Result<StartAnswer> start(const WorkerRequest& request);
  Result<void> leave(const WorkerRequest& request);
  // With several racks: what their hubs ask, and optimizer state for a worker that will read it.
  Result<RackAnswer> introduce(const RackRequest& request);
  void take_rack_weights();
  Result<void> fetch_state();

  JobStatus status() const;
  bool is_over() const;  // failed or ended
  // Of a job that is over. What its workers may still ask for stays.
  void end_threads();
  JobFigures figures() const;
  // A table for people of what each core owns.
  std::string mapping() const;

 private:
  enum class WorkerState : std::uint8_t { kAbsent, kJoined, kConnected, kStarted, kRunning, kLost, kLeft };
  enum class State : std::uint8_t { kGathering, kRunning, kFailed, kEnded };
  struct Worker {
    WorkerState state = WorkerState::kAbsent;
    bool is_return = false;
    std::int64_t commits = 0;  // when it was lost
    bool shares_weights = false;
    JoinRequest request;
    std::shared_ptr<WorkerEnd> end;
    std::vector<Link> links;  // of each core, until they are attached
  };
  struct Loss {
    const WorkerEnd* worker = nullptr;  // may be of one that has been replaced: only compared
    std::int64_t rank = 0;
    std::string reason;
  };

  Job(JobPlace place, const JoinRequest& first, ChunkMap map);
  Result<void> prepare(const JoinRequest& first);
  Result<void> connect_first_hub(const JoinRequest& first);
  bool take_hub(const std::shared_ptr<transport::Channel>& channel);
  void run_control();
  void take_channel(std::shared_ptr<transport::Channel> channel);
  Result<void> connect_worker(Worker& worker, const std::shared_ptr<transport::Channel>& channel);
  void take_losses();
  void lose(std::int64_t rank, const std::string& reason);
  void look_for_racks();
  void look_whether_anybody_is_there();
  Result<void> begin();
  Result<void> attach(Worker& worker);
  Result<void> give_all_weights(Worker& worker);
  void fail(const std::string& reason);  // under the lock
  void leave_norm_group();               // once the job is over; under the lock
  Result<Worker*> worker_of(std::int64_t rank);
  Worker& worker_at(std::int64_t rank) { return workers_[static_cast<std::size_t>(rank - context_.first_rank)]; }
  std::string who(std::int64_t rank) const;
  std::string missing() const;
  void log(const std::string& line) const;

  const JobPlace place_;
  const std::string name_;
  const std::string nonce_;
  JobContext context_;
  std::unique_ptr<transport::Device> device_;
  std::vector<std::shared_ptr<transport::Channel>> hub_channels_;  // to other hubs, kept as long as the job
  std::shared_ptr<const transport::RemoteRegion> home_;
  std::vector<std::int64_t> cores_of_hubs_;
  std::vector<std::unique_ptr<JobCore>> cores_;
  std::vector<std::thread> core_threads_;
  std::thread control_thread_;
  std::atomic<bool> stops_{false};

  mutable std::mutex mutex_;  // what follows
  State state_ = State::kGathering;
  std::string reason_;
  std::vector<Worker> workers_;  // by rank, from the rack's first
  bool has_rack_weights_ = false;
  std::uint64_t refused_ = 0;
  bool is_in_norm_group_ = false;

  mutable std::mutex racks_mutex_;
  std::unique_ptr<Racks> racks_;  // null with one rack

  // Of the control thread, while the job gathers.
  std::chrono::steady_clock::time_point alone_since_ = std::chrono::steady_clock::now();

  std::mutex loss_mutex_;
  std::deque<Loss> losses_;
  std::string broken_;
};

}  // namespace tesser::hub
