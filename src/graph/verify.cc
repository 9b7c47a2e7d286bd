#include "graph/verify.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "graph/names.h"

namespace tesser::graph {
namespace {

using Defect = std::optional<std::string>;

constexpr int kDeepestSchedule = 16;
// Of all values together: sums of sizes, alignment included, then never overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

std::string input_name(const Value& value) { return "input " + value.name + ": "; }
std::string node_name(const Node& node) { return "node " + node.name + ": "; }

bool in_range(std::int32_t id, std::size_t size) { return id >= 0 && static_cast<std::size_t>(id) < size; }

Defect type_defect(const Value& value) {
  if (static_cast<std::size_t>(value.dtype) > static_cast<std::size_t>(DType::kBool)) {
    return "dtype number " + std::to_string(static_cast<int>(value.dtype)) + " does not exist";
  }
  for (const std::int64_t dimension : value.shape) {
    if (dimension < 0) {
      return "shape " + shape_text(value.shape) + " has a negative dimension";
    }
  }
  if (!checked_bytes(value.dtype, value.shape).has_value()) {
    return "shape " + shape_text(value.shape) + " is too large";
  }
  return std::nullopt;
}

Defect schedule_defect(const Schedule& schedule, int depth) {
  for (const double number : {schedule.rate, schedule.factor, schedule.start, schedule.end, schedule.minimum,
                              schedule.maximum, schedule.initial, schedule.final, schedule.rise}) {
    if (!std::isfinite(number)) {
      return "holds a number that is not finite";
    }
  }
  if (schedule.every < 1) {
    return "'every' is " + std::to_string(schedule.every) + ", expected 1 or more";
  }
  if (schedule.steps < 1) {
    return "'steps' is " + std::to_string(schedule.steps) + ", expected 1 or more";
  }
  if (schedule.rise < 0 || schedule.rise > 1) {
    return "'rise' is not between 0 and 1";
  }
  if (schedule.kind != Schedule::Kind::kSequence) {
    return std::nullopt;
  }
  if (depth == kDeepestSchedule) {
    return "sequences are nested deeper than " + std::to_string(kDeepestSchedule) + " levels";
  }
  if (schedule.parts.empty() || schedule.milestones.size() != schedule.parts.size() - 1) {
    return "a sequence of " + std::to_string(schedule.parts.size()) + " parts has " +
           std::to_string(schedule.milestones.size()) + " milestones, expected one less than parts";
  }
  std::int64_t last = 0;
  for (const std::int64_t milestone : schedule.milestones) {
    if (milestone < last) {
      return "milestones are negative or fall";
    }
    last = milestone;
  }
  for (const Schedule& part : schedule.parts) {
    if (Defect defect = schedule_defect(part, depth + 1); defect.has_value()) {
      return defect;
    }
  }
  return std::nullopt;
}

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  Defect defect() {
    for (const auto check : {&Verifier::program_defect, &Verifier::inputs_defect, &Verifier::nodes_defect,
                             &Verifier::sizes_defect, &Verifier::names_defect, &Verifier::outputs_defect}) {
      if (Defect found = (this->*check)(); found.has_value()) {
        return found;
      }
    }
    return std::nullopt;
  }

 private:
  Defect program_defect();
  Defect inputs_defect();
  static Defect region_defect(const Value& value);
  Defect input_defect(const Value& value);
  Defect nodes_defect();
  Defect node_defect(const Node& node, NodeId id);
  Defect arguments_defect(const Node& node) const;
  Defect sizes_defect();
  Defect names_defect();
  Defect outputs_defect();
  Defect named_outputs_defect(const std::vector<NamedOutput>& outputs, std::string_view role);

  bool is_value(ValueId id) const { return in_range(id, program_.values.size()); }

  const Program& program_;
  std::size_t defined_ = 0;  // values defined by the inputs and the nodes before the current one
};

Defect Verifier::program_defect() {
  if (const Defect defect = name_defect(program_.name); defect.has_value()) {
    return "'name' " + *defect;
  }
  if (const Defect defect = name_defect(program_.producer, true); defect.has_value()) {
    return "'producer' " + *defect;
  }
  if (program_.first_step < 0) {
    return "'first_step' is " + std::to_string(program_.first_step) + ", expected 0 or more";
  }
  if (program_.kind == Kind::kForward && (program_.first_step != 0 || !program_.schedules.empty())) {
    return "a forward program has first_step 0 and no schedules";
  }
  for (std::size_t index = 0; index < program_.schedules.size(); ++index) {
    if (const Defect defect = schedule_defect(program_.schedules[index], 0); defect.has_value()) {
      return "schedules[" + std::to_string(index) + "]: " + *defect;
    }
    if (program_.schedules[index].ends_at() == 0) {
      return "schedules[" + std::to_string(index) + "]: has no rate for step 0";
    }
  }
  return std::nullopt;
}

Defect Verifier::inputs_defect() {
  int steps = 0;
  int seeds = 0;
  for (std::size_t index = 0; index < program_.inputs.size(); ++index) {
    if (program_.inputs[index] != static_cast<ValueId>(index) || !is_value(program_.inputs[index])) {
      return "inputs[" + std::to_string(index) + "]: is value " + std::to_string(program_.inputs[index]) +
             ", but inputs are the first values, in order";
    }
    const Value& value = program_.values[index];
    if (const Defect defect = name_defect(value.name); defect.has_value()) {
      return "inputs[" + std::to_string(index) + "]: its name " + *defect;
    }
    Defect defect = type_defect(value);
    if (!defect.has_value()) {
      defect = input_defect(value);
    }
    if (defect.has_value()) {
      return input_name(value) + *defect;
    }
    steps += value.role == Role::kStep;
    seeds += value.role == Role::kSeed;
    if (steps > 1 || seeds > 1) {
      return input_name(value) + "is a second input of role " + std::string(role_name(value.role));
    }
  }
  defined_ = program_.inputs.size();
  return std::nullopt;
}

// Of one worker's part of a value.
Defect Verifier::region_defect(const Value& value) {
  const std::size_t rank = value.shape.size();
  if (value.whole_shape.empty() && value.region_begin.empty()) {
    return std::nullopt;
  }
  bool inside = value.whole_shape.size() == rank && value.region_begin.size() == rank;
  for (std::size_t dimension = 0; inside && dimension < rank; ++dimension) {
    const std::int64_t begin = value.region_begin[dimension];
    inside = begin >= 0 && begin <= value.whole_shape[dimension] &&
             value.shape[dimension] <= value.whole_shape[dimension] - begin;
  }
  if (!inside) {
    return "'begin', 'shape' and 'whole' give no rectangle of the whole value";
  }
  return checked_bytes(value.dtype, value.whole_shape) ? std::nullopt : Defect("'whole' is too large");
}

Defect Verifier::input_defect(const Value& value) {
  if (value.producer != kNone) {
    return "is an input and the result of a node";
  }
  const auto scalar = [&](DType dtype) -> Defect {
    if (value.dtype == dtype && value.shape.empty()) {
      return std::nullopt;
    }
    return "is " + type_text(value.dtype, value.shape) + ", but role " + std::string(role_name(value.role)) + " is " +
           type_text(dtype, {});
  };
  if (const Defect defect = region_defect(value); defect.has_value()) {
    return defect;
  }
  if (!value.aliases.empty() && value.role != Role::kParameter && value.role != Role::kBuffer) {
    return "has aliases, which only parameters and buffers have";
  }
  if ((value.is_state() || value.role == Role::kConstant) && value.name == "__metadata__") {
    return "the name is reserved in state.safetensors";
  }
  switch (value.role) {
    case Role::kParameter:
      if (value.trainable && !is_floating(value.dtype)) {
        return "is trainable, but of type " + std::string(dtype_name(value.dtype));
      }
      break;
    case Role::kOptimizerState:
      if (!in_range(value.of, program_.inputs.size()) || program_.value(value.of).role != Role::kParameter) {
        return "is optimizer state of no parameter";
      }
      if (const Defect defect = name_defect(value.slot); defect.has_value()) {
        return "its slot " + *defect;
      }
      break;
    case Role::kStep:
    case Role::kSeed:
      return scalar(DType::kInt64);
    case Role::kLearningRate:
      if (!in_range(value.schedule, program_.schedules.size())) {
        return "'schedule' is " + std::to_string(value.schedule) + ", but there are " +
               std::to_string(program_.schedules.size()) + " schedules";
      }
      return scalar(DType::kFloat64);
    case Role::kBuffer:
    case Role::kBatch:
    case Role::kConstant:
      break;
    default:
      return "has no role of an input";
  }
  return std::nullopt;
}

Defect Verifier::nodes_defect() {
  for (std::size_t index = 0; index < program_.nodes.size(); ++index) {
    const Node& node = program_.nodes[index];
    if (const Defect defect = name_defect(node.name); defect.has_value()) {
      return "nodes[" + std::to_string(index) + "]: its name " + *defect;
    }
    if (const Defect defect = node_defect(node, static_cast<NodeId>(index)); defect.has_value()) {
      return node_name(node) + *defect;
    }
  }
  if (defined_ != program_.values.size()) {
    return "value " + program_.values[defined_].name + " is defined by no input and no node";
  }
  return std::nullopt;
}

// namespace::name or namespace::name.overload
bool is_operator_name(std::string_view op) {
  const std::size_t name = op.find("::");
  if (name == std::string_view::npos || (op.substr(0, name) != "aten" && op.substr(0, name) != "tesser")) {
    return false;
  }
  const std::string_view rest = op.substr(name + 2);
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const auto dots = std::count(rest.begin(), rest.end(), '.');
  return !rest.empty() && dots <= 1 && rest.front() != '.' && rest.back() != '.' &&
         std::all_of(rest.begin(), rest.end(), [&](char c) { return is_letter(c) || c == '.'; });
}

Defect Verifier::node_defect(const Node& node, NodeId id) {
  if (!is_operator_name(node.op)) {
    return "operator " + node.op.substr(0, 100) +
           " is not of the form aten::NAME[.OVERLOAD] or tesser::NAME[.OVERLOAD]";
  }
  if (Defect defect = arguments_defect(node); defect.has_value()) {
    return defect;
  }
  bool has_result = false;
  for (std::size_t place = 0; place < node.outputs.size(); ++place) {
    const ValueId output = node.outputs[place];
    if (output == kNone) {
      continue;
    }
    has_result = true;
    if (output != static_cast<ValueId>(defined_) || !is_value(output)) {
      return "result " + std::to_string(place) + " is value " + std::to_string(output) +
             ", but results follow the values before them in order";
    }
    const Value& value = program_.value(output);
    if (const Defect defect = name_defect(value.name); defect.has_value()) {
      return "the name of result " + std::to_string(place) + " " + *defect;
    }
    if (const Defect defect = type_defect(value); defect.has_value()) {
      return "result " + value.name + ": " + *defect;
    }
    if (value.role != Role::kIntermediate || value.producer != id || value.output_index != static_cast<int>(place)) {
      return "result " + value.name + " does not name this node as its producer";
    }
    ++defined_;
  }
  if (!has_result && node.op != "tesser::send" && node.op != "tesser::sent") {
    return "has no result";
  }
  if (node.forward != kNone) {
    if (node.forward < 0 || node.forward >= id) {
      return "'forward' is no earlier node";
    }
    if (node.phase != Phase::kBackward) {
      return "names a forward node, but is of phase " + std::string(phase_name(node.phase));
    }
  }
  if (program_.kind == Kind::kForward && node.phase != Phase::kForward) {
    return "is of phase " + std::string(phase_name(node.phase)) + " in a forward program";
  }
  for (const std::string* const text : {&node.source, &node.recurrence}) {
    if (const Defect defect = name_defect(*text, true); defect.has_value()) {
      return (text == &node.source ? "'source' " : "'recurrence' ") + *defect;
    }
  }
  if (const Defect defect = name_defect(node.module.value_or(""), true); defect.has_value()) {
    return "'module' " + *defect;
  }
  if (node.recurrence.empty() != (node.timestep == kNone)) {
    return "has only one of 'recurrence' and 'timestep'";
  }
  if (node.timestep < kNone || node.micro_batch < kNone) {
    return "'timestep' or 'micro_batch' is negative";
  }
  return std::nullopt;
}

Defect Verifier::arguments_defect(const Node& node) const {
  const auto readable = [this](ValueId id) { return in_range(id, defined_); };
  for (std::size_t place = 0; place < node.args.size(); ++place) {
    const Argument& argument = node.args[place];
    const auto defect = [&](const std::string& reason) { return "argument " + std::to_string(place) + " " + reason; };
    if (const auto* const reference = std::get_if<ValueRef>(&argument)) {
      if (!readable(reference->id)) {
        return defect("is value " + std::to_string(reference->id) + ", which no input or earlier node defines");
      }
    } else if (const auto* const list = std::get_if<std::vector<ValueRef>>(&argument)) {
      if (list->empty()) {
        return defect("is an empty list of values; empty lists are lists of integers");
      }
      for (const ValueRef& entry : *list) {
        if (entry.id != kNone && !readable(entry.id)) {
          return defect("holds value " + std::to_string(entry.id) + ", which no input or earlier node defines");
        }
      }
    } else if (const auto* const text = std::get_if<std::string>(&argument)) {
      if (text->starts_with('%') || name_defect(*text, true).has_value()) {
        return defect("is a string that begins with % or holds a control character");
      }
    } else if (const auto* const enumerator = std::get_if<Enumerator>(&argument)) {
      if (!is_enumerator_kind(enumerator->kind) || name_defect(enumerator->name).has_value() ||
          (enumerator->kind == "dtype" && !dtype_from_name(enumerator->name).has_value())) {
        return defect("is " + enumerator->kind.substr(0, 100) + " " + enumerator->name.substr(0, 100) +
                      ", which does not exist");
      }
    } else if (const auto* const numbers = std::get_if<std::vector<double>>(&argument)) {
      if (numbers->empty()) {
        return defect("is an empty list of floats; empty lists are lists of integers");
      }
    } else if (const auto* const booleans = std::get_if<std::vector<bool>>(&argument)) {
      if (booleans->empty()) {
        return defect("is an empty list of booleans; empty lists are lists of integers");
      }
    }
  }
  return std::nullopt;
}

Defect Verifier::sizes_defect() {
  std::int64_t bytes = 0;
  for (const Value& value : program_.values) {
    if (__builtin_add_overflow(bytes, value.bytes(), &bytes) || bytes > kMostBytes) {
      return "value " + value.name + ": all values up to it need more than " + std::to_string(kMostBytes) + " bytes";
    }
  }
  return std::nullopt;
}

Defect Verifier::names_defect() {
  std::unordered_set<std::string_view> values;
  values.reserve(program_.values.size());
  for (const Value& value : program_.values) {
    if (!values.insert(value.name).second) {
      return "the value name " + value.name + " is used twice";
    }
  }
  // Aliases live with the names in the model's state_dict.
  std::unordered_set<std::string_view> tensors;
  std::unordered_set<std::string> slots;
  for (const ValueId input : program_.inputs) {
    const Value& value = program_.value(input);
    if (value.role == Role::kParameter || value.role == Role::kBuffer) {
      tensors.insert(value.name);
    }
    if (value.role == Role::kOptimizerState && !slots.insert(std::to_string(value.of) + value.slot).second) {
      return input_name(value) + "is a second slot " + value.slot + " of " + program_.value(value.of).name;
    }
  }
  for (const ValueId input : program_.inputs) {
    for (const std::string& alias : program_.value(input).aliases) {
      if (const Defect defect = name_defect(alias); defect.has_value()) {
        return input_name(program_.value(input)) + "an alias " + *defect;
      }
      if (!tensors.insert(alias).second) {
        return input_name(program_.value(input)) + "the alias " + alias + " is the name of another parameter or buffer";
      }
    }
  }
  std::unordered_set<std::string_view> nodes;
  nodes.reserve(program_.nodes.size());
  for (const Node& node : program_.nodes) {
    if (!nodes.insert(node.name).second) {
      return "the node name " + node.name + " is used twice";
    }
  }
  return std::nullopt;
}

Defect Verifier::named_outputs_defect(const std::vector<NamedOutput>& outputs, std::string_view role) {
  std::unordered_set<std::string_view> names;
  for (const NamedOutput& output : outputs) {
    const std::string where = "output " + std::string(role) + " " + output.name + ": ";
    if (const Defect defect = name_defect(output.name); defect.has_value()) {
      return "output " + std::string(role) + ": its name " + *defect;
    }
    if (!names.insert(output.name).second) {
      return where + "the name is used twice";
    }
    if (!is_value(output.value)) {
      return where + "names no value";
    }
    if (role == "metric" && !program_.value(output.value).shape.empty()) {
      return where + "is " + type_text(program_.value(output.value).dtype, program_.value(output.value).shape) +
             ", expected a scalar";
    }
  }
  return std::nullopt;
}

Defect Verifier::outputs_defect() {
  if (program_.kind == Kind::kForward) {
    if (program_.loss != kNone || !program_.metrics.empty() || !program_.state_outputs.empty()) {
      return "a forward program has outputs of role result only";
    }
    if (program_.results.empty()) {
      return "a forward program needs an output of role result";
    }
    return named_outputs_defect(program_.results, "result");
  }
  if (!program_.results.empty()) {
    return "output result " + program_.results.front().name + ": only forward programs have results";
  }
  if (program_.loss == kNone) {
    return "there is no output of role loss";
  }
  if (!is_value(program_.loss)) {
    return "output loss: names no value";
  }
  if (const Value& loss = program_.value(program_.loss); !loss.shape.empty() || !is_floating(loss.dtype)) {
    return "output loss: " + loss.name + " is " + type_text(loss.dtype, loss.shape) + ", expected a floating scalar";
  }
  std::unordered_set<ValueId> states;
  for (const StateOutput& output : program_.state_outputs) {
    if (!in_range(output.state, program_.inputs.size()) || !program_.value(output.state).is_state()) {
      return "output state" + (is_value(output.state) ? " " + program_.value(output.state).name : "") +
             ": names no state value";
    }
    const Value& state = program_.value(output.state);
    const std::string where = "output state " + state.name + ": ";
    if (!states.insert(output.state).second) {
      return where + "is given twice";
    }
    if (!is_value(output.value)) {
      return where + "names no value";
    }
    if (const Value& value = program_.value(output.value); value.dtype != state.dtype || value.shape != state.shape) {
      return where + "its new value " + value.name + " is " + type_text(value.dtype, value.shape) +
             ", but the state value is " + type_text(state.dtype, state.shape);
    }
  }
  return named_outputs_defect(program_.metrics, "metric");
}

}  // namespace

Result<void> verify(const Program& program) {
  if (Defect defect = Verifier(program).defect(); defect.has_value()) {
    return invalid_input(std::move(*defect));
  }
  return {};
}

}  // namespace tesser::graph
