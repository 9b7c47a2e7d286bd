// Takes every job from where it stands to where it is wanted: gives and takes places, starts guardians and looks after
// them, halts and deletes jobs that have none. It remembers nothing that the store and the process table do not know,
// so that a server that starts anew goes on where the last one ended. It hears every change of the store and looks at
// what has changed alone; at everything that has a guardian, a few times a second. Internal to this folder.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "platform/engine/engine.h"
#include "platform/server/engine_worker.h"
#include "platform/server/guardian_process.h"
#include "platform/server/job_bells.h"
#include "platform/server/live_jobs.h"
#include "platform/server/placing.h"
#include "platform/store/store.h"

namespace tesser::platform {

struct DispatcherOptions {
  std::filesystem::path data;  // jobs/ and trash/ are here
  std::string url;             // of the server, for guardians
  std::filesystem::path engine_settings;
  std::filesystem::path authorities;  // whom guardians trust to be the server; empty: plain HTTP
  bool system_places = false;         // the engine's system chooses the nodes
  PlacementSettings placement;
  std::filesystem::path tesser;  // the program
  std::chrono::milliseconds lease_time{5000};
  std::function<void(const std::string&)> log;
};

// Any thread, but for what is private.
class Dispatcher {
 public:
  Dispatcher(DispatcherOptions options, Store& store, JobBells& bells, std::unique_ptr<Engine> engine);
  ~Dispatcher();  // guardians live on

  // Quotas, or the nodes that are being emptied, are others.
  void cluster_has_changed();
  // The job's guardian has been heard.
  void hear(const std::string& job);

  EngineView engine() const { return engine_->view(); }
  bool system_places() const { return options_.system_places; }
  // As of a moment ago.
  std::optional<WaitingPlaceInQueue> waiting(const std::string& job) const;
  // All who wait, by their place; of these teams alone.
  std::vector<std::string> queue(const std::function<bool(const std::string& team)>& of) const;
  std::int64_t guardians() const { return guardian_count_; }
  std::int64_t guardian_starts() const { return guardian_starts_; }

 private:
  using Clock = std::chrono::steady_clock;

  // What this process knows of a job beside the store.
  struct Watched {
    std::optional<GuardianProcess> process;
    Clock::time_point started{};
    int failures = 0;  // of its guardians, one after the other
    Clock::time_point next_start{};
    bool is_at_host = false;         // the engine's system has been asked for its guardian
    bool engine_is_at_work = false;  // on a task for this job
    bool is_killed = false;

    // How its guardian's process has ended, once; none while it lives, or when there is none.
    std::optional<std::string> take_ended();
  };

  void run();
  void wake();
  bool load();
  void step();
  std::set<std::string> take_news();
  void see_to(const std::string& id);
  void see_to_job(const JobRecord& job);
  void see_to_guardian(const JobRecord& job, Watched& watched);
  void see_to_hosted_guardian(const JobRecord& job, Watched& watched);
  void start_guardian(const JobRecord& job, Watched& watched);
  void note_failure(const JobRecord& job, Watched& watched, const std::string& how);
  void give_up(const JobRecord& job, Watched& watched);
  void remove(const JobRecord& job, Watched& watched);
  bool may_forget(const std::string& id, Watched& watched, const JobRecord* live);
  void place();
  bool reload_cluster();
  Clock::duration time_to_sleep() const;
  void log_store_error(const Error& error);
  void change(const JobRecord& job, JobState state, const std::string& code, const std::string& reason);
  // On the engine's thread; what it returns is run on this object's.
  void ask_engine(const std::string& job, std::function<std::function<void()>(Engine&)> act);
  std::vector<std::string> guardian_command(const std::string& job) const;
  std::filesystem::path volume_of(const std::string& job) const { return options_.data / "jobs" / job; }
  Clock::time_point heard(const std::string& job) const;

  const DispatcherOptions options_;
  Store& store_;
  JobBells& bells_;
  const bool has_host_;
  const int wake_;  // an eventfd
  std::atomic<bool> stops_{false};

  // Of run()'s thread.
  std::map<std::string, Watched> watched_;
  LiveJobs jobs_;
  bool is_loaded_ = false;
  std::set<std::string> ended_;  // jobs whose guardian's process has ended
  Clock::time_point next_look_at_all_{};
  std::map<std::string, Resources> quotas_;
  std::set<std::string> draining_;
  bool wants_placing_ = true;                                       // something has changed since the last time
  bool wants_explaining_ = false;                                   // why jobs wait
  Clock::time_point next_explanation_{};                            // not earlier
  Clock::time_point renew_explanation_ = Clock::time_point::max();  // also without a change
  std::string store_error_;
  std::string placing_trouble_;

  std::atomic<bool> cluster_has_changed_{true};
  std::atomic<bool> nodes_have_changed_{true};
  mutable std::mutex mutex_;
  std::vector<JobChange> news_;  // of the store
  std::map<std::string, Clock::time_point> heard_;
  std::unordered_map<std::string, WaitingPlaceInQueue> waiting_;
  std::vector<QueuedJob> queue_;
  std::vector<std::pair<std::string, std::function<void()>>> done_;  // by the engine's thread, of a job
  std::atomic<std::int64_t> guardian_count_{0};
  std::atomic<std::int64_t> guardian_starts_{0};

  std::unique_ptr<EngineWorker> engine_;
  std::thread thread_;
};

}  // namespace tesser::platform
