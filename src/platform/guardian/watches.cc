#include "platform/guardian/watches.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <utility>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kEngineRetry{250};

}  // namespace

EngineWatch::EngineWatch(std::unique_ptr<Engine> engine, std::string job, std::string team, std::shared_ptr<Bell> bell,
                         std::function<void(const std::string&)> log)
    : state_(std::make_shared<State>()) {
  state_->engine = std::move(engine);
  state_->job = std::move(job);
  state_->team = std::move(team);
  state_->bell = std::move(bell);
  state_->log = std::move(log);
  std::thread([state = state_] { watch(*state); }).detach();
}

EngineWatch::~EngineWatch() { state_->is_ending = true; }

std::optional<EngineWatch::Seen> EngineWatch::seen() const {
  const std::lock_guard lock(state_->mutex);
  return state_->seen;
}

void EngineWatch::watch(State& state) {
  std::string trouble;
  while (!state.is_ending) {
    const auto asked = std::chrono::steady_clock::now();
    auto learners = state.engine->learners(state.job, state.team);
    if (learners) {
      {
        const std::lock_guard lock(state.mutex);
        state.seen = Seen{asked, std::move(*learners)};
      }
      state.bell->ring();
      if (!trouble.empty()) {
        state.log("the engine answers again");
        trouble.clear();
      }
      state.engine->wait(state.job, state.team, state.engine->good_for(state.job));
      continue;
    }
    if (learners.error().message != trouble) {
      trouble = learners.error().message;
      state.log(fmt::format("the engine does not say what runs, asking on: {}", trouble));
    }
    std::this_thread::sleep_for(kEngineRetry);
  }
}

MarkerWatch::MarkerWatch(std::filesystem::path directory, milliseconds poll, Bell& bell)
    : directory_(std::move(directory)), poll_(poll), bell_(bell), stop_(::eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([this] { watch(); });
}

MarkerWatch::~MarkerWatch() {
  const std::uint64_t one = 1;
  (void)!::write(stop_, &one, sizeof(one));
  thread_.join();
  ::close(stop_);
}

void MarkerWatch::watch() {
  const int changes = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  ::inotify_add_watch(changes, directory_.c_str(), IN_CREATE | IN_MOVED_TO);
  bell_.ring();  // for what came before
  std::array<pollfd, 2> watched{{{stop_, POLLIN, 0}, {changes, POLLIN, 0}}};
  while (::poll(watched.data(), watched.size(), static_cast<int>(poll_.count())) < 0 || watched[0].revents == 0) {
    std::array<char, 4096> events;
    while (::read(changes, events.data(), events.size()) > 0) {
    }
    bell_.ring();
  }
  ::close(changes);
}

Task::Task(std::function<Result<void>(const std::atomic<bool>& stop)> work, Bell& bell) {
  thread_ = std::thread([this, work = std::move(work), &bell] {
    auto outcome = work(stop_);
    {
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
    }
    bell.ring();
  });
}

Task::~Task() {
  stop_ = true;
  thread_.join();
}

std::optional<Result<void>> Task::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

}  // namespace tesser::platform
