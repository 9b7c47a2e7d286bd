#include "platform/server/engine_worker.h"

#include <utility>

namespace tesser::platform {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBetweenLooks{1};

bool is_same(const std::vector<Node>& a, const std::vector<Node>& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].capacity != b[i].capacity || a[i].is_ready != b[i].is_ready ||
        a[i].not_ready != b[i].not_ready) {
      return false;
    }
  }
  return true;
}

}  // namespace

EngineWorker::EngineWorker(std::unique_ptr<Engine> engine, std::function<void()> changed)
    : engine_(std::move(engine)), changed_(std::move(changed)), thread_([this] { work(); }) {}

EngineWorker::~EngineWorker() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  added_.notify_all();
  thread_.join();
}

EngineView EngineWorker::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void EngineWorker::add(std::function<void(Engine&)> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  added_.notify_all();
}

void EngineWorker::ask_for_nodes() {
  auto nodes = engine_->nodes();
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    if (nodes) {
      is_new = !view_.has_answered || !view_.error.empty() || !is_same(view_.nodes, *nodes);
      view_ = {std::move(*nodes), true, ""};
    } else {
      is_new = view_.error != nodes.error().message;
      view_.error = nodes.error().message;
    }
  }
  if (is_new) {
    changed_();
  }
}

void EngineWorker::work() {
  Clock::time_point look = Clock::now();
  while (true) {
    std::function<void(Engine&)> task;
    {
      std::unique_lock lock(mutex_);
      added_.wait_until(lock, look, [this] { return stops_ || !tasks_.empty(); });
      if (stops_) {
        return;
      }
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
    }
    if (task) {
      task(*engine_);
    }
    if (Clock::now() >= look) {
      ask_for_nodes();
      look = Clock::now() + kBetweenLooks;
    }
  }
}

}  // namespace tesser::platform
