#include "platform/scheduler/simulation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace tesser::platform {
namespace {

constexpr const char* kAccelerator = "gpu";
constexpr double kHour = 3600;

std::vector<Node> nodes_of(const SimulationSettings& settings) {
  std::vector<Node> nodes;
  for (int i = 0; i < settings.nodes; ++i) {
    Node node;
    node.name = fmt::format("node{}", i + 1);
    node.capacity = {0, 0, {{kAccelerator, settings.accelerators_per_node}}};
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// A job's learners: as many of the usual size as it needs, or one smaller one.
struct Shape {
  std::int64_t learners = 1;
  std::int64_t accelerators = 1;  // of each
};

Shape shape_of(const TraceJob& job, const SimulationSettings& settings) {
  const std::int64_t each = std::min(job.accelerators, settings.accelerators_per_learner);
  return {(job.accelerators + each - 1) / each, each};
}

struct State {
  const TraceJob* trace = nullptr;
  Shape shape;
  double left_seconds = 0;
  double running_since = -1;  // -1: does not run
  std::uint64_t run = 0;      // which start this is; ends of earlier ones count for nothing
  // Without gang.
  std::vector<int> places;
  double holds_since = -1;

  double held() const { return static_cast<double>(shape.learners * shape.accelerators); }
};

struct End {
  double time = 0;
  std::size_t job = 0;
  std::uint64_t run = 0;
  bool operator>(const End& other) const { return std::tie(time, job) > std::tie(other.time, other.job); }
};

class Simulation {
 public:
  Simulation(const std::vector<TraceJob>& trace, const SimulationSettings& settings) : settings_(settings) {
    report_.jobs = trace.size();
    for (const TraceJob& job : trace) {
      const Shape shape = shape_of(job, settings);
      if (shape.learners > settings.accelerators_per_node / shape.accelerators * settings.nodes) {
        ++report_.never_fit;
        continue;
      }
      states_.push_back({&job, shape, job.run_seconds, -1, 0, {}, -1});
    }
  }
  virtual ~Simulation() = default;

  SimulationReport run() {
    std::size_t next = 0;
    while (next < states_.size() || !ends_.empty() || wake_ < std::numeric_limits<double>::infinity()) {
      const double submit =
          next < states_.size() ? states_[next].trace->submitted : std::numeric_limits<double>::infinity();
      const double end = ends_.empty() ? std::numeric_limits<double>::infinity() : ends_.top().time;
      const double now = std::min({submit, end, wake_});
      while (!ends_.empty() && ends_.top().time <= now) {
        const End done = ends_.top();
        ends_.pop();
        if (states_[done.job].run == done.run && states_[done.job].running_since >= 0) {
          complete(done.job, now);
        }
      }
      for (; next < states_.size() && states_[next].trace->submitted <= now; ++next) {
        submitted(next);
      }
      wake_ = std::numeric_limits<double>::infinity();
      decide(now);
    }
    report_.stuck = states_.size() - report_.finished;
    std::sort(report_.waits.begin(), report_.waits.end());
    const double all = static_cast<double>(settings_.nodes) * static_cast<double>(settings_.accelerators_per_node);
    report_.utilization =
        report_.makespan_seconds > 0 ? report_.used_hours * kHour / (all * report_.makespan_seconds) : 0;
    return std::move(report_);
  }

 protected:
  virtual void submitted(std::size_t job) = 0;
  virtual void ended(std::size_t job) = 0;
  virtual void decide(double now) = 0;

  void begin(std::size_t number, double now) {
    State& job = states_[number];
    job.running_since = now;
    ends_.push({now + job.left_seconds, number, ++job.run});
  }
  void interrupt(std::size_t number, double now) {
    State& job = states_[number];
    // It may not have begun yet.
    const double ran = std::clamp(now - job.running_since, 0.0, job.left_seconds);
    job.left_seconds -= ran;
    report_.used_hours += ran * job.held() / kHour;
    job.running_since = -1;
    ++job.run;
  }

  bool runs() const { return !ends_.empty(); }

  const SimulationSettings& settings_;
  SimulationReport report_;
  std::vector<State> states_;
  double wake_ = std::numeric_limits<double>::infinity();  // decide then, whatever happens

 private:
  void complete(std::size_t number, double now) {
    State& job = states_[number];
    report_.used_hours += job.left_seconds * job.held() / kHour;
    job.running_since = -1;
    ++report_.finished;
    report_.makespan_seconds = now;
    report_.waits.push_back(std::max(0.0, now - job.trace->submitted - job.trace->run_seconds));
    ended(number);
  }

  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

class GangSimulation final : public Simulation {
 public:
  GangSimulation(const std::vector<TraceJob>& trace, const SimulationSettings& settings) : Simulation(trace, settings) {
    auto scheduler = Scheduler::create(nodes_of(settings), settings.teams, settings.scheduler);
    TESSER_CHECK(scheduler.has_value(), scheduler.error().message);
    scheduler_ = std::move(*scheduler);
  }

 private:
  JobRequest request_of(std::size_t number) const {
    const State& job = states_[number];
    JobRequest request;
    request.id = job.trace->id;
    request.team = job.trace->team;
    request.priority = job.trace->priority;
    request.submitted = job.trace->submitted;
    request.learners = job.shape.learners;
    request.each = {0, 0, {{kAccelerator, job.shape.accelerators}}};
    request.longest = settings_.run_times_are_known ? job.left_seconds + settings_.halt_seconds : 0;
    return request;
  }

  void submitted(std::size_t job) override {
    numbers_.emplace(states_[job].trace->id, job);
    scheduler_->submit(request_of(job));
  }
  void ended(std::size_t job) override { scheduler_->finish(states_[job].trace->id); }

  void decide(double now) override {
    const auto begin_time = std::chrono::steady_clock::now();
    const std::vector<Decision> decisions = scheduler_->decide(now, false);
    report_.deciding_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_time).count();
    report_.decisions += std::max<std::size_t>(decisions.size(), 1);
    for (const Decision& decision : decisions) {
      const std::size_t job = numbers_.at(decision.job);
      if (decision.kind == DecisionKind::kStart) {
        const double delay = decision.other_jobs.empty() ? 0 : settings_.halt_seconds;
        report_.idle_held_hours += delay * states_[job].held() / kHour;
        begin(job, now + delay);
      } else if (decision.kind == DecisionKind::kPreempt) {
        interrupt(job, now);
        ++report_.preemptions;
      }
    }
  }

  std::unique_ptr<Scheduler> scheduler_;
  std::unordered_map<std::string, std::size_t> numbers_;
};

// Learners one by one, each as soon as there is room.
class SingleSimulation final : public Simulation {
 public:
  SingleSimulation(const std::vector<TraceJob>& trace, const SimulationSettings& settings, const ResourceKinds& kinds)
      : Simulation(trace, settings),
        kinds_(kinds),
        cluster_(nodes_of(settings), kinds),
        random_(settings.scheduler.placement.seed) {}

 private:
  void submitted(std::size_t job) override {
    each_.resize(states_.size());
    each_[job] = kinds_.asked({0, 0, {{kAccelerator, states_[job].shape.accelerators}}});
    queue_.push_back(job);
  }
  void ended(std::size_t job) override { give_back(job); }

  void give_back(std::size_t number) {
    State& job = states_[number];
    for (const int node : job.places) {
      cluster_.give(node, each_[number]);
    }
    job.places.clear();
    job.holds_since = -1;
  }

  void decide(double now) override {
    report_.idle_held_hours += static_cast<double>(idle_held_) * (now - last_) / kHour;
    last_ = now;
    const auto begin_time = std::chrono::steady_clock::now();
    give_up(now);
    const bool has_started = place(now);
    report_.deciding_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_time).count();
    ++report_.decisions;
    rounds_without_start_ = has_started || runs() ? 0 : rounds_without_start_ + 1;
    if (settings_.patience_seconds > 0 && rounds_without_start_ < kMostRoundsWithoutStart) {
      for (const std::size_t number : queue_) {
        if (states_[number].holds_since >= 0) {
          wake_ = std::min(wake_, states_[number].holds_since + settings_.patience_seconds);
        }
      }
    }
  }

  // Those whose patience is over give back what they have.
  void give_up(double now) {
    std::deque<std::size_t> last;
    for (std::size_t& number : queue_) {
      State& job = states_[number];
      if (settings_.patience_seconds > 0 && job.holds_since >= 0 &&
          now >= job.holds_since + settings_.patience_seconds) {
        idle_held_ -= static_cast<std::int64_t>(job.places.size()) * job.shape.accelerators;
        give_back(number);
        ++report_.given_up;
        last.push_back(number);
        number = kGone;
      }
    }
    queue_.erase(std::remove(queue_.begin(), queue_.end(), kGone), queue_.end());
    queue_.insert(queue_.end(), last.begin(), last.end());
  }

  // Whether a job got the last of its places.
  bool place(double now) {
    bool has_started = false;
    std::int64_t too_large = std::numeric_limits<std::int64_t>::max();  // accelerators of a learner that found no room
    for (std::size_t& number : queue_) {
      State& job = states_[number];
      const Gang one{1, each_[number]};
      while (static_cast<std::int64_t>(job.places.size()) < job.shape.learners && job.shape.accelerators < too_large) {
        const auto place = place_gang(cluster_, one, settings_.scheduler.placement, random_);
        if (!place) {
          too_large = job.shape.accelerators;
          break;
        }
        cluster_.take(place->front(), one.each);
        job.places.push_back(place->front());
        job.holds_since = job.holds_since < 0 ? now : job.holds_since;
        idle_held_ += job.shape.accelerators;
      }
      if (static_cast<std::int64_t>(job.places.size()) == job.shape.learners) {
        idle_held_ -= job.shape.learners * job.shape.accelerators;
        begin(number, now);
        number = kGone;
        has_started = true;
      }
    }
    queue_.erase(std::remove(queue_.begin(), queue_.end(), kGone), queue_.end());
    return has_started;
  }

  static constexpr std::size_t kGone = std::numeric_limits<std::size_t>::max();
  // Then the jobs that hold places only take them from one another.
  static constexpr int kMostRoundsWithoutStart = 10'000;

  ResourceKinds kinds_;
  Cluster cluster_;
  RandomNumbers random_;
  std::deque<std::size_t> queue_;
  std::vector<Amounts> each_;   // what a learner of each job asks for
  std::int64_t idle_held_ = 0;  // accelerators of jobs that do not run yet
  double last_ = 0;
  int rounds_without_start_ = 0;
};

}  // namespace

double SimulationReport::wait_percentile(double part) const {
  if (waits.empty()) {
    return 0;
  }
  const auto place = static_cast<std::size_t>(std::ceil(part * static_cast<double>(waits.size())));
  return waits[std::clamp<std::size_t>(place, 1, waits.size()) - 1];
}

SimulationReport simulate(const std::vector<TraceJob>& trace, const SimulationSettings& settings) {
  if (settings.gang) {
    return GangSimulation(trace, settings).run();
  }
  const Result<ResourceKinds> kinds = ResourceKinds::of(nodes_of(settings));
  TESSER_CHECK(kinds.has_value(), kinds.error().message);
  return SingleSimulation(trace, settings, *kinds).run();
}

}  // namespace tesser::platform
