#include "memory/liveness.h"

#include <algorithm>

#include "graph/operator_class.h"
#include "layout/layouts.h"

namespace tesser::memory {
namespace {

using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;

class Analysis {
 public:
  explicit Analysis(const Program& program) : program_(program), layouts_(program) {
    liveness_.storage_of.assign(program.values.size(), kNone);
  }

  Liveness run() {
    const auto last = static_cast<NodeId>(program_.nodes.empty() ? 0 : program_.nodes.size() - 1);
    for (const ValueId input : program_.inputs) {
      make(input, 0, true);
      liveness_.storages.back().last_node = last;
    }
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes.size()); ++id) {
      const Node& node = program_.node(id);
      for (const ValueId read : graph::values_read(node)) {
        use(read, id);
      }
      define_results(node, id);
    }
    use(program_.loss, last);
    for (const auto* const outputs : {&program_.metrics, &program_.results}) {
      for (const graph::NamedOutput& output : *outputs) {
        use(output.value, last);
      }
    }
    for (const graph::StateOutput& output : program_.state_outputs) {
      use(output.value, last);
    }
    return std::move(liveness_);
  }

 private:
  std::int32_t& storage_of(ValueId value) { return liveness_.storage_of[static_cast<std::size_t>(value)]; }

  void make(ValueId value, NodeId node, bool is_input) {
    storage_of(value) = static_cast<std::int32_t>(liveness_.storages.size());
    liveness_.storages.push_back({value, program_.value(value).bytes(), node, node, is_input});
  }

  void use(ValueId value, NodeId node) {
    if (value == kNone || storage_of(value) == kNone) {
      return;
    }
    Storage& storage = liveness_.storages[static_cast<std::size_t>(storage_of(value))];
    storage.last_node = std::max(storage.last_node, node);
  }

  void share(ValueId value, ValueId other, NodeId node) {
    storage_of(value) = storage_of(other);
    use(value, node);
  }

  void define_results(const Node& node, NodeId id) {
    const ValueId first = graph::value_argument(node, 0);
    const bool is_view = first != kNone && storage_of(first) != kNone && layouts_.is_view(node);
    layouts_.define(node);
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      const ValueId output = node.outputs[result];
      if (output == kNone) {
        continue;
      }
      if (is_view) {
        share(output, first, id);
      } else if (const ValueId replaced = replaced_state(node, result);
                 replaced != kNone && storage_of(replaced) != kNone) {
        share(output, replaced, id);
      } else {
        make(output, id, false);
      }
    }
  }

  // The argument that an update's result takes the place of.
  static ValueId replaced_state(const Node& node, std::size_t result) {
    constexpr std::size_t kSgdPlaces[] = {0, 2};         // parameter, momentum_buffer
    constexpr std::size_t kAdamPlaces[] = {0, 2, 3, 4};  // parameter, exp_avg, exp_avg_sq, max_exp_avg_sq
    const std::string_view name = graph::base_name(node.op);
    std::size_t place = 0;
    if (name == "tesser::sgd" && result < std::size(kSgdPlaces)) {
      place = kSgdPlaces[result];
    } else if (name == "tesser::adam" && result < std::size(kAdamPlaces)) {
      place = kAdamPlaces[result];
    } else {
      return kNone;
    }
    const auto* const reference = place < node.args.size() ? std::get_if<ValueRef>(&node.args[place]) : nullptr;
    return reference == nullptr ? kNone : reference->id;
  }

  const Program& program_;
  Liveness liveness_;
  layout::Layouts layouts_;
};

}  // namespace

Liveness analyze_liveness(const Program& program) { return Analysis(program).run(); }

}  // namespace tesser::memory
