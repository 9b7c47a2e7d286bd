#include "platform/scheduler/gang_placement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace tesser::platform {
namespace {

// How strongly fullness and company of the own gang draw learners, or keep them away.
constexpr double kFullness = 6.0;
constexpr double kCompany = 50.0;

// The part of the node that is taken, 0 to 1, of the kind that the gang will run out of first.
double fullness(const Amounts& free, const Amounts& capacity, const Amounts& each) {
  double fullest = 0;
  for (std::size_t kind = 0; kind < kMostKinds; ++kind) {
    if (each[kind] > 0 && capacity[kind] > 0) {
      fullest = std::max(fullest, 1.0 - static_cast<double>(free[kind]) / static_cast<double>(capacity[kind]));
    }
  }
  return fullest;
}

// Places that are being tried: taken from the cluster, and given back at the end unless kept.
class Trial {
 public:
  Trial(Cluster& cluster, const Gang& gang) : cluster_(cluster), gang_(gang) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    for (const int node : nodes_) {
      cluster_.give(node, gang_.each);
    }
  }

  void add(int node) {
    cluster_.take(node, gang_.each);
    nodes_.push_back(node);
    ++learners_[node];
  }
  bool is_complete() const { return static_cast<std::int64_t>(nodes_.size()) == gang_.learners; }
  std::size_t size() const { return nodes_.size(); }
  // The node of each rank. Those of one node follow one another, since neighbours exchange most.
  std::vector<int> ranked() const {
    std::vector<int> sorted = nodes_;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }
  const std::map<int, std::int64_t>& learners() const { return learners_; }

  // Smaller is better: few nodes that are left full when packing, many that are left empty when spreading.
  std::tuple<std::int64_t, double> badness(PlacementPolicy policy) const {
    const auto used = static_cast<std::int64_t>(learners_.size());
    double sum = 0;
    double fullest = 0;
    for (const auto& [node, count] : learners_) {
      const double full = fullness(cluster_.free(node), cluster_.capacity(node), gang_.each);
      sum += full;
      fullest = std::max(fullest, full);
    }
    return policy == PlacementPolicy::kPack ? std::tuple(used, -sum) : std::tuple(-used, fullest);
  }

 private:
  Cluster& cluster_;
  const Gang& gang_;
  std::vector<int> nodes_;
  std::map<int, std::int64_t> learners_;  // by node
};

double bias(double full, PlacementPolicy policy) {
  return std::exp(policy == PlacementPolicy::kPack ? kFullness * full : -kFullness * full);
}

// A node for the next learner of the trial; -1 when none has room.
int draw(const Cluster& cluster, const Gang& gang, const Trial& trial, PlacementPolicy policy, RandomNumbers& random) {
  struct Choice {
    double up_to = 0;  // the sum of weights until here
    const std::vector<int>* alike = nullptr;
    int own = -1;
  };
  std::vector<Choice> choices;
  double sum = 0;
  for (const auto& [key, members] : cluster.classes()) {
    if (learners_that_fit(key.free, gang.each, 1) == 1) {
      sum += static_cast<double>(members.size()) * bias(fullness(key.free, cluster.capacity(key), gang.each), policy);
      choices.push_back({sum, &members, -1});
    }
  }
  // Nodes of the gang have their weight with their class already: here stands what company adds. Spreading leaves it
  // at that, since a node is made fuller by what it has.
  if (policy == PlacementPolicy::kPack) {
    for (const auto& [node, count] : trial.learners()) {
      if (learners_that_fit(cluster.free(node), gang.each, 1) == 1) {
        sum += kCompany * bias(fullness(cluster.free(node), cluster.capacity(node), gang.each), policy);
        choices.push_back({sum, nullptr, node});
      }
    }
  }
  if (choices.empty()) {
    return -1;
  }
  const double drawn = random.fraction() * sum;
  const auto found = std::upper_bound(choices.begin(), choices.end() - 1, drawn,
                                      [](double value, const Choice& choice) { return value < choice.up_to; });
  return found->alike == nullptr ? found->own : (*found->alike)[random.next() % found->alike->size()];
}

// The node that leaves least behind when packing, and the emptiest when spreading, and for how many learners it is the
// best; none when no node has room.
std::optional<std::pair<int, std::int64_t>> best_fit(const Cluster& cluster, const Gang& gang, const Trial& trial,
                                                     PlacementPolicy policy) {
  const std::int64_t missing = gang.learners - static_cast<std::int64_t>(trial.size());
  std::optional<std::pair<int, std::int64_t>> best;
  std::tuple<std::int64_t, double> least;
  for (const auto& [key, members] : cluster.classes()) {
    const std::int64_t fits = learners_that_fit(key.free, gang.each, missing);
    if (fits == 0) {
      continue;
    }
    const double full = fullness(key.free, cluster.capacity(key), gang.each);
    // Spreading: a node of the gang's own only when there is no other.
    const auto other = std::find_if(members.begin(), members.end(), [&](int node) {
      return policy == PlacementPolicy::kPack || trial.learners().count(node) == 0;
    });
    const int node = other == members.end() ? members.front() : *other;
    const std::tuple<std::int64_t, double> badness =
        policy == PlacementPolicy::kPack ? std::tuple(-fits, -full)
                                         : std::tuple(other == members.end() ? std::int64_t{1} : 0, full);
    if (!best || badness < least) {
      best.emplace(node, policy == PlacementPolicy::kPack ? fits : 1);
      least = badness;
    }
  }
  return best;
}

}  // namespace

std::uint64_t RandomNumbers::next() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

bool gang_fits(const Cluster& cluster, const Gang& gang) {
  std::int64_t missing = gang.learners;
  for (const auto& [key, members] : cluster.classes()) {
    const std::int64_t fits = learners_that_fit(key.free, gang.each, missing);
    if (fits > 0) {
      // Divided, not multiplied: both may be large.
      missing -= std::min(missing, fits * std::min<std::int64_t>(static_cast<std::int64_t>(members.size()),
                                                                 (missing + fits - 1) / fits));
    }
    if (missing == 0) {
      return true;
    }
  }
  return missing == 0;
}

std::optional<std::vector<int>> place_gang(Cluster& cluster, const Gang& gang, const PlacementSettings& settings,
                                           RandomNumbers& random) {
  if (!gang_fits(cluster, gang)) {
    return std::nullopt;
  }
  std::optional<std::vector<int>> best;
  std::tuple<std::int64_t, double> least;
  for (int sample = 0; sample < settings.samples; ++sample) {
    Trial trial(cluster, gang);
    while (!trial.is_complete()) {
      const int node = draw(cluster, gang, trial, settings.policy, random);
      if (node < 0) {
        break;
      }
      trial.add(node);
    }
    if (trial.is_complete() && (!best || trial.badness(settings.policy) < least)) {
      best = trial.ranked();
      least = trial.badness(settings.policy);
    }
  }
  if (best) {
    return best;
  }
  Trial trial(cluster, gang);
  while (!trial.is_complete()) {
    const auto best_node = best_fit(cluster, gang, trial, settings.policy);
    if (!best_node) {
      return std::nullopt;
    }
    for (std::int64_t learner = 0; learner < best_node->second; ++learner) {
      trial.add(best_node->first);
    }
  }
  return trial.ranked();
}

}  // namespace tesser::platform
