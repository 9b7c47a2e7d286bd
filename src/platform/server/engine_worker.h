// The one thread that speaks to the engine, so that nobody else waits for Slurm or Kubernetes. Internal to this folder.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/engine/engine.h"

namespace tesser::platform {

struct EngineView {
  std::vector<Node> nodes;  // as of the last answer
  bool has_answered = false;
  std::string error;  // of the last try; empty: it is within reach
};

// Any thread.
class EngineWorker {
 public:
  // Asks for the nodes once a second, and calls `changed` when something is another.
  EngineWorker(std::unique_ptr<Engine> engine, std::function<void()> changed);
  ~EngineWorker();  // waits for the call in work, drops the others

  EngineView view() const;
  void add(std::function<void(Engine&)> task);

 private:
  void work();
  void ask_for_nodes();

  const std::unique_ptr<Engine> engine_;
  const std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void(Engine&)>> tasks_;
  EngineView view_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace tesser::platform
