// One worker's program while it is made. Internal to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/program.h"
#include "tdl/region.h"

namespace tesser::lowering {

// Where an event stands among those of one operator of the whole program (docs/formats/lowered.md, Order).
enum class Stage : std::uint8_t {
  kOpen,
  kSendArguments,
  kReceiveArguments,
  kSentArguments,  // before a call that may change in place what was sent
  kCall,
  kSendParts,
  kReceiveParts,
  kSendShares,
  kReceiveShares,
  kSent,
};

struct Place {
  graph::NodeId node = 0;  // of the whole program
  Stage stage = Stage::kOpen;
  auto operator<=>(const Place&) const = default;
};

// A value of the worker: a rectangle of a value of the whole program.
using LocalId = std::int32_t;

class WorkerBuilder {
 public:
  explicit WorkerBuilder(const graph::Program& whole) : whole_(whole) {}

  LocalId add_input(graph::ValueId of, const tdl::Region& region);
  // A result of a node to be added.
  LocalId add_value(const std::string& name, DType dtype, Shape shape);

  // A node whose arguments' and outputs' value numbers are LocalIds. Provenance (phase, module, ...) is that of the
  // whole program's node at `place`. Nodes may be added in any order.
  void add_node(Place place, std::string op, const std::string& name, std::vector<graph::Argument> args,
                std::vector<LocalId> outputs);

  const graph::Value& value(LocalId id) const { return values_[static_cast<std::size_t>(id)]; }

  void set_loss(LocalId id) { loss_ = id; }
  void add_metric(const std::string& name, LocalId id) { metrics_.push_back({name, id}); }
  void add_result(const std::string& name, LocalId id) { results_.push_back({name, id}); }
  void add_state_output(LocalId state, LocalId value) { state_outputs_.push_back({state, value}); }

  // Nodes in order, values numbered as graph::Program demands. Calls whose results nobody reads are left out.
  graph::Program finish(int worker) &&;

 private:
  void drop_unread_calls();

  struct Event {
    Place place;
    std::size_t sequence = 0;
    graph::Node node;
  };

  const graph::Program& whole_;
  std::vector<graph::Value> values_;
  std::vector<LocalId> inputs_;
  std::vector<graph::ValueId> whole_inputs_;  // by input: the value of the whole program
  std::vector<Event> events_;
  LocalId loss_ = graph::kNone;
  std::vector<graph::NamedOutput> metrics_;
  std::vector<graph::NamedOutput> results_;
  std::vector<graph::StateOutput> state_outputs_;
  std::unordered_map<std::string, int> value_names_;  // how often each was asked for
  std::unordered_map<std::string, int> node_names_;
};

}  // namespace tesser::lowering
