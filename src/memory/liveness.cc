#include "memory/liveness.h"

#include <algorithm>

#include "graph/operator_class.h"
#include "memory/views.h"

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
  explicit Analysis(const Program& program) : program_(program), strides_(program.values.size()) {
    liveness_.storage_of.assign(program.values.size(), kNone);
  }

  Liveness run() {
    const auto last = static_cast<NodeId>(program_.nodes.empty() ? 0 : program_.nodes.size() - 1);
    for (const ValueId input : program_.inputs) {
      make(input, 0, true);
      strides_[static_cast<std::size_t>(input)] = contiguous_strides(program_.value(input).shape);
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
    const ValueId first = first_argument(node);
    if (first != kNone && storage_of(first) != kNone) {
      const auto views = view_strides(program_, node, strides_[static_cast<std::size_t>(first)]);
      if (views.has_value()) {
        for (std::size_t result = 0; result < node.outputs.size(); ++result) {
          if (const ValueId output = node.outputs[result]; output != kNone) {
            share(output, first, id);
            strides_[static_cast<std::size_t>(output)] = (*views)[result];
          }
        }
        return;
      }
    }
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      const ValueId output = node.outputs[result];
      if (output == kNone) {
        continue;
      }
      if (const ValueId replaced = replaced_state(node, result); replaced != kNone && storage_of(replaced) != kNone) {
        share(output, replaced, id);
        strides_[static_cast<std::size_t>(output)] = strides_[static_cast<std::size_t>(replaced)];
      } else {
        make(output, id, false);
        strides_[static_cast<std::size_t>(output)] = fresh_strides(program_, node, result, strides_);
      }
    }
  }

  static ValueId first_argument(const Node& node) {
    const auto* const reference = node.args.empty() ? nullptr : std::get_if<ValueRef>(&node.args[0]);
    return reference == nullptr ? kNone : reference->id;
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
  std::vector<Strides> strides_;  // by value
};

}  // namespace

Liveness analyze_liveness(const Program& program) { return Analysis(program).run(); }

}  // namespace tesser::memory
