// A training step or forward pass in single-assignment form, as docs/formats/program.md describes it.
//
// Program is a plain value: copy it, change it, verify() it again. Indices (ValueId, NodeId) are positions in `values`
// and `nodes`. Not thread-safe for writing; any number of threads may read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/tensor.h"

namespace tesser::graph {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

enum class Kind : std::uint8_t { kStep, kForward };
enum class Phase : std::uint8_t { kForward, kBackward, kClip, kUpdate };
enum class Role : std::uint8_t {
  kParameter,
  kOptimizerState,
  kBuffer,
  kBatch,
  kStep,
  kLearningRate,
  kSeed,
  kConstant,
  kIntermediate,  // result of a node
};

// Argument of a node.
struct None {
  bool operator==(const None&) const = default;
};
struct ValueRef {
  ValueId id = kNone;  // kNone inside a list stands for null
  bool operator==(const ValueRef&) const = default;
};
// PyTorch's enumerations: kind is "dtype", "layout", "device" or "memory_format".
struct Enumerator {
  std::string kind;
  std::string name;
  bool operator==(const Enumerator&) const = default;
};
using Argument = std::variant<None, ValueRef, std::vector<ValueRef>, bool, std::int64_t, double, std::string,
                              Enumerator, std::vector<std::int64_t>, std::vector<double>, std::vector<bool>>;
// An empty JSON list is read as an empty std::vector<std::int64_t>.

struct Value {
  std::string name;
  Role role = Role::kIntermediate;
  DType dtype = DType::kFloat32;
  Shape shape;
  NodeId producer = kNone;  // node that defines it; kNone for an input
  int output_index = 0;     // which result of the producer

  // Inputs only; see docs/formats/program.md.
  bool trainable = false;
  std::vector<std::string> aliases;
  ValueId of = kNone;
  std::string slot;
  bool starts_as_zeros = false;
  bool persistent = true;
  int schedule = kNone;
  // Of one worker's part of a value (docs/formats/lowered.md); empty when it is the whole.
  Shape region_begin;
  Shape whole_shape;

  std::int64_t elements() const { return element_count(shape); }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(element_size(dtype)); }
  bool is_state() const { return role == Role::kParameter || role == Role::kOptimizerState || role == Role::kBuffer; }
};

struct Node {
  std::string name;
  std::string op;  // "aten::add.Tensor"
  std::vector<Argument> args;
  std::vector<ValueId> outputs;  // kNone for a result that does not exist
  Phase phase = Phase::kForward;
  NodeId forward = kNone;
  std::optional<std::string> module;
  std::string source;      // "file:line", empty when unknown
  std::string recurrence;  // empty outside unrolled loops
  int timestep = kNone;
  int micro_batch = kNone;
};

struct StateOutput {
  ValueId state = kNone;  // the state input
  ValueId value = kNone;  // its new content
};
struct NamedOutput {
  std::string name;
  ValueId value = kNone;
};

// Learning rate as a function of the number of steps done; kinds and keys as in docs/formats/program.md.
struct Schedule {
  enum class Kind : std::uint8_t {
    kConstant,
    kStep,
    kLinear,
    kCosine,
    kCosineWave,
    kOneCycle,
    kSequence,
    kEnd,
  };
  Kind kind = Kind::kConstant;
  double rate = 0;
  std::int64_t every = 1;                                  // step
  double factor = 1;                                       // step
  double start = 1, end = 1;                               // linear
  std::int64_t steps = 1;                                  // linear, cosine, cosine_wave, one_cycle
  double minimum = 0;                                      // cosine, cosine_wave
  double maximum = 0, initial = 0, final = 0, rise = 0.3;  // one_cycle
  bool cosine_anneal = true;                               // one_cycle
  std::vector<Schedule> parts;                             // sequence
  std::vector<std::int64_t> milestones;

  // The rate of the step before which `step` were done; `step` lies before ends_at().
  double at(std::int64_t step) const;
  // The first step that has no rate; nothing when every step has one.
  std::optional<std::int64_t> ends_at() const;
};

struct Program {
  std::string name;
  Kind kind = Kind::kStep;
  std::string producer;
  std::int64_t first_step = 0;
  std::vector<Schedule> schedules;
  std::vector<Value> values;  // inputs first, in file order, then results in node order
  std::vector<ValueId> inputs;
  std::vector<Node> nodes;
  ValueId loss = kNone;
  std::vector<NamedOutput> metrics;
  std::vector<NamedOutput> results;
  std::vector<StateOutput> state_outputs;

  const Value& value(ValueId id) const { return values[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<std::size_t>(id)]; }
  ValueId find(const std::string& value_name) const;  // kNone when there is no such value (linear search)
};

// The value that an argument of a node is, or kNone when it is none or is not given.
ValueId value_argument(const Node& node, std::size_t index);
// The integer or float that an argument is; nothing when it is none or is not given.
std::optional<double> number_argument(const Node& node, std::size_t index);

// Every value a node reads, in argument order, lists included, duplicates kept, nulls left out.
std::vector<ValueId> values_read(const Node& node);

}  // namespace tesser::graph
