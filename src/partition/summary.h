// What a plan amounts to, for people: how things are cut in words, what moves and why, what it costs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/program.h"
#include "partition/format.h"
#include "partition/memory.h"
#include "partition/plan.h"
#include "partition/step_time.h"
#include "partition/topology.h"
#include "partition/traffic.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// "rows / 4, columns / 2", "dim 1 of 3 / 8 in blocks of 16", "whole on every worker", "rows / 2, 4 copies". Levels that
// cut the same dimension are taken together.
std::string layout_text(const std::vector<Cut>& cuts, const std::vector<Level>& levels, std::size_t rank);

// How a node is cut, by its description's variables: "i / 4, k / 2 (sum)", "all of it on every worker".
std::string cut_text(const std::vector<Cut>& cuts, const std::vector<Level>& levels,
                     const tdl::NodeSemantics& semantics);

// A name with the numbers among its parts as stars: layers that are alike have the same.
std::string pattern(const std::string& name);  // "blocks.*.fc1.weight"

struct PlanCost {
  Traffic traffic;
  WorkerMemory memory;
  StepTime time;
};
PlanCost plan_cost(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, const Plan& plan,
                   const Topology& topology);
Prediction prediction(const PlanCost& cost);

// Operators without a description that fits, which every worker computes whole: each once for each reason.
struct Undescribed {
  std::string op;
  std::string misfit;  // why its description does not fit; empty: there is none
  std::int64_t nodes = 0;
  std::string first;  // "node mul_3 in block.0 at model.py:12"
};
std::vector<Undescribed> undescribed_operators(const graph::Program& program,
                                               const std::vector<tdl::NodeSemantics>& semantics);
std::string warning_text(const Undescribed& undescribed);

// One line of the tables, for all that are alike. Lists are in the order in which the program first uses them.
struct TensorRow {
  std::string name;  // a pattern
  DType dtype = DType::kFloat32;
  Shape shape;
  std::string layout;
  std::int64_t count = 0;
  std::int64_t worker_bytes = 0;  // of the first worker, of all of them
};
std::vector<TensorRow> parameter_rows(const graph::Program& program, const Plan& plan);

struct ModuleRow {
  std::string module;  // a pattern; "" for the root and for what has no module
  std::int64_t modules = 0;
  Shape shape;  // of the last thing its forward pass computes; with its layout
  std::string layout;
  std::int64_t forward_bytes = 0;  // received by all workers in a step, by phase
  std::int64_t backward_bytes = 0;
  std::int64_t other_bytes = 0;  // clipping and update
};
std::vector<ModuleRow> module_rows(const graph::Program& program, const Plan& plan, const Traffic& traffic);

struct OperatorRow {
  std::string op;
  std::string cut;  // cut_text()
  std::int64_t nodes = 0;
  std::int64_t bytes = 0;
};
std::vector<OperatorRow> operator_rows(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                                       const Plan& plan, const Traffic& traffic);  // most bytes first

// "all-reduce of the gradient of blocks.*.fc1.weight: its parts are summed over dimension 0 of ..."
struct TransferRow {
  std::string what;
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};
std::vector<TransferRow> transfer_rows(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                                       const Plan& plan, const Traffic& traffic);  // most bytes first

}  // namespace tesser::partition
