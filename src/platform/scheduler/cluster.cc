#include "platform/scheduler/cluster.h"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/check.h"

namespace tesser::platform {
namespace {

// More than anybody asks for, and far enough from the largest number that sums stay inside.
constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max() / 4;
constexpr std::size_t kFirstAccelerator = 2;

}  // namespace

Result<ResourceKinds> ResourceKinds::of(const std::vector<Node>& nodes) {
  std::set<std::string> types;
  for (const Node& node : nodes) {
    for (const auto& [type, count] : node.capacity.accelerators) {
      types.insert(type);
    }
  }
  if (types.size() > kMostKinds - kFirstAccelerator) {
    return invalid_input(fmt::format("the nodes have {} types of accelerators, and the scheduler knows at most {}",
                                     types.size(), kMostKinds - kFirstAccelerator));
  }
  ResourceKinds kinds;
  kinds.accelerators_.assign(types.begin(), types.end());
  return kinds;
}

Amounts ResourceKinds::asked(const Resources& resources) const {
  Amounts amounts{};
  amounts[0] = resources.millicpus;
  amounts[1] = resources.memory_bytes;
  for (const auto& [type, count] : resources.accelerators) {
    const auto found = std::lower_bound(accelerators_.begin(), accelerators_.end(), type);
    if (found != accelerators_.end() && *found == type) {
      amounts[kFirstAccelerator + static_cast<std::size_t>(found - accelerators_.begin())] = count;
    } else if (count > 0) {
      amounts[0] = kUnbounded;
    }
  }
  return amounts;
}

Amounts ResourceKinds::offered(const Resources& resources) const {
  Amounts amounts = asked(resources);
  if (resources.memory_bytes == 0) {
    amounts[1] = kUnbounded;
  }
  return amounts;
}

Amounts ResourceKinds::bounded(const Resources& resources) const {
  Resources known = resources;
  std::erase_if(known.accelerators, [&](const auto& each) {
    return !std::binary_search(accelerators_.begin(), accelerators_.end(), each.first);
  });
  Amounts amounts = asked(known);
  for (std::int64_t& amount : amounts) {
    amount = amount == 0 ? kUnbounded : amount;
  }
  return amounts;
}

std::string ResourceKinds::text(std::size_t kind, std::int64_t amount) const {
  if (kind == 0) {
    return fmt::format("{} cpu{}", static_cast<double>(amount) / 1000, amount == 1000 ? "" : "s");
  }
  return kind == 1 ? bytes_text(amount) : fmt::format("{} {}", amount, accelerators_[kind - kFirstAccelerator]);
}

std::int64_t learners_that_fit(const Amounts& free, const Amounts& each, std::int64_t most) {
  for (std::size_t kind = 0; kind < kMostKinds && most > 0; ++kind) {
    if (each[kind] > 0) {
      most = std::min(most, std::max<std::int64_t>(free[kind], 0) / each[kind]);
    }
  }
  return most;
}

Amounts operator*(const Amounts& amounts, std::int64_t times) {
  Amounts product = amounts;
  for (std::int64_t& amount : product) {
    if (__builtin_mul_overflow(amount, times, &amount)) {
      amount = kUnbounded;
    }
  }
  return product;
}

Amounts& operator+=(Amounts& to, const Amounts& more) {
  for (std::size_t kind = 0; kind < kMostKinds; ++kind) {
    to[kind] += more[kind];
  }
  return to;
}

Amounts& operator-=(Amounts& from, const Amounts& less) {
  for (std::size_t kind = 0; kind < kMostKinds; ++kind) {
    from[kind] -= less[kind];
  }
  return from;
}

Cluster::Cluster(const std::vector<Node>& nodes, const ResourceKinds& kinds) {
  nodes_.reserve(nodes.size());
  std::map<Amounts, std::size_t> numbers;
  for (const Node& node : nodes) {
    Entry entry;
    entry.name = node.name;
    entry.free = kinds.offered(node.capacity);
    entry.is_open = node.is_ready && !node.is_draining;
    entry.is_draining = node.is_draining;
    drains_ = drains_ || node.is_draining;
    const auto [known, is_new] = numbers.emplace(entry.free, capacities_.size());
    if (is_new) {
      capacities_.push_back(entry.free);
    }
    entry.capacity = known->second;
    numbers_.emplace(node.name, size());
    nodes_.push_back(std::move(entry));
    enter(size() - 1);
  }
}

int Cluster::node_named(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

void Cluster::take(int node, const Amounts& amounts) {
  leave(node);
  nodes_[static_cast<std::size_t>(node)].free -= amounts;
  enter(node);
}

void Cluster::give(int node, const Amounts& amounts) {
  leave(node);
  nodes_[static_cast<std::size_t>(node)].free += amounts;
  enter(node);
}

void Cluster::enter(int node) {
  Entry& entry = nodes_[static_cast<std::size_t>(node)];
  if (entry.is_open) {
    std::vector<int>& members = classes_[{static_cast<int>(entry.capacity), entry.free}];
    entry.position = members.size();
    members.push_back(node);
  }
}

void Cluster::leave(int node) {
  Entry& entry = nodes_[static_cast<std::size_t>(node)];
  if (!entry.is_open) {
    return;
  }
  const auto found = classes_.find({static_cast<int>(entry.capacity), entry.free});
  TESSER_CHECK(found != classes_.end(), "node " + entry.name + " in no class");
  std::vector<int>& members = found->second;
  const int last = members.back();
  members[entry.position] = last;
  nodes_[static_cast<std::size_t>(last)].position = entry.position;
  members.pop_back();
  if (members.empty()) {
    classes_.erase(found);
  }
}

}  // namespace tesser::platform
