// From a captured step to one program a worker, for a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lowering/lower.h"
#include "partition/replicas.h"
#include "partition/search.h"
#include "partition/summary.h"

namespace tesser::runtime {

// Which plan: the one in a file, or the best that the search finds.
struct PlanChoice {
  int workers = 1;                            // 0: as the file says
  std::optional<std::filesystem::path> plan;  // made by `tesser plan`; the rest then is not looked at
  partition::Preset preset = partition::Preset::kDefault;
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::filesystem::path> topology;
  std::vector<std::filesystem::path> descriptions;  // .tdl files besides those shipped
  // For replicas: the step without its clipping by norm, each parameter updated by those that have it (a hub does
  // both).
  bool for_hub = false;
  // The topology is of the machines of so many replicas together; the plan is one replica's.
  int replicas_of_topology = 1;
};

struct ChosenPlan {
  lowering::Lowered lowered;
  // Where it was asked for: the forward program beside the step, whose parameters and buffers lie as the step's, so
  // that a worker has what it evaluates.
  std::optional<lowering::Lowered> forward;
  std::string program_hash;
  std::string plan_hash;
  std::vector<partition::Undescribed> undescribed;  // what every worker computes whole
  double clip_norm = 0;                             // PlanChoice::for_hub: what was taken out of the step; 0: none
};

// How choice.workers, those of all replicas, are divided into replicas of a plan each: every possibility with what it
// costs.
Result<std::vector<partition::ReplicaChoice>> divide_workers(const std::filesystem::path& program,
                                                             const PlanChoice& choice);

// `forward` is lowered too if given. kInvalidInput when the plan was made for another program or another number of
// workers.
Result<ChosenPlan> lower_for_workers(const std::filesystem::path& program, const PlanChoice& choice,
                                     const graph::Program* forward);

}  // namespace tesser::runtime
