#include "platform/scheduler/room.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "platform/job/resources_text.h"

namespace tesser::platform {
namespace {

std::int64_t amount_of(const Resources& resources, const std::string& type) {
  const auto found = resources.accelerators.find(type);
  return found == resources.accelerators.end() ? 0 : found->second;
}

// Learners that fit on the node when it is empty; no more than `most`.
std::int64_t learners_on(const Node& node, const Resources& each, std::int64_t most) {
  const auto bound = [&](std::int64_t has, std::int64_t needs) {
    if (needs > 0) {
      most = std::min(most, has / needs);
    }
  };
  bound(node.capacity.millicpus, each.millicpus);
  if (node.capacity.memory_bytes > 0) {  // else it is not counted
    bound(node.capacity.memory_bytes, each.memory_bytes);
  }
  for (const auto& [type, count] : each.accelerators) {
    bound(amount_of(node.capacity, type), count);
  }
  return most;
}

// Of what a learner needs, the accelerators first.
auto size_for(const Node& node, const Resources& each) {
  std::int64_t accelerators = 0;
  for (const auto& [type, count] : each.accelerators) {
    accelerators += std::min(amount_of(node.capacity, type), count);
  }
  return std::tuple(accelerators, node.capacity.millicpus, node.capacity.memory_bytes);
}

}  // namespace

std::string why_never(std::int64_t learners, const Resources& each, const std::vector<Node>& nodes) {
  std::int64_t fits = 0;
  for (const Node& node : nodes) {
    fits += learners_on(node, each, learners);
  }
  if (fits >= learners) {
    return "";
  }
  const std::string needs = needs_text(learners, each);
  if (nodes.empty()) {
    return needs + ", but there are no nodes";
  }
  if (fits > 0) {
    return fmt::format("{}, but {} of this size fit{} on all nodes together", needs, learners_text(fits),
                       fits == 1 ? "s" : "");
  }
  const Node& largest = *std::max_element(
      nodes.begin(), nodes.end(), [&](const Node& a, const Node& b) { return size_for(a, each) < size_for(b, each); });
  Resources has = largest.capacity;
  if (has.memory_bytes == 0) {
    has.memory_bytes = kAnyMemory;
  }
  return fmt::format("{}, but no node is large enough for one; the largest, {}, has {}", needs, largest.name,
                     amounts_text(has, each));
}

}  // namespace tesser::platform
