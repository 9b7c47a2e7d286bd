#include "partition/step_time.h"

#include <algorithm>
#include <numeric>

#include "graph/operator_class.h"

namespace tesser::partition {
namespace {

using graph::NodeId;

// What a worker receives, by level: one thing after the other.
class Links {
 public:
  Links(const Plan& plan, const Topology& topology) : free_(plan.levels.size(), 0.0) {
    for (const Level& level : plan.levels) {
      const auto link = std::find_if(topology.links.begin(), topology.links.end(),
                                     [&](const Link& candidate) { return candidate.name == level.link; });
      links_.push_back(link == topology.links.end() ? Link{} : *link);
    }
  }

  // When all has arrived that is sent at `time`.
  double receive(double time, const std::vector<std::int64_t>& level_bytes) {
    double arrived = time;
    for (std::size_t level = 0; level < level_bytes.size(); ++level) {
      if (level_bytes[level] == 0) continue;
      owed_ += static_cast<double>(level_bytes[level]) * links_[level].processor_time;
      double& free = free_[level];
      free = std::max(free, time) + static_cast<double>(level_bytes[level]) / links_[level].bandwidth;
      arrived = std::max(arrived, free + links_[level].latency);
    }
    return arrived;
  }

  // The processor has nothing to do for so long but to move bytes.
  void wait(double seconds) { owed_ -= std::min(owed_, std::max(seconds, 0.0)); }
  // Its time for moving bytes that no waiting has hidden.
  double owed() const { return owed_; }

 private:
  std::vector<Link> links_;   // by level
  std::vector<double> free_;  // by level: when it has carried all so far
  double owed_ = 0;
};

}  // namespace

double work_share(const tdl::Box& whole, const tdl::Box& part) {
  double share = 1;
  for (std::size_t variable = 0; variable < whole.size(); ++variable) {
    if (whole[variable].size() > 0) {
      share *= static_cast<double>(part[variable].size()) / static_cast<double>(whole[variable].size());
    }
  }
  return share;
}

double node_seconds(const graph::Program& program, const graph::Node& node, const Topology& topology) {
  if (graph::operator_class(node.op) == graph::OperatorClass::kView) return 0;
  double bytes = 0;
  for (const graph::ValueId value : graph::values_read(node))
    bytes += static_cast<double>(program.value(value).bytes());
  for (const graph::ValueId value : node.outputs) {
    bytes += value == graph::kNone ? 0.0 : static_cast<double>(program.value(value).bytes());
  }
  return static_cast<double>(graph::floating_point_operations(program, node)) / topology.flops +
         bytes / topology.memory_bandwidth;
}

StepTime step_time(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, const Plan& plan,
                   const Topology& topology, const Traffic& traffic) {
  std::vector<const Round*> sends;  // operands, in the order of their sending
  for (const Round& round : traffic.rounds) {
    if (round.sent != graph::kNone) sends.push_back(&round);
  }
  std::stable_sort(sends.begin(), sends.end(), [](const Round* a, const Round* b) { return a->sent < b->sent; });
  Links links(plan, topology);
  std::vector<double> arrivals(program.nodes.size(), 0.0);  // by node: of its operands
  const std::vector<int> first(plan.levels.size(), 0);
  StepTime time;
  double now = 0;
  const auto compute = [&](double seconds) {
    time.computing += seconds;
    now += seconds;
  };
  const auto wait_until = [&](double arrival) {
    links.wait(arrival - now);
    now = std::max(now, arrival);
  };
  auto send = sends.begin();
  auto round = traffic.rounds.begin();
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes.size()); ++id) {
    const auto place = static_cast<std::size_t>(id);
    for (; send != sends.end() && (*send)->sent <= id; ++send) {
      double& arrival = arrivals[static_cast<std::size_t>((*send)->node)];
      arrival = std::max(arrival, links.receive(now, (*send)->level_bytes));
    }
    wait_until(arrivals[place]);
    compute(node_seconds(program, program.nodes[place], topology) *
            work_share(semantics[place].whole_box(), worker_box(plan, id, semantics[place], first)));
    for (; round != traffic.rounds.end() && round->node == id; ++round) {
      if (round->sent != graph::kNone) continue;
      wait_until(links.receive(now, round->level_bytes));
      if (round->parts > 1) {  // all parts are read, and their sum is written
        const auto received =
            static_cast<double>(std::accumulate(round->level_bytes.begin(), round->level_bytes.end(), std::int64_t{0}));
        const double part = received / static_cast<double>(round->parts - 1);
        compute(part * static_cast<double>(round->parts + 1) / topology.memory_bandwidth);
      }
    }
  }
  time.receiving = now + links.owed() - time.computing;
  return time;
}

}  // namespace tesser::partition
