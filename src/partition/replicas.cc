#include "partition/replicas.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "partition/step_time.h"
#include "partition/summary.h"

namespace tesser::partition {
namespace {

constexpr double kElementBytes = sizeof(float);
// Adding gradients and updating is one pass: it reads each gradient, and reads and writes weights and state.
constexpr double kReadAndWritten = 2 * kElementBytes;

struct Updates {
  double seconds = 0;         // of the worker that has most to do
  double hub_bytes = 0;       // that a hub reads and writes for this worker's part of one replica
  double added_bytes = 0;     // of those, what each further replica adds
  double gradient_bytes = 0;  // of this worker
};

Updates updates_of(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, const Plan& plan,
                   const Topology& topology) {
  const std::vector<int> first(plan.levels.size(), 0);
  Updates updates;
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    const graph::Node& node = program.nodes[id];
    if (node.op != "tesser::sgd" && node.op != "tesser::adam") continue;
    const auto elements = [&](graph::ValueId value) {
      return static_cast<double>(tdl::volume(owned_region(plan, program, value, first)));
    };
    const graph::ValueId parameter = graph::value_argument(node, 0);
    const double own = elements(parameter);
    updates.seconds +=
        node_seconds(program, node, topology) *
        work_share(semantics[id].whole_box(), worker_box(plan, static_cast<graph::NodeId>(id), semantics[id], first));
    double tensors = 1;
    for (std::size_t argument = 2; argument < (node.op == "tesser::adam" ? 5U : 3U); ++argument) {
      tensors += graph::value_argument(node, argument) == graph::kNone ? 0 : 1;
    }
    updates.hub_bytes += own * (kElementBytes + kReadAndWritten * tensors);
    updates.added_bytes += own * kElementBytes;
    updates.gradient_bytes += own * kElementBytes;
  }
  return updates;
}

// The outermost link that separates replicas; null on one machine.
const Link* outer_link(const Topology& topology, int replicas) {
  if (replicas == 1) return nullptr;
  const auto link =
      std::find_if(topology.links.begin(), topology.links.end(), [](const Link& each) { return each.parts > 1; });
  return link == topology.links.end() ? nullptr : &*link;
}

}  // namespace

Result<Topology> topology_of_replica(const Topology& topology, int replicas) {
  Topology of_replica = topology;
  int left = replicas;
  for (Link& link : of_replica.links) {
    const int divided = std::gcd(left, link.parts);
    link.parts /= divided;
    left /= divided;
    if (link.parts > 1 && left > 1) break;  // what is inside belongs to several replicas
  }
  if (!topology.links.empty() && left != 1) {
    return invalid_input(fmt::format("{} replicas do not divide the topology's links", replicas));
  }
  std::erase_if(of_replica.links, [](const Link& link) { return link.parts == 1; });
  return of_replica;
}

double step_seconds_of_replicas(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                                const Plan& plan, const Topology& topology, double plan_seconds, int replicas,
                                const Link* outer) {
  if (replicas == 1) return plan_seconds;
  const Updates updates = updates_of(program, semantics, plan, topology);
  // Each part's hub works on the processors of as many workers as there are replicas.
  const double hub = (updates.hub_bytes + (replicas - 1) * updates.added_bytes) / replicas / topology.memory_bandwidth;
  const double computing = plan_seconds - updates.seconds + hub;
  if (outer == nullptr) return computing;
  const double elsewhere = 1 - 1 / static_cast<double>(outer->parts);  // workers that are not on the hub's machine
  const double travelling = static_cast<double>(replicas) * static_cast<double>(plan.workers()) * elsewhere *
                            updates.gradient_bytes / outer->bandwidth;
  return std::max(computing, travelling) + 2 * outer->latency;
}

Result<std::vector<ReplicaChoice>> replica_choices(const graph::Program& program,
                                                   const std::vector<tdl::NodeSemantics>& semantics,
                                                   const SearchOptions& options) {
  std::vector<ReplicaChoice> choices;
  std::optional<Error> alone;
  for (int replicas = 1; replicas <= options.workers; ++replicas) {
    if (options.workers % replicas != 0) continue;
    ReplicaChoice choice;
    choice.replicas = replicas;
    choice.workers = options.workers / replicas;
    SearchOptions of_replica = options;
    of_replica.workers = choice.workers;
    Result<Topology> topology = topology_of_replica(options.topology, replicas);
    Result<Plan> plan = topology.and_then([&](const Topology& machines) {
      of_replica.topology = machines;
      return search(program, semantics, of_replica);
    });
    if (plan) {
      choice.topology = of_replica.topology;
      choice.plan = std::move(*plan);
      choice.predicted = prediction(plan_cost(program, semantics, choice.plan, choice.topology));
      choice.seconds =
          step_seconds_of_replicas(program, semantics, choice.plan, choice.topology, choice.predicted.seconds, replicas,
                                   outer_link(options.topology, replicas));
    } else {
      choice.refused = plan.error().message;
      alone = alone.value_or(plan.error());
    }
    choices.push_back(std::move(choice));
  }
  if (std::none_of(choices.begin(), choices.end(), [](const ReplicaChoice& each) { return each.refused.empty(); })) {
    return tl::unexpected<Error>(*alone);
  }
  return choices;
}

const ReplicaChoice& fastest(const std::vector<ReplicaChoice>& choices) {
  return *std::max_element(choices.begin(), choices.end(), [](const ReplicaChoice& a, const ReplicaChoice& b) {
    return a.batches_per_second() < b.batches_per_second();
  });
}

std::string print(const std::vector<ReplicaChoice>& choices) {
  const ReplicaChoice* const best = &fastest(choices);
  std::string text = fmt::format("  {:>8} x {:<7} {:>9} {:>10} {:>12} {:>12}\n", "replicas", "workers", "batches/s",
                                 "s a step", "memory each", "moved each");
  for (const ReplicaChoice& each : choices) {
    text += fmt::format("{} {:>8} x {:<7} ", &each == best ? '>' : ' ', each.replicas, each.workers);
    text += each.refused.empty()
                ? fmt::format("{:>9.3g} {:>10.3g} {:>12} {:>12}\n", each.batches_per_second(), each.seconds,
                              bytes_text(each.predicted.peak_bytes), bytes_text(each.predicted.bytes_per_step))
                : fmt::format("{}\n", each.refused);
  }
  return text;
}

}  // namespace tesser::partition
