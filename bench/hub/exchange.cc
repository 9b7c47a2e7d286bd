#include "hub/exchange.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <new>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tesser::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kBatchSeconds = 0.04;
constexpr std::int64_t kFewestBatches = 3;
// Part of the time that warms up.
constexpr double kWarmUp = 0.25;
// Of weights, which many thousand steps in float32 change.
constexpr double kTolerance = 2e-3;

// The leader's decisions; the other workers follow.
class Leader {
 public:
  explicit Leader(const Exchange& exchange) : time_(Seconds(exchange.time).count()) {}

  std::int64_t next() {
    if (measured_) {
      return 0;
    }
    if (!is_warm()) {
      return warm_up_;
    }
    batch_ = std::max<std::int64_t>(1, std::llround(kBatchSeconds / estimate_));
    const double batch_seconds = static_cast<double>(batch_) * estimate_;
    return batch_ * std::max<std::int64_t>(kFewestBatches, std::llround(time_ / batch_seconds));
  }

  // Times at which each of the exchanges was done, after that at which they began.
  void took(const std::vector<Clock::time_point>& times) {
    const std::size_t count = times.size() - 1;
    if (!is_warm()) {
      const double seconds = Seconds(times.back() - times.front()).count();
      spent_ += seconds;
      estimate_ = seconds / static_cast<double>(count);
      ++warm_ups_;
      warm_up_ *= 2;
      return;
    }
    const auto step = static_cast<std::size_t>(batch_);
    for (std::size_t end = step; end <= count; end += step) {
      seconds_.push_back(Seconds(times[end] - times[end - step]).count() / static_cast<double>(batch_));
    }
    measured_ = true;
  }

  void print() const {
    std::printf("{\"seconds\": [");
    for (std::size_t batch = 0; batch < seconds_.size(); ++batch) {
      std::printf("%s%.9g", batch == 0 ? "" : ", ", seconds_[batch]);
    }
    std::printf("]}\n");
  }

 private:
  // Twice, as the first time memory is touched; a slow system once.
  bool is_warm() const { return spent_ >= kWarmUp * time_ && (warm_ups_ >= 2 || spent_ >= time_); }

  const double time_;
  double spent_ = 0;
  double estimate_ = 0;
  int warm_ups_ = 0;
  std::int64_t warm_up_ = 1;
  std::int64_t batch_ = 1;
  bool measured_ = false;
  std::vector<double> seconds_;
};

Result<void> verify(const Exchange& exchange, const Worker& worker, std::int64_t exchanges) {
  for (std::size_t tensor = 0; tensor < exchange.elements.size(); ++tensor) {
    for (const std::int64_t element : {std::int64_t{0}, exchange.elements[tensor] / 2, exchange.elements[tensor] - 1}) {
      const double expected = expected_weight(exchange, element, exchanges);
      const double found = worker.weight(tensor, element);
      if (!(std::abs(found - expected) <= kTolerance * std::abs(expected) + 1e-6)) {
        char text[160];
        std::snprintf(text, sizeof(text), "after %lld exchanges element %lld of tensor %zu is %.9g and should be %.9g",
                      static_cast<long long>(exchanges), static_cast<long long>(element), tensor, found, expected);
        return failed(text);
      }
    }
  }
  return {};
}

Result<void> work(const Exchange& exchange, int rank, Meeting& meeting, const OpenWorker& open) {
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Worker> worker, open(rank, meeting));
  Leader leader(exchange);
  std::int64_t done = 0;
  std::vector<Clock::time_point> times;
  while (true) {
    if (rank == 0) {
      meeting.next.store(leader.next());
    }
    meeting.meet();
    const std::int64_t count = meeting.next.load();
    if (count == 0) {
      break;
    }
    times.clear();
    times.reserve(static_cast<std::size_t>(count) + 1);
    times.push_back(Clock::now());
    for (std::int64_t index = 0; index < count; ++index) {
      TESSER_RETURN_IF_ERROR(worker->exchange());
      times.push_back(Clock::now());
    }
    done += count;
    if (rank == 0) {
      leader.took(times);
    }
    meeting.meet();
  }
  TESSER_RETURN_IF_ERROR(verify(exchange, *worker, done));
  meeting.meet();
  if (rank == 0) {
    leader.print();
  }
  return {};
}

int code_of(const Result<void>& result, const char* who, int rank) {
  if (!result) {
    std::fprintf(stderr, "%s %d: %s\n", who, rank, result.error().message.c_str());
  }
  std::fflush(nullptr);
  return result ? 0 : 1;
}

pid_t start(const std::function<int()>& body) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(::getppid() == parent ? body() : 1);
  }
  return child;
}

// False when the process ended with anything but 0.
bool ended_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

}  // namespace

float gradient_value(int worker, std::int64_t element) {
  const auto mixed =
      (static_cast<std::uint32_t>(element) * 2654435761U + static_cast<std::uint32_t>(worker) * 40503U) >> 12;
  return static_cast<float>(mixed % 4096) / 4096.0F + 0.125F;
}

double expected_weight(const Exchange& exchange, std::int64_t element, std::int64_t exchanges) {
  double gradient = 0;
  for (int worker = 0; worker < exchange.workers; ++worker) {
    gradient += gradient_value(worker, element);
  }
  gradient /= exchange.workers;
  double weight = 0;
  double first = 0;
  double second = 0;
  for (std::int64_t step = 1; step <= exchanges; ++step) {
    if (exchange.optimizer == Optimizer::kSgd) {
      first = step == 1 ? gradient : kMomentum * first + gradient;
      weight -= kLearningRate * first;
      continue;
    }
    first = kBeta1 * first + (1 - kBeta1) * gradient;
    second = kBeta2 * second + (1 - kBeta2) * gradient * gradient;
    const double mean = first / (1 - std::pow(kBeta1, static_cast<double>(step)));
    const double square = second / (1 - std::pow(kBeta2, static_cast<double>(step)));
    weight -= kLearningRate * mean / (std::sqrt(square) + kEps);
  }
  return weight;
}

int measure(const Exchange& exchange, const Serve& serve, const OpenWorker& open) {
  void* memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ready_pipe[2];
  int end_pipe[2];
  if (memory == MAP_FAILED || ::pipe(ready_pipe) != 0 || ::pipe(end_pipe) != 0) {
    std::perror("no memory or pipes for the bench's processes");
    return 1;
  }
  auto* meeting = new (memory) Meeting;
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&meeting->barrier, &attributes, static_cast<unsigned>(exchange.workers));

  pid_t server = -1;
  if (serve) {
    server = start([&] {
      ::close(ready_pipe[0]);
      ::close(end_pipe[1]);
      const auto ready = [&] { ::close(ready_pipe[1]); };
      const auto is_over = [&] {
        char byte = 0;
        while (::read(end_pipe[0], &byte, 1) < 0 && errno == EINTR) {
        }
      };
      return code_of(serve(*meeting, ready, is_over), "server", 0);
    });
    ::close(ready_pipe[1]);
    char byte = 0;
    while (::read(ready_pipe[0], &byte, 1) < 0 && errno == EINTR) {
    }
  }
  std::vector<pid_t> workers;
  for (int rank = 0; rank < exchange.workers; ++rank) {
    workers.push_back(start([&, rank] {
      ::close(end_pipe[1]);
      return code_of(work(exchange, rank, *meeting, open), "worker", rank);
    }));
  }
  bool good = true;
  for (std::size_t left = workers.size(); left != 0 && good;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    good = ended > 0 && ended != server && ended_well(status);
    std::erase(workers, ended);
    --left;
  }
  for (const pid_t worker : workers) {
    if (worker > 0) {
      ::kill(worker, SIGKILL);
      ::waitpid(worker, nullptr, 0);
    }
  }
  ::close(end_pipe[1]);
  if (server > 0) {
    if (!good) {
      ::kill(server, SIGKILL);
    }
    int status = 0;
    good = ::waitpid(server, &status, 0) == server && ended_well(status) && good;
  }
  return good ? 0 : 1;
}

}  // namespace tesser::bench
