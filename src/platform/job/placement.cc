#include "platform/job/placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "platform/job/resources_text.h"

namespace tesser::platform {
namespace {

constexpr std::int64_t kMostOnANode = 1'000'000;  // of a job that needs nothing
constexpr std::size_t kNodesInWords = 3;

struct FreeNode {
  const Node* node = nullptr;
  Resources free;
};

FreeNode all_of(const Node& node) {
  FreeNode all{&node, node.capacity};
  if (all.free.memory_bytes == 0) {  // not counted
    all.free.memory_bytes = kAnyMemory;
  }
  return all;
}

void take(Resources& free, const Resources& each, std::int64_t learners) {
  free.millicpus -= each.millicpus * learners;
  if (free.memory_bytes != kAnyMemory) {
    free.memory_bytes -= each.memory_bytes * learners;
  }
  for (const auto& [type, count] : each.accelerators) {
    free.accelerators[type] -= count * learners;
  }
}

// Learners that fit into what is free, `most` at most.
std::int64_t room(const Resources& free, const Resources& each, std::int64_t most) {
  std::int64_t fits = most;
  const auto bound = [&](std::int64_t amount, std::int64_t need) {
    if (need > 0) {
      fits = std::min(fits, std::max<std::int64_t>(amount, 0) / need);
    }
  };
  bound(free.millicpus, each.millicpus);
  bound(free.memory_bytes, each.memory_bytes);
  for (const auto& [type, count] : each.accelerators) {
    const auto found = free.accelerators.find(type);
    bound(found == free.accelerators.end() ? 0 : found->second, count);
  }
  return fits;
}

// Into as few nodes as can be, so that learners are near each other and large gaps stay whole: always the node with
// the most room, but at the end the one with the least that is enough. Empty when not all fit.
Placement pack(const WaitingJob& job, std::vector<FreeNode>& nodes) {
  std::vector<std::pair<std::int64_t, FreeNode*>> rooms;
  std::int64_t all = 0;
  for (FreeNode& node : nodes) {
    const std::int64_t fits = node.node->is_ready ? room(node.free, job.each, kMostOnANode) : 0;
    if (fits > 0) {
      rooms.emplace_back(fits, &node);
      all += fits;
    }
  }
  if (all < job.learners) {
    return {};
  }
  std::stable_sort(rooms.begin(), rooms.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Placement placement;
  std::int64_t left = job.learners;
  for (std::size_t i = 0; left > 0; ++i) {
    std::size_t best = i;
    while (best + 1 < rooms.size() && rooms[best + 1].first >= left) {
      ++best;
    }
    while (best > i && rooms[best - 1].first == rooms[best].first) {  // of equal ones the first
      --best;
    }
    const std::int64_t here = std::min(left, rooms[best].first);
    placement.insert(placement.end(), static_cast<std::size_t>(here), rooms[best].second->node->name);
    take(rooms[best].second->free, job.each, here);
    left -= here;
  }
  return placement;
}

std::string why_it_waits(const WaitingJob& job, const std::vector<FreeNode>& nodes) {
  std::int64_t fits = 0;
  std::string words;
  std::vector<const FreeNode*> roomiest;
  for (const FreeNode& node : nodes) {
    roomiest.push_back(&node);
    fits += node.node->is_ready ? room(node.free, job.each, job.learners) : 0;
  }
  std::stable_sort(roomiest.begin(), roomiest.end(), [&](const FreeNode* a, const FreeNode* b) {
    const auto key = [&](const FreeNode* node) {
      return std::tuple(node->node->is_ready, room(node->free, job.each, job.learners), node->free.millicpus);
    };
    return key(a) > key(b);
  });
  for (std::size_t i = 0; i < std::min(roomiest.size(), kNodesInWords); ++i) {
    const Node& node = *roomiest[i]->node;
    words += node.is_ready ? fmt::format("; {} has {} free", node.name, amounts_text(roomiest[i]->free, job.each))
                           : fmt::format("; {} takes none: {}", node.name,
                                         node.not_ready.empty() ? "it is not ready" : node.not_ready);
  }
  if (nodes.size() > kNodesInWords) {
    words += fmt::format("; {} more", nodes.size() - kNodesInWords);
  }
  return fmt::format("{}; {} fit{} now{}", needs_text(job.learners, job.each),
                     fits == 0 ? "none" : std::to_string(fits), fits == 1 ? "s" : "",
                     nodes.empty() ? "; there are no nodes" : words);
}

}  // namespace

std::vector<PlacementDecision> place_first_come_first_served(const ClusterSnapshot& snapshot) {
  std::vector<FreeNode> nodes;
  std::map<std::string, std::size_t> by_name;
  for (const Node& node : snapshot.nodes) {
    by_name.emplace(node.name, nodes.size());
    nodes.push_back(all_of(node));
  }
  for (const HeldPlaces& held : snapshot.held) {
    for (const std::string& name : held.nodes) {
      if (const auto found = by_name.find(name); found != by_name.end()) {
        take(nodes[found->second].free, held.each, 1);
      }
    }
  }
  std::vector<const WaitingJob*> queue;
  for (const WaitingJob& job : snapshot.waiting) {
    queue.push_back(&job);
  }
  std::sort(queue.begin(), queue.end(), [](const WaitingJob* a, const WaitingJob* b) {
    return std::tie(a->submitted_microseconds, a->id) < std::tie(b->submitted_microseconds, b->id);
  });
  std::vector<PlacementDecision> decisions;
  const WaitingJob* first = nullptr;  // of those that wait
  int place = 0;
  for (const WaitingJob* job : queue) {
    PlacementDecision decision;
    decision.job = job->id;
    if (first == nullptr) {
      decision.nodes = pack(*job, nodes);
    }
    if (decision.nodes.empty()) {
      decision.place_in_queue = ++place;
      if (first == nullptr) {
        first = job;
        decision.reason = why_it_waits(*job, nodes);
      } else {
        decision.reason = fmt::format("waits behind {} job{}; the first, {}, {}", place - 1, place == 2 ? "" : "s",
                                      first->id, needs_text(first->learners, first->each));
      }
    }
    decisions.push_back(std::move(decision));
  }
  return decisions;
}

std::string why_never(const WaitingJob& job, const std::vector<Node>& nodes) {
  std::int64_t fits = 0;
  const Node* largest = nullptr;
  for (const Node& node : nodes) {
    fits += room(all_of(node).free, job.each, job.learners);
    const auto key = [&](const Node& each) {
      std::int64_t accelerators = 0;
      for (const auto& [type, count] : job.each.accelerators) {
        const auto found = each.capacity.accelerators.find(type);
        accelerators += found == each.capacity.accelerators.end() ? 0 : std::min(found->second, count);
      }
      return std::tuple(accelerators, each.capacity.millicpus, each.capacity.memory_bytes);
    };
    if (largest == nullptr || key(node) > key(*largest)) {
      largest = &node;
    }
  }
  if (fits >= job.learners) {
    return "";
  }
  if (largest == nullptr) {
    return fmt::format("{}, but there are no nodes", needs_text(job.learners, job.each));
  }
  if (fits == 0) {
    return fmt::format("{}, but no node is large enough for one; the largest, {}, has {}",
                       needs_text(job.learners, job.each), largest->name,
                       amounts_text(all_of(*largest).free, job.each));
  }
  return fmt::format("{}, but {} of this size fit{} on all nodes together", needs_text(job.learners, job.each),
                     learners_text(fits), fits == 1 ? "s" : "");
}

}  // namespace tesser::platform
