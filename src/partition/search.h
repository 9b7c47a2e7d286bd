// Finds a plan: coarsening, exact elimination for one level, recursion over the levels (Tofu, EuroSys 2019, section 5).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "partition/plan.h"
#include "partition/topology.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// "tofu": the paper's own setting. "default" goes further. The others are the baselines of the paper and of practice,
// under the same cost model.
enum class Preset : std::uint8_t {
  kTofu,
  kDefault,
  kDataParallel,
  kAllRowGreedy,
  kSpartan,
  kEqualChop,
  kNoReduction,
  kMegatron,
};
const std::vector<Preset>& presets();
std::string_view preset_name(Preset preset);  // "tofu", "default", "dp", "allrow-greedy", "spartan", ...
std::optional<Preset> preset_from_name(std::string_view name);

struct SearchOptions {
  int workers = 1;
  Preset preset = Preset::kDefault;
  std::optional<std::int64_t> memory_bytes;  // bound of one worker; only `default` trades for it
  Topology topology;
  // Of a program that shares tensors with one that has a plan, as a forward program with its step: these levels and no
  // others, and how those tensors lie at rest, by level.
  std::vector<Level> levels;
  std::map<graph::ValueId, std::vector<Cut>> layouts;
};

struct SearchReport {
  double seconds = 0;
  std::size_t groups = 0;          // of tensors that are laid out together
  std::size_t distinct_nodes = 0;  // signatures of nodes whose costs were computed
  std::size_t widest_table = 0;    // entries of the largest table of the elimination
};

// `program` is expanded, `semantics` by node. kInvalidInput when the options contradict each other or nothing can be
// cut into so many parts; kFailed naming the smallest worker count or the smallest bound that would do when the memory
// bound cannot be met.
Result<Plan> search(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                    const SearchOptions& options, SearchReport* report = nullptr);

}  // namespace tesser::partition
