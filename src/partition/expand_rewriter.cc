#include "partition/expand_rewriter.h"

#include <utility>

#include "base/check.h"

namespace tesser::partition {

using graph::Argument;
using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Program;
using graph::Value;
using graph::ValueId;
using graph::ValueRef;

Rewriter::Rewriter(const Program& source)
    : source_(source),
      values_(source.values.size(), kNone),
      nodes_(source.nodes.size(), kNone),
      read_(source.values.size()) {
  program_.name = source.name;
  program_.kind = source.kind;
  program_.producer = source.producer;
  program_.first_step = source.first_step;
  program_.schedules = source.schedules;
  program_.inputs = source.inputs;
  for (const ValueId input : source.inputs) {
    values_[static_cast<std::size_t>(input)] = input;  // inputs are the first values, in order
    program_.values.push_back(source.value(input));
  }
  const auto read = [this](ValueId value) {
    if (value != kNone) read_[static_cast<std::size_t>(value)] = true;
  };
  for (const Node& node : source.nodes) {
    node_names_.insert(node.name);
    for (const ValueId value : graph::values_read(node)) read(value);
  }
  for (const Value& value : source.values) value_names_.insert(value.name);
  read(source.loss);
  for (const auto* const outputs : {&source.metrics, &source.results}) {
    for (const graph::NamedOutput& output : *outputs) read(output.value);
  }
  for (const graph::StateOutput& output : source.state_outputs) read(output.value);
}

bool Rewriter::is_read(ValueId source_value) const {
  return source_value != kNone && read_[static_cast<std::size_t>(source_value)];
}

Argument Rewriter::renamed(const Argument& argument) const {
  if (const auto* const reference = std::get_if<ValueRef>(&argument)) return ValueRef{renamed(reference->id)};
  if (const auto* const list = std::get_if<std::vector<ValueRef>>(&argument)) {
    std::vector<ValueRef> entries;
    entries.reserve(list->size());
    for (const ValueRef& entry : *list) entries.push_back({renamed(entry.id)});
    return entries;
  }
  return argument;
}

Argument Rewriter::argument(std::size_t index) const {
  return index < node_->args.size() ? renamed(node_->args[index]) : Argument(graph::None{});
}

ValueId Rewriter::value(std::size_t index) const { return renamed(graph::value_argument(*node_, index)); }

ValueId Rewriter::result(std::size_t index) const {
  return index < node_->outputs.size() ? node_->outputs[index] : kNone;
}

std::string Rewriter::unique(std::string name, std::unordered_set<std::string>& taken) const {
  std::string candidate = name;
  for (int number = 2; !taken.insert(candidate).second; ++number) candidate = name + "_" + std::to_string(number);
  return candidate;
}

NodeId Rewriter::forward() const {
  return node_->forward == kNone ? kNone : nodes_[static_cast<std::size_t>(node_->forward)];
}

std::vector<ValueId> Rewriter::add(std::string_view suffix, std::string op, std::vector<Argument> args,
                                   const std::vector<std::optional<NewResult>>& results) {
  const auto id = static_cast<NodeId>(program_.nodes.size());
  Node made;
  made.name = suffix.empty() ? node_->name : unique(node_->name + "/" + std::string(suffix), node_names_);
  made.op = std::move(op);
  made.args = std::move(args);
  made.phase = node_->phase;
  made.forward = forward();
  made.module = node_->module;
  made.source = node_->source;
  made.recurrence = node_->recurrence;
  made.timestep = node_->timestep;
  made.micro_batch = node_->micro_batch;
  for (std::size_t place = 0; place < results.size(); ++place) {
    if (!results[place].has_value()) {
      made.outputs.push_back(kNone);
      continue;
    }
    const NewResult& result = *results[place];
    const auto value_id = static_cast<ValueId>(program_.values.size());
    Value value;
    if (result.replaces == kNone) {
      value.name = unique(place == 0 ? made.name : made.name + "." + std::to_string(place), value_names_);
      value.dtype = result.dtype;
      value.shape = result.shape;
    } else {
      ValueId& stands_for = values_[static_cast<std::size_t>(result.replaces)];
      TESSER_CHECK(stands_for == kNone, "value " + source_.value(result.replaces).name + " is made twice");
      stands_for = value_id;
      value = source_.value(result.replaces);
    }
    value.producer = id;
    value.output_index = static_cast<int>(place);
    program_.values.push_back(std::move(value));
    made.outputs.push_back(value_id);
  }
  program_.nodes.push_back(std::move(made));
  return program_.nodes.back().outputs;
}

ValueId Rewriter::add_one(std::string_view suffix, std::string op, std::vector<Argument> args, NewResult result) {
  return add(suffix, std::move(op), std::move(args), {std::move(result)}).front();
}

void Rewriter::mark_forward() { marked_ = static_cast<NodeId>(program_.nodes.size()) - 1; }

void Rewriter::begin_node(NodeId id) {
  node_id_ = id;
  node_ = &source_.node(id);
  first_ = program_.nodes.size();
  marked_ = kNone;
}

void Rewriter::copy_node() {
  Node made = *node_;
  made.forward = forward();
  for (Argument& argument : made.args) argument = renamed(argument);
  for (ValueId& output : made.outputs) {
    if (output == kNone) continue;
    const ValueId from = std::exchange(output, static_cast<ValueId>(program_.values.size()));
    values_[static_cast<std::size_t>(from)] = output;
    program_.values.push_back(source_.value(from));
    program_.values.back().producer = static_cast<NodeId>(program_.nodes.size());
  }
  program_.nodes.push_back(std::move(made));
  end_node();
}

void Rewriter::end_node() {
  const bool any = program_.nodes.size() > first_;
  nodes_[static_cast<std::size_t>(node_id_)] = marked_ != kNone ? marked_
                                               : any            ? static_cast<NodeId>(program_.nodes.size()) - 1
                                                                : kNone;
}

Program Rewriter::finish() {
  program_.loss = renamed(source_.loss);
  for (const graph::NamedOutput& metric : source_.metrics) {
    program_.metrics.push_back({metric.name, renamed(metric.value)});
  }
  for (const graph::NamedOutput& result : source_.results) {
    program_.results.push_back({result.name, renamed(result.value)});
  }
  for (const graph::StateOutput& output : source_.state_outputs) {
    program_.state_outputs.push_back({output.state, renamed(output.value)});
  }
  return std::move(program_);
}

NewResult in_place_of(ValueId source_value) {
  NewResult result;
  result.replaces = source_value;
  return result;
}

Argument dtype_argument(DType dtype) { return graph::Enumerator{"dtype", std::string(dtype_name(dtype))}; }

}  // namespace tesser::partition
