// Plan and topology files (docs/formats/plan.md).
//
// Errors name the file, the entry and the reason: kNotFound when there is no such file, kInvalidInput for what it
// holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "graph/program.h"
#include "partition/plan.h"
#include "partition/topology.h"
#include "tdl/catalogue.h"
#include "tdl/semantics.h"

namespace tesser::partition {

// Of the captured program's canonical text, 16 hexadecimal digits.
std::string program_hash(const graph::Program& captured);

// Of a plan's text, in the same form.
struct PlanRecord;
std::string plan_hash(const PlanRecord& record, const graph::Program& expanded);

// What a plan is expected to cost: bytes, seconds a step.
struct Prediction {
  std::int64_t bytes_per_step = 0;        // received by all workers together
  std::vector<std::int64_t> level_bytes;  // of that, what crosses between each level's groups
  std::int64_t state_bytes = 0;           // of the worker that needs most: its state, constants and batch
  std::int64_t peak_bytes = 0;            // of that worker: all of it at once
  double seconds = 0;
  bool operator==(const Prediction&) const = default;
};

// A plan with where it comes from.
struct PlanRecord {
  Plan plan;
  int replicas = 1;                          // that take a batch each, every one of them as the plan says
  std::optional<std::int64_t> memory_bytes;  // the bound it was made for
  std::string program_path;                  // relative to the plan's folder, as the paths below
  std::vector<std::string> descriptions;     // .tdl files
  Topology topology;
  Prediction predicted;
};

// The file's text without its checksum: equal plans give equal texts. `program` is expanded.
std::string plan_text(const PlanRecord& record, const graph::Program& program);

// Writes it with its checksum and commits the file.
Result<void> write_plan(const PlanRecord& record, const graph::Program& program, AtomicFile file);

// Whether a path names a plan, by its ending or by what it holds; false for what cannot be read.
bool is_plan(const std::filesystem::path& path);

// All of a plan but layouts and nodes, which need the program.
Result<PlanRecord> read_plan_header(const std::filesystem::path& path);

// The plan for this program; refused when it was made for another one.
Result<PlanRecord> read_plan(const std::filesystem::path& path, const graph::Program& captured,
                             const graph::Program& expanded);

// Checks that the plan's numbers mean something: counts, axes, variables that may be cut.
Result<void> verify(const Plan& plan, const graph::Program& expanded, const std::vector<tdl::NodeSemantics>& semantics);

// A plan with everything that is needed to use it.
struct OpenedPlan {
  PlanRecord record;
  graph::Program captured;
  graph::Program expanded;
  tdl::Catalogue catalogue;
  std::vector<tdl::NodeSemantics> semantics;  // by node of `expanded`
};

// Opens a plan and the program that it names, or that `program_path` does, and verifies them together.
Result<OpenedPlan> open_plan(const std::filesystem::path& path,
                             const std::optional<std::filesystem::path>& program_path = std::nullopt);

Result<Topology> read_topology(const std::filesystem::path& path);

}  // namespace tesser::partition
