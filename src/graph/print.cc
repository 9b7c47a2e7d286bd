#include "graph/print.h"

#include <cmath>

#include "base/json.h"
#include "graph/names.h"

namespace tesser::graph {
namespace {

std::string reference_text(const Program& program, ValueId id) {
  return id == kNone ? "None" : "%" + program.value(id).name;
}

std::string number_text(double number) {
  if (std::isnan(number)) {
    return "nan";
  }
  if (std::isinf(number)) {
    return number > 0 ? "inf" : "-inf";
  }
  return json_float(number);
}

template <typename List, typename ItemText>
std::string list_text(const List& items, const ItemText& item_text) {
  std::string text = "[";
  for (const auto& item : items) {
    text += (text.size() == 1 ? "" : ", ") + item_text(item);
  }
  return text + "]";
}

std::string argument_text(const Program& program, const Argument& argument) {
  return std::visit(
      [&program](const auto& content) -> std::string {
        using Content = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<Content, None>) {
          return "None";
        } else if constexpr (std::is_same_v<Content, ValueRef>) {
          return reference_text(program, content.id);
        } else if constexpr (std::is_same_v<Content, std::vector<ValueRef>>) {
          return list_text(content, [&](const ValueRef& item) { return reference_text(program, item.id); });
        } else if constexpr (std::is_same_v<Content, bool>) {
          return content ? "true" : "false";
        } else if constexpr (std::is_same_v<Content, std::int64_t>) {
          return std::to_string(content);
        } else if constexpr (std::is_same_v<Content, double>) {
          return number_text(content);
        } else if constexpr (std::is_same_v<Content, std::string>) {
          return json_string(content);
        } else if constexpr (std::is_same_v<Content, Enumerator>) {
          return content.kind + ":" + content.name;
        } else if constexpr (std::is_same_v<Content, std::vector<std::int64_t>>) {
          return shape_text(content);
        } else if constexpr (std::is_same_v<Content, std::vector<double>>) {
          return list_text(content, number_text);
        } else {
          static_assert(std::is_same_v<Content, std::vector<bool>>);
          return list_text(content, [](bool item) { return std::string(item ? "true" : "false"); });
        }
      },
      argument);
}

std::string input_text(const Program& program, const Value& value) {
  std::string text =
      std::string(role_name(value.role)) + " %" + value.name + "  " + type_text(value.dtype, value.shape);
  if (value.role == Role::kParameter && !value.trainable) {
    text += "  frozen";
  }
  for (const std::string& alias : value.aliases) {
    text += "  also " + alias;
  }
  if (value.role == Role::kOptimizerState) {
    text += "  " + value.slot + " of " + reference_text(program, value.of);
    if (value.starts_as_zeros) {
      text += "  zeros";
    }
  }
  if (value.role == Role::kBuffer && !value.persistent) {
    text += "  not persistent";
  }
  if (value.role == Role::kLearningRate) {
    text += "  schedule " + std::to_string(value.schedule);
  }
  return text;
}

}  // namespace

std::string schedule_text(const Schedule& schedule) {
  std::string text(schedule_kind_name(schedule.kind));
  const auto number = [&text](const char* key, double value) {
    text += std::string(" ") + key + " " + number_text(value);
  };
  const auto integer = [&text](const char* key, std::int64_t value) {
    text += std::string(" ") + key + " " + std::to_string(value);
  };
  switch (schedule.kind) {
    case Schedule::Kind::kConstant:
      number("rate", schedule.rate);
      break;
    case Schedule::Kind::kStep:
      number("rate", schedule.rate);
      integer("every", schedule.every);
      number("factor", schedule.factor);
      break;
    case Schedule::Kind::kLinear:
      number("rate", schedule.rate);
      number("start", schedule.start);
      number("end", schedule.end);
      integer("steps", schedule.steps);
      break;
    case Schedule::Kind::kCosine:
    case Schedule::Kind::kCosineWave:
      number("rate", schedule.rate);
      number("minimum", schedule.minimum);
      integer("steps", schedule.steps);
      break;
    case Schedule::Kind::kOneCycle:
      number("maximum", schedule.maximum);
      number("initial", schedule.initial);
      number("final", schedule.final);
      integer("steps", schedule.steps);
      number("rise", schedule.rise);
      text += schedule.cosine_anneal ? " anneal cosine" : " anneal linear";
      break;
    case Schedule::Kind::kSequence:
      for (std::size_t part = 0; part < schedule.parts.size(); ++part) {
        text += part == 0 ? " (" : " from " + std::to_string(schedule.milestones[part - 1]) + " (";
        text += schedule_text(schedule.parts[part]) + ")";
      }
      break;
    case Schedule::Kind::kEnd:
      break;
  }
  return text;
}

std::string print_node(const Program& program, const Node& node) {
  std::string results;
  std::string types;
  for (const ValueId output : node.outputs) {
    results += (results.empty() ? "" : ", ") + (output == kNone ? "_" : reference_text(program, output));
    if (output != kNone) {
      const Value& value = program.value(output);
      types += (types.empty() ? "" : ", ") + type_text(value.dtype, value.shape);
    }
  }
  std::string arguments;
  for (std::size_t place = 0; place < node.args.size(); ++place) {
    arguments += (place == 0 ? "" : ", ") + argument_text(program, node.args[place]);
  }
  std::string note;
  if (node.phase != Phase::kForward) {
    note += " " + std::string(phase_name(node.phase));
  }
  if (node.forward != kNone) {
    note += " of " + program.node(node.forward).name;
  }
  if (node.module.has_value()) {
    note += node.module->empty() ? " root" : " module " + *node.module;
  }
  if (!node.recurrence.empty()) {
    note += " timestep " + std::to_string(node.timestep) + " of " + node.recurrence;
  }
  if (node.micro_batch != kNone) {
    note += " micro-batch " + std::to_string(node.micro_batch);
  }
  if (!node.source.empty()) {
    note += " " + node.source;
  }
  // A node that moves a tensor may have no results.
  return results + (results.empty() ? "" : " = ") + node.op + "(" + arguments + ")" + (types.empty() ? "" : "  ") +
         types + (note.empty() ? "" : "  #" + note);
}

std::string print(const Program& program) {
  std::string text = std::string(kind_name(program.kind)) + " program " + program.name + "\n";
  for (std::size_t index = 0; index < program.schedules.size(); ++index) {
    text += "schedule " + std::to_string(index) + "  " + schedule_text(program.schedules[index]) + "\n";
  }
  for (const ValueId input : program.inputs) {
    text += input_text(program, program.value(input)) + "\n";
  }
  text += "\n";
  for (const Node& node : program.nodes) {
    text += print_node(program, node) + "\n";
  }
  text += "\n";
  if (program.loss != kNone) {
    text += "loss " + reference_text(program, program.loss) + "\n";
  }
  for (const NamedOutput& metric : program.metrics) {
    text += "metric " + metric.name + " = " + reference_text(program, metric.value) + "\n";
  }
  for (const StateOutput& output : program.state_outputs) {
    text += "state " + program.value(output.state).name + " = " + reference_text(program, output.value) + "\n";
  }
  for (const NamedOutput& result : program.results) {
    text += "result " + result.name + " = " + reference_text(program, result.value) + "\n";
  }
  return text;
}

}  // namespace tesser::graph
