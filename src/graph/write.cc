#include "graph/write.h"

#include <cmath>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/own_checksum.h"
#include "graph/names.h"

namespace tesser::graph {
namespace {

// Writes the text front to back; keys in the order of the tables of docs/formats/program.md.
class ProgramWriter {
 public:
  explicit ProgramWriter(const Program& program) : program_(program) {}

  std::string write() {
    text_ = "{\n";
    text_ += "\"format\":\"tesser.program\",\n\"version\":1,\n\"name\":";
    append_json_string(text_, program_.name);
    text_ += ",\n\"kind\":";
    append_json_string(text_, kind_name(program_.kind));
    text_ += ",\n\"producer\":";
    append_json_string(text_, program_.producer);
    text_ += ",\n\"first_step\":" + std::to_string(program_.first_step) + ",\n";
    entries("schedules", program_.schedules, [this](const Schedule& schedule) { write_schedule(schedule); });
    text_ += ",\n";
    entries("inputs", program_.inputs, [this](ValueId input) { write_input(program_.value(input)); });
    text_ += ",\n";
    entries("nodes", program_.nodes, [this](const Node& node) { write_node(node); });
    text_ += ",\n";
    write_outputs();
    text_ += "\n}\n";
    return std::move(text_);
  }

 private:
  // "key":[ and one entry a line, or "key":[] for none.
  template <typename Entries, typename WriteEntry>
  void entries(std::string_view key, const Entries& all, const WriteEntry& write_entry) {
    begin_entries(key);
    for (const auto& entry : all) {
      next_entry();
      write_entry(entry);
    }
    end_entries();
  }
  void begin_entries(std::string_view key) {
    append_json_string(text_, key);
    text_ += ":[";
    first_ = true;
  }
  void next_entry() {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
  }
  void end_entries() { text_ += first_ ? "]" : "\n]"; }

  void string_key(std::string_view key, std::string_view value) {
    text_ += ",\"";
    text_ += key;
    text_ += "\":";
    append_json_string(text_, value);
  }
  void number_key(std::string_view key, double value) {
    text_ += ",\"";
    text_ += key;
    text_ += "\":";
    append_json_float(text_, value);
  }
  void integer_key(std::string_view key, std::int64_t value) {
    text_ += ",\"";
    text_ += key;
    text_ += "\":" + std::to_string(value);
  }

  template <typename List, typename WriteItem>
  void list(const List& items, const WriteItem& write_item) {
    text_ += '[';
    bool first = true;
    for (const auto& item : items) {
      if (!first) {
        text_ += ',';
      }
      first = false;
      write_item(item);
    }
    text_ += ']';
  }
  void integers(const std::vector<std::int64_t>& items) {
    list(items, [this](std::int64_t item) { text_ += std::to_string(item); });
  }
  void reference(ValueId id) {
    if (id == kNone) {
      text_ += "null";
    } else {
      append_json_string(text_, "%" + program_.value(id).name);
    }
  }
  void number(double value) {
    if (std::isfinite(value)) {
      append_json_float(text_, value);
    } else {
      text_ += std::string("{\"float\":\"") + (std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf") + "\"}";
    }
  }

  void write_schedule(const Schedule& schedule);
  void write_input(const Value& value);
  void write_node(const Node& node);
  void write_argument(const Argument& argument);
  void write_outputs();

  const Program& program_;
  std::string text_;
  bool first_ = true;  // no entry of the current array is written yet
};

void ProgramWriter::write_schedule(const Schedule& schedule) {
  text_ += "{\"kind\":";
  append_json_string(text_, schedule_kind_name(schedule.kind));
  switch (schedule.kind) {
    case Schedule::Kind::kConstant:
      number_key("rate", schedule.rate);
      break;
    case Schedule::Kind::kStep:
      number_key("rate", schedule.rate);
      integer_key("every", schedule.every);
      number_key("factor", schedule.factor);
      break;
    case Schedule::Kind::kLinear:
      number_key("rate", schedule.rate);
      number_key("start", schedule.start);
      number_key("end", schedule.end);
      integer_key("steps", schedule.steps);
      break;
    case Schedule::Kind::kCosine:
    case Schedule::Kind::kCosineWave:
      number_key("rate", schedule.rate);
      number_key("minimum", schedule.minimum);
      integer_key("steps", schedule.steps);
      break;
    case Schedule::Kind::kOneCycle:
      number_key("maximum", schedule.maximum);
      number_key("initial", schedule.initial);
      number_key("final", schedule.final);
      integer_key("steps", schedule.steps);
      number_key("rise", schedule.rise);
      string_key("anneal", schedule.cosine_anneal ? "cosine" : "linear");
      break;
    case Schedule::Kind::kSequence:
      text_ += ",\"parts\":";
      list(schedule.parts, [this](const Schedule& part) { write_schedule(part); });
      text_ += ",\"milestones\":";
      integers(schedule.milestones);
      break;
    case Schedule::Kind::kEnd:
      break;
  }
  text_ += '}';
}

void ProgramWriter::write_input(const Value& value) {
  text_ += "{\"name\":";
  append_json_string(text_, value.name);
  string_key("role", role_name(value.role));
  string_key("dtype", dtype_name(value.dtype));
  text_ += ",\"shape\":";
  integers(value.shape);
  if (value.role == Role::kParameter) {
    text_ += value.trainable ? ",\"trainable\":true" : ",\"trainable\":false";
  }
  if (!value.aliases.empty()) {
    text_ += ",\"aliases\":";
    list(value.aliases, [this](const std::string& alias) { append_json_string(text_, alias); });
  }
  if (value.role == Role::kOptimizerState) {
    string_key("of", program_.value(value.of).name);
    string_key("slot", value.slot);
    if (value.starts_as_zeros) {
      string_key("initial", "zeros");
    }
  }
  if (value.role == Role::kBuffer) {
    text_ += value.persistent ? ",\"persistent\":true" : ",\"persistent\":false";
  }
  if (value.role == Role::kLearningRate) {
    integer_key("schedule", value.schedule);
  }
  if (!value.whole_shape.empty()) {
    text_ += ",\"begin\":";
    integers(value.region_begin);
    text_ += ",\"whole\":";
    integers(value.whole_shape);
  }
  text_ += '}';
}

void ProgramWriter::write_argument(const Argument& argument) {
  std::visit(
      [this](const auto& content) {
        using Content = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<Content, None>) {
          text_ += "null";
        } else if constexpr (std::is_same_v<Content, ValueRef>) {
          reference(content.id);
        } else if constexpr (std::is_same_v<Content, std::vector<ValueRef>>) {
          list(content, [this](const ValueRef& item) { reference(item.id); });
        } else if constexpr (std::is_same_v<Content, bool>) {
          text_ += content ? "true" : "false";
        } else if constexpr (std::is_same_v<Content, std::int64_t>) {
          text_ += std::to_string(content);
        } else if constexpr (std::is_same_v<Content, double>) {
          number(content);
        } else if constexpr (std::is_same_v<Content, std::string>) {
          append_json_string(text_, content);
        } else if constexpr (std::is_same_v<Content, Enumerator>) {
          text_ += '{';
          append_json_string(text_, content.kind);
          text_ += ':';
          append_json_string(text_, content.name);
          text_ += '}';
        } else if constexpr (std::is_same_v<Content, std::vector<std::int64_t>>) {
          integers(content);
        } else if constexpr (std::is_same_v<Content, std::vector<double>>) {
          list(content, [this](double item) { number(item); });
        } else {
          static_assert(std::is_same_v<Content, std::vector<bool>>);
          list(content, [this](bool item) { text_ += item ? "true" : "false"; });
        }
      },
      argument);
}

void ProgramWriter::write_node(const Node& node) {
  text_ += "{\"name\":";
  append_json_string(text_, node.name);
  string_key("op", node.op);
  text_ += ",\"args\":";
  list(node.args, [this](const Argument& argument) { write_argument(argument); });
  text_ += ",\"out\":";
  list(node.outputs, [this](ValueId output) {
    if (output == kNone) {
      text_ += "null";
      return;
    }
    const Value& value = program_.value(output);
    text_ += '[';
    append_json_string(text_, value.name);
    text_ += ',';
    append_json_string(text_, dtype_name(value.dtype));
    text_ += ',';
    integers(value.shape);
    text_ += ']';
  });
  string_key("phase", phase_name(node.phase));
  if (node.forward != kNone) {
    string_key("forward", program_.node(node.forward).name);
  }
  if (node.module.has_value()) {
    string_key("module", *node.module);
  }
  if (!node.source.empty()) {
    string_key("source", node.source);
  }
  if (!node.recurrence.empty()) {
    string_key("recurrence", node.recurrence);
    integer_key("timestep", node.timestep);
  }
  if (node.micro_batch != kNone) {
    integer_key("micro_batch", node.micro_batch);
  }
  text_ += '}';
}

void ProgramWriter::write_outputs() {
  const auto value_key = [this](ValueId value) {
    string_key("value", "%" + program_.value(value).name);
    text_ += '}';
  };
  const auto named = [&](std::string_view role, std::string_view name, ValueId value) {
    next_entry();
    text_ += "{\"role\":";
    append_json_string(text_, role);
    string_key("name", name);
    value_key(value);
  };
  begin_entries("outputs");
  if (program_.loss != kNone) {
    next_entry();
    text_ += "{\"role\":\"loss\"";
    value_key(program_.loss);
  }
  for (const NamedOutput& metric : program_.metrics) {
    named("metric", metric.name, metric.value);
  }
  for (const StateOutput& output : program_.state_outputs) {
    named("state", program_.value(output.state).name, output.value);
  }
  for (const NamedOutput& result : program_.results) {
    named("result", result.name, result.value);
  }
  end_entries();
}

}  // namespace

std::string program_text(const Program& program) { return ProgramWriter(program).write(); }

std::string program_file_text(const Program& program) { return with_checksum(program_text(program)); }

Result<void> write_program(const Program& program, const std::filesystem::path& file) {
  return write_file_atomically(file, program_file_text(program));
}

}  // namespace tesser::graph
