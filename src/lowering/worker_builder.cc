#include "lowering/worker_builder.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace tesser::lowering {
namespace {

// Applies `renumber` to every value that an argument names.
template <typename Renumber>
void renumber_argument(graph::Argument& argument, const Renumber& renumber) {
  if (auto* const reference = std::get_if<graph::ValueRef>(&argument)) {
    reference->id = renumber(reference->id);
  } else if (auto* const list = std::get_if<std::vector<graph::ValueRef>>(&argument)) {
    for (graph::ValueRef& entry : *list) {
      entry.id = renumber(entry.id);
    }
  }
}

bool moves_tensors(const graph::Node& node) {
  return node.op == "tesser::open" || node.op == "tesser::receive" || node.op == "tesser::send" ||
         node.op == "tesser::sent";
}

// The name, with a number if it is taken. `taken` counts how often each was asked for.
std::string unique(std::unordered_map<std::string, int>& taken, const std::string& name) {
  const int count = ++taken[name];
  return count == 1 ? name : unique(taken, name + "#" + std::to_string(count));
}

}  // namespace

LocalId WorkerBuilder::add_input(graph::ValueId of, const tdl::Region& region) {
  graph::Value value = whole_.value(of);
  if (region != tdl::whole(value.shape)) {
    value.whole_shape = value.shape;
    for (const tdl::Interval& interval : region) {
      value.region_begin.push_back(interval.begin);
    }
    value.shape = tdl::shape_of(region);
  }
  value.name = unique(value_names_, value.name);
  values_.push_back(std::move(value));
  inputs_.push_back(static_cast<LocalId>(values_.size()) - 1);
  whole_inputs_.push_back(of);
  return inputs_.back();
}

LocalId WorkerBuilder::add_value(const std::string& name, DType dtype, Shape shape) {
  graph::Value value;
  value.name = unique(value_names_, name);
  value.dtype = dtype;
  value.shape = std::move(shape);
  value.role = graph::Role::kIntermediate;
  values_.push_back(std::move(value));
  return static_cast<LocalId>(values_.size()) - 1;
}

void WorkerBuilder::add_node(Place place, std::string op, const std::string& name, std::vector<graph::Argument> args,
                             std::vector<LocalId> outputs) {
  Event event{place, events_.size(), {}};
  const graph::Node& of = whole_.node(place.node);
  event.node.name = unique(node_names_, name);
  event.node.op = std::move(op);
  event.node.args = std::move(args);
  event.node.outputs = std::move(outputs);
  event.node.phase = of.phase;
  event.node.module = of.module;
  event.node.source = of.source;
  event.node.recurrence = of.recurrence;
  event.node.timestep = of.timestep;
  event.node.micro_batch = of.micro_batch;
  events_.push_back(std::move(event));
}

// A worker may have a part of a node whose result other workers make for whoever needs it. Transfers stay, since each
// has two ends.
void WorkerBuilder::drop_unread_calls() {
  std::vector<bool> read(values_.size(), false);
  const auto mark = [&read](LocalId id) {
    if (id != graph::kNone) {
      read[static_cast<std::size_t>(id)] = true;
    }
  };
  mark(loss_);
  for (const auto* const outputs : {&metrics_, &results_}) {
    for (const graph::NamedOutput& output : *outputs) {
      mark(output.value);
    }
  }
  for (const graph::StateOutput& output : state_outputs_) {
    mark(output.value);
  }
  std::vector<bool> kept(events_.size(), false);
  for (std::size_t index = events_.size(); index-- > 0;) {
    const graph::Node& node = events_[index].node;
    kept[index] = moves_tensors(node) || std::any_of(node.outputs.begin(), node.outputs.end(), [&read](LocalId id) {
                    return id != graph::kNone && read[static_cast<std::size_t>(id)];
                  });
    if (kept[index]) {
      const std::vector<graph::ValueId> operands = graph::values_read(node);
      std::for_each(operands.begin(), operands.end(), mark);
    }
  }
  std::size_t index = 0;
  std::erase_if(events_, [&](const Event& /*event*/) { return !kept[index++]; });
}

graph::Program WorkerBuilder::finish(int worker) && {
  std::sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return std::pair(a.place, a.sequence) < std::pair(b.place, b.sequence);
  });
  drop_unread_calls();
  graph::Program program;
  program.name = whole_.name;
  program.kind = whole_.kind;
  program.producer = whole_.producer + ", worker " + std::to_string(worker);
  program.first_step = whole_.first_step;
  program.schedules = whole_.schedules;
  std::vector<graph::ValueId> numbers(values_.size(), graph::kNone);
  const auto number = [&](LocalId id) {
    return id == graph::kNone ? graph::kNone : numbers[static_cast<std::size_t>(id)];
  };
  const auto add = [&](LocalId id) {
    numbers[static_cast<std::size_t>(id)] = static_cast<graph::ValueId>(program.values.size());
    program.values.push_back(std::move(values_[static_cast<std::size_t>(id)]));
  };
  std::unordered_map<graph::ValueId, graph::ValueId> local_of;  // by value of the whole program
  for (std::size_t index = 0; index < inputs_.size(); ++index) {
    add(inputs_[index]);
    program.inputs.push_back(number(inputs_[index]));
    local_of.emplace(whole_inputs_[index], program.inputs.back());
  }
  for (const graph::ValueId input : program.inputs) {
    graph::Value& value = program.values[static_cast<std::size_t>(input)];
    if (value.of != graph::kNone) {
      value.of = local_of.at(value.of);  // optimizer state lies as its parameter does
    }
  }
  for (Event& event : events_) {
    for (graph::Argument& argument : event.node.args) {
      renumber_argument(argument, number);
    }
    int index = 0;
    for (graph::ValueId& output : event.node.outputs) {
      if (output != graph::kNone) {
        add(output);
        output = number(output);
        program.values.back().producer = static_cast<graph::NodeId>(program.nodes.size());
        program.values.back().output_index = index;
      }
      ++index;
    }
    program.nodes.push_back(std::move(event.node));
  }
  program.loss = number(loss_);
  for (const auto& [name, id] : metrics_) {
    program.metrics.push_back({name, number(id)});
  }
  for (const auto& [name, id] : results_) {
    program.results.push_back({name, number(id)});
  }
  for (const auto& [state, value] : state_outputs_) {
    program.state_outputs.push_back({number(state), number(value)});
  }
  return program;
}

}  // namespace tesser::lowering
