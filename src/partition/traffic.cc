#include "partition/traffic.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "partition/holders.h"
#include "partition/placement.h"
#include "partition/signature.h"

namespace tesser::partition {
namespace {

using LevelBytes = std::vector<std::int64_t>;  // by the level whose groups a transfer crosses; empty: nothing moves

std::int64_t sum(const LevelBytes& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

// What one node makes workers receive.
struct NodeBytes {
  std::vector<std::vector<LevelBytes>> operands;  // by operand, by worker
  std::vector<std::vector<tdl::Region>> regions;  // by operand, by worker: what is received
  // By result, by round (parts, then shares of their sum), by worker.
  std::vector<std::vector<std::vector<LevelBytes>>> results;
  std::vector<std::int64_t> parts;  // by result: how many are added; 0 or 1 where it is no reduction
};

class Account {
 public:
  // `used`: values_in_use of the program.
  Account(const graph::Program& program, const Plan& plan, const std::vector<bool>& used)
      : program_(program), plan_(plan), used_(used), distances_(plan.levels), regions_(program.values.size()) {
    for (int worker = 0; worker < distances_.workers(); ++worker) {
      digits_.push_back(worker_digits(plan.levels, worker));
    }
  }

  std::size_t workers() const { return digits_.size(); }

  NodeBytes of(graph::NodeId id, const tdl::NodeSemantics& semantics) {
    const graph::Node& node = program_.node(id);
    const std::vector<graph::ValueId> values = graph::values_read(node);
    const std::vector<Cut>& cuts = plan_.nodes[static_cast<std::size_t>(id)];
    NodeParts parts = node_parts(program_, node, semantics, cuts, plan_.levels);
    NodeBytes bytes;
    for (std::size_t operand = 0; operand < values.size(); ++operand) {
      std::vector<LevelBytes>& received = bytes.operands.emplace_back(workers());
      const std::vector<tdl::Region>& owned = regions(values[operand]);
      for (std::size_t worker = 0; worker < workers(); ++worker) {
        const tdl::Region& needed = parts.operands[operand][worker];
        if (operand_elements(needed, owned[worker]) > 0) {
          add(received[worker], values[operand], needed, owned, worker);
        }
      }
    }
    bytes.regions = std::move(parts.operands);
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      std::vector<std::vector<LevelBytes>>& rounds = bytes.results.emplace_back();
      std::int64_t& added = bytes.parts.emplace_back(0);
      const graph::ValueId value = node.outputs[result];
      if (value != graph::kNone && used_[static_cast<std::size_t>(value)]) {
        added = settle(rounds, value, parts.results[result], part_numbers(semantics, result, cuts));
      }
    }
    return bytes;
  }

 private:
  std::vector<std::int64_t> part_numbers(const tdl::NodeSemantics& semantics, std::size_t result,
                                         const std::vector<Cut>& cuts) const {
    std::vector<std::int64_t> numbers;
    for (const std::vector<int>& digits : digits_) {
      numbers.push_back(part_number(semantics, result, cuts, plan_.levels, digits));
    }
    return numbers;
  }

  // A result goes from where it was made to its owners; parts of a reduction to those who add them up, from where the
  // sums go to the owners. Returns how many parts there are.
  std::int64_t settle(std::vector<std::vector<LevelBytes>>& rounds, graph::ValueId value,
                      const std::vector<tdl::Region>& made, const std::vector<std::int64_t>& numbers) {
    std::map<std::int64_t, std::vector<tdl::Region>> parts;  // by number, by worker
    for (std::size_t worker = 0; worker < workers(); ++worker) {
      if (is_something(made[worker], value)) {
        std::vector<tdl::Region>& part = parts[numbers[worker]];
        part.resize(workers(), nothing(value));
        part[worker] = made[worker];
      }
    }
    const std::vector<tdl::Region>& owned = regions(value);
    const auto move = [&](std::vector<LevelBytes>& received, const std::vector<tdl::Region>& needed,
                          const std::vector<tdl::Region>& held) {
      received.resize(workers());
      for (std::size_t worker = 0; worker < workers(); ++worker) {
        if (is_something(needed[worker], value)) {
          add(received[worker], value, needed[worker], held, worker);
        }
      }
    };
    const auto count = static_cast<std::int64_t>(parts.size());
    if (count < 2) {
      if (count == 1) move(rounds.emplace_back(), owned, parts.begin()->second);
      return count;
    }
    const std::vector<tdl::Region> shares = shares_of(owned, cuts(value), plan_.levels, count);
    std::vector<LevelBytes>& of_parts = rounds.emplace_back();
    for (const auto& [number, part] : parts) move(of_parts, shares, part);
    if (shares != owned) move(rounds.emplace_back(), owned, shares);
    return count;
  }

  // What a worker receives to have `needed` out of what workers hold.
  void add(LevelBytes& received, graph::ValueId value, const tdl::Region& needed, const std::vector<tdl::Region>& held,
           std::size_t worker) const {
    const auto taker = static_cast<int>(worker);
    for (const Piece& piece : cover(needed, held, taker, distances_)) {
      if (piece.worker == taker) continue;
      received.resize(plan_.levels.size());
      received[static_cast<std::size_t>(distances_.nearness(piece.worker, taker))] +=
          tdl::volume(piece.region) * static_cast<std::int64_t>(element_size(program_.value(value).dtype));
    }
  }

  // An empty part of a scalar is one interval of no elements, which a scalar's own region does not have.
  bool is_something(const tdl::Region& region, graph::ValueId value) const {
    return region.size() == program_.value(value).shape.size() && tdl::volume(region) > 0;
  }
  tdl::Region nothing(graph::ValueId value) const {
    return tdl::Region(std::max<std::size_t>(program_.value(value).shape.size(), 1), tdl::Interval{});
  }

  const std::vector<Cut>& cuts(graph::ValueId value) const { return plan_.layouts[static_cast<std::size_t>(value)]; }

  const std::vector<tdl::Region>& regions(graph::ValueId value) {
    std::vector<tdl::Region>& regions = regions_[static_cast<std::size_t>(value)];
    if (regions.empty()) {
      regions = parts_by_worker(tdl::whole(program_.value(value).shape), cuts(value), plan_.levels);
    }
    return regions;
  }

  const graph::Program& program_;
  const Plan& plan_;
  const std::vector<bool>& used_;
  Distances distances_;
  std::vector<std::vector<int>> digits_;           // by worker
  std::vector<std::vector<tdl::Region>> regions_;  // by value, by worker; filled when first asked for
};

// What lowering keeps of fetched regions: one that an operator of the same phase fetched not long ago is not moved
// again.
class Kept {
 public:
  bool has(std::size_t worker, graph::ValueId value, graph::Phase phase, const tdl::Region& region,
           graph::NodeId node) {
    std::vector<std::int64_t> key = {static_cast<std::int64_t>(worker), value, static_cast<std::int64_t>(phase)};
    for (const tdl::Interval& interval : region) {
      key.push_back(interval.begin);
      key.push_back(interval.end);
    }
    const auto [entry, is_new] = last_use_.try_emplace(std::move(key), node);
    const bool kept = !is_new && node - entry->second <= kKeptPlaces;
    entry->second = node;
    return kept;
  }

 private:
  std::map<std::vector<std::int64_t>, graph::NodeId> last_use_;
};

// By node: a number shared by nodes that cost the same, because signature, cuts and layouts are the same.
std::vector<int> equal_nodes(const graph::Program& program, const Plan& plan, const std::vector<bool>& used) {
  const std::vector<int> signatures = node_signatures(program);
  std::map<std::vector<std::int64_t>, int> numbers;
  std::vector<int> equal;
  std::vector<std::int64_t> key;
  const auto append = [&key](const std::vector<Cut>& cuts) {
    for (const Cut& cut : cuts) {
      key.push_back(cut.axis);
      key.push_back(cut.granularity);
    }
  };
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    key.assign(1, signatures[id]);
    append(plan.nodes[id]);
    for (const graph::ValueId value : graph::values_read(program.nodes[id])) {
      append(plan.layouts[static_cast<std::size_t>(value)]);
    }
    for (const graph::ValueId value : program.nodes[id].outputs) {
      if (value != graph::kNone && used[static_cast<std::size_t>(value)]) {
        append(plan.layouts[static_cast<std::size_t>(value)]);
      } else {
        key.push_back(-2);
      }
    }
    equal.push_back(numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
  }
  return equal;
}

Traffic empty_traffic(const graph::Program& program, const Plan& plan) {
  Traffic traffic;
  traffic.nodes.resize(program.nodes.size());
  traffic.level_bytes.assign(plan.levels.size(), 0);
  traffic.worker_bytes.assign(static_cast<std::size_t>(plan.workers()), 0);
  return traffic;
}

// The busiest worker's, of those that receive something at one time.
class Busiest {
 public:
  void add(const LevelBytes& received) {
    if (sum(received) > sum(most_)) most_ = received;
  }
  void end(Traffic& traffic, graph::NodeId node, graph::NodeId sent, std::int64_t parts) {
    if (!most_.empty()) traffic.rounds.push_back({node, sent, std::move(most_), parts});
  }

 private:
  LevelBytes most_;
};

void add_node(Traffic& traffic, const graph::Program& program, graph::NodeId id, const NodeBytes& bytes, Kept& kept) {
  NodeTraffic& node = traffic.nodes[static_cast<std::size_t>(id)];
  const auto add = [&](std::int64_t& total, const LevelBytes& received, std::size_t worker) {
    for (std::size_t level = 0; level < received.size(); ++level) {
      traffic.level_bytes[level] += received[level];
    }
    traffic.worker_bytes[worker] += sum(received);
    total += sum(received);
  };
  const std::vector<graph::ValueId> values = graph::values_read(program.node(id));
  for (std::size_t operand = 0; operand < values.size(); ++operand) {
    std::int64_t& total = node.operands.emplace_back(0);
    Busiest busiest;
    for (std::size_t worker = 0; worker < bytes.operands[operand].size(); ++worker) {
      const LevelBytes& received = bytes.operands[operand][worker];
      if (!received.empty() &&
          !kept.has(worker, values[operand], program.node(id).phase, bytes.regions[operand][worker], id)) {
        add(total, received, worker);
        busiest.add(received);
      }
    }
    const graph::NodeId ready = program.value(values[operand]).producer;
    busiest.end(traffic, id, std::min(id, std::max(ready + 1, id - kPrefetch)), 0);
  }
  for (std::size_t result = 0; result < bytes.results.size(); ++result) {
    std::int64_t& total = node.results.emplace_back(0);
    std::int64_t parts = bytes.parts[result];
    for (const std::vector<LevelBytes>& round : bytes.results[result]) {
      Busiest busiest;
      for (std::size_t worker = 0; worker < round.size(); ++worker) {
        add(total, round[worker], worker);
        busiest.add(round[worker]);
      }
      busiest.end(traffic, id, graph::kNone, parts);
      parts = 0;  // shares of the sum are only put together
    }
  }
}

}  // namespace

std::int64_t NodeTraffic::total() const {
  return std::accumulate(results.begin(), results.end(),
                         std::accumulate(operands.begin(), operands.end(), std::int64_t{0}));
}

NodeTraffic node_traffic(const graph::Program& program, graph::NodeId node, const tdl::NodeSemantics& semantics,
                         const Plan& plan) {
  const std::vector<bool> used = values_in_use(program);
  Traffic traffic = empty_traffic(program, plan);
  Kept kept;
  add_node(traffic, program, node, Account(program, plan, used).of(node, semantics), kept);
  return traffic.nodes[static_cast<std::size_t>(node)];
}

Traffic plan_traffic(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                     const Plan& plan) {
  const std::vector<bool> used = values_in_use(program);
  const std::vector<int> equal = equal_nodes(program, plan, used);
  Traffic traffic = empty_traffic(program, plan);
  Account account(program, plan, used);
  Kept kept;
  std::vector<NodeBytes> distinct;
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    const auto number = static_cast<std::size_t>(equal[id]);
    if (number == distinct.size()) {
      distinct.push_back(account.of(static_cast<graph::NodeId>(id), semantics[id]));
    }
    add_node(traffic, program, static_cast<graph::NodeId>(id), distinct[number], kept);
  }
  traffic.total = sum(traffic.level_bytes);
  return traffic;
}

}  // namespace tesser::partition
