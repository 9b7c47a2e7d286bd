#include "runtime/worker_link.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tesser::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kHeartbeat{500};
// Between two reports, so that short steps travel together.
constexpr std::chrono::milliseconds kShortestPause{10};
constexpr std::chrono::seconds kLost{3};
// What the worker's other threads have to end by themselves once the run is over.
constexpr std::chrono::milliseconds kGrace{700};

template <typename T>
void prepend(std::vector<T>& values, std::vector<T> earlier) {
  earlier.insert(earlier.end(), std::make_move_iterator(values.begin()), std::make_move_iterator(values.end()));
  values = std::move(earlier);
}

}  // namespace

WorkerLink::WorkerLink(std::unique_ptr<control::ControlClient> client, int worker)
    : client_(std::move(client)), worker_(worker), answered_(Clock::now()), thread_([this] { run(); }) {}

WorkerLink::~WorkerLink() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WorkerLink::report_paths(std::vector<std::string> paths) {
  const std::lock_guard guard(mutex_);
  pending_.paths = std::move(paths);
}

void WorkerLink::report_memory(const WorkerMemory& memory) {
  {
    const std::lock_guard guard(mutex_);
    pending_.memory = memory;
  }
  changed_.notify_all();
}

void WorkerLink::report_step(WorkerStep step) {
  {
    const std::lock_guard guard(mutex_);
    pending_.steps.push_back(std::move(step));
  }
  changed_.notify_all();
}

void WorkerLink::report_written(WrittenShards written) {
  {
    const std::lock_guard guard(mutex_);
    pending_.written.push_back(std::move(written));
  }
  changed_.notify_all();
}

void WorkerLink::report_evaluation(WorkerEvaluation evaluation) {
  {
    const std::lock_guard guard(mutex_);
    pending_.evaluations.push_back(std::move(evaluation));
  }
  changed_.notify_all();
}

Permission WorkerLink::wait_for_permission(std::int64_t steps_done) {
  std::unique_lock guard(mutex_);
  const auto is_known = [&] { return cancelled_ || answer_.final || answer_.until_step > steps_done; };
  if (!is_known()) {
    is_asked_ = true;
    changed_.notify_all();
    changed_.wait(guard, is_known);
    is_asked_ = false;
  }
  if (cancelled_) {
    return Permission::kAbort;
  }
  return answer_.until_step > steps_done ? Permission::kRun : Permission::kEnd;
}

bool WorkerLink::is_cancelled() const {
  const std::lock_guard guard(mutex_);
  return cancelled_;
}

std::string WorkerLink::reason() const {
  const std::lock_guard guard(mutex_);
  return reason_;
}

void WorkerLink::end(std::vector<OperatorTotal> operators) {
  std::unique_lock guard(mutex_);
  pending_.operators = std::move(operators);
  pending_.ended = true;
  ended_ = true;
  is_asked_ = true;
  changed_.notify_all();
  changed_.wait(guard, [this] { return cancelled_; });
}

void WorkerLink::fail(WorkerFailure failure) {
  std::unique_lock guard(mutex_);
  pending_.failure = std::move(failure);
  wait_until_sent(guard);
}

void WorkerLink::wait_until_sent(std::unique_lock<std::mutex>& guard) {
  changed_.notify_all();
  changed_.wait(guard, [&] { return cancelled_ || (!sending_ && !has_news()); });
}

bool WorkerLink::has_news() const {
  return pending_.memory || !pending_.steps.empty() || !pending_.written.empty() || !pending_.evaluations.empty() ||
         pending_.failure || pending_.ended;
}

void WorkerLink::take_answer(const Result<std::string>& text, const WorkerReport& sent) {
  const Result<ReportAnswer> answer = text ? read_answer(*text) : tl::unexpected<Error>(text.error());
  if (answer) {
    answered_ = Clock::now();
    answer_ = *answer;
    if (answer->abort) {
      cancelled_ = true;
      reason_ = "the coordinator has ended the run";
    }
    return;
  }
  // Sent again with the next one; what the coordinator has had already it passes over.
  prepend(pending_.steps, sent.steps);
  prepend(pending_.written, sent.written);
  prepend(pending_.evaluations, sent.evaluations);
  if (!pending_.memory) {
    pending_.memory = sent.memory;
  }
  if (!pending_.failure) {
    pending_.failure = sent.failure;
  }
  if (pending_.paths.empty()) {
    pending_.paths = sent.paths;
  }
  if (sent.ended) {
    pending_.ended = true;
    pending_.operators = sent.operators;
  }
  if (answer.error().code == ErrorCode::kInvalidInput || Clock::now() - answered_ > kLost) {
    cancelled_ = true;
    reason_ = answer.error().message;
  }
}

void WorkerLink::run() {
  std::unique_lock guard(mutex_);
  while (!cancelled_) {
    changed_.wait_for(guard, kHeartbeat, [this] { return stopping_ || is_asked_ || has_news(); });
    if (stopping_ && !has_news()) {
      return;
    }
    WorkerReport report = std::exchange(pending_, {});
    report.worker = worker_;
    sending_ = true;
    guard.unlock();
    const Result<std::string> answer = client_->post("/report", to_json(report));
    guard.lock();
    sending_ = false;
    take_answer(answer, report);
    changed_.notify_all();
    if (!stopping_) {
      // Not the condition variable: news do not shorten the pause.
      guard.unlock();
      std::this_thread::sleep_for(kShortestPause);
      guard.lock();
    }
  }
  if (ended_) {
    return;
  }
  // The worker's own thread may be anywhere, in a kernel that takes long or in a system call that does not return.
  if (!changed_.wait_for(guard, kGrace, [this] { return stopping_; })) {
    std::fprintf(stderr, "tesser worker: worker %d ends: %s\n", worker_, reason_.c_str());
    std::fflush(stderr);
    ::_exit(1);
  }
}

}  // namespace tesser::runtime
