// Threads that watch for a guardian and ring its bell: the engine, the markers of an attempt, the fetching of data.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "platform/engine/engine.h"
#include "platform/guardian/bell.h"

namespace tesser::platform {

// Asks the engine about the job's learners whenever something may have changed.
class EngineWatch {
 public:
  struct Seen {
    std::chrono::steady_clock::time_point asked;  // what is older than this is in it
    std::vector<LearnerStatus> learners;
  };

  EngineWatch(std::unique_ptr<Engine> engine, std::string job, std::string team, std::shared_ptr<Bell> bell,
              std::function<void(const std::string&)> log);
  // Its thread may still wait for the engine then, and ends by itself: nobody waits for that.
  ~EngineWatch();

  // The last answer; none before the first. While the engine is out of reach it stays what it was.
  std::optional<Seen> seen() const;

 private:
  struct State {
    std::unique_ptr<Engine> engine;
    std::string job;
    std::string team;
    std::shared_ptr<Bell> bell;
    std::function<void(const std::string&)> log;
    std::mutex mutex;
    std::optional<Seen> seen;
    std::atomic<bool> is_ending = false;
  };
  static void watch(State& state);

  const std::shared_ptr<State> state_;
};

// Rings when a file appears in a directory; on a file system that others write to as well, also every `poll`, since the
// system says nothing of their files.
class MarkerWatch {
 public:
  MarkerWatch(std::filesystem::path directory, std::chrono::milliseconds poll, Bell& bell);
  ~MarkerWatch();

 private:
  void watch();

  const std::filesystem::path directory_;
  const std::chrono::milliseconds poll_;
  Bell& bell_;
  const int stop_;  // an eventfd
  std::thread thread_;
};

// Runs what takes long on a thread of its own, which may be told to stop.
class Task {
 public:
  Task(std::function<Result<void>(const std::atomic<bool>& stop)> work, Bell& bell);
  ~Task();  // tells it to stop, and waits

  // None while it runs.
  std::optional<Result<void>> outcome() const;

 private:
  mutable std::mutex mutex_;
  std::optional<Result<void>> outcome_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace tesser::platform
