#include "graph/read.h"

#include <limits>
#include <optional>
#include <unordered_map>

#include "base/file.h"
#include "base/json.h"
#include "base/own_checksum.h"
#include "graph/entry_reader.h"
#include "graph/names.h"
#include "graph/read_schedule.h"
#include "graph/verify.h"

namespace tesser::graph {
namespace {

constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 31;
constexpr std::int64_t kVersion = 1;

// Builds the program entry by entry; stops at the first defect, which is kept in error_.
class ProgramReader {
 public:
  Result<Program> read(const Json& json) {
    read_top_level(json);
    if (error_.has_value()) {
      return invalid_input(*error_);
    }
    return std::move(program_);
  }

 private:
  void read_top_level(const Json& json);
  void read_input(const Json& json, std::size_t index);
  void read_node(const Json& json, std::size_t index);
  void read_output(const Json& json, std::size_t index);
  void resolve_owners();

  void define(EntryReader& entry, Value value);
  Argument read_argument(EntryReader& entry, const Json& json);
  Argument read_list(EntryReader& entry, const Json::Array& list);
  Argument read_enumerator(EntryReader& entry, const Json& json);
  ValueRef reference(EntryReader& entry, const std::string& text);
  int small_integer(EntryReader& entry, std::string_view key, const Json& json);

  Program program_;
  std::optional<std::string> error_;
  std::unordered_map<std::string, ValueId> value_ids_;
  std::unordered_map<std::string, NodeId> node_ids_;
  std::vector<std::pair<ValueId, std::string>> owners_;  // optimizer state and the name of its parameter
};

std::string entry_name(std::string_view array, std::size_t index) {
  return std::string(array) + "[" + std::to_string(index) + "]";
}

void ProgramReader::read_top_level(const Json& json) {
  EntryReader top(json, "", error_);
  if (const std::string format = top.string("format"); !top.failed() && format != "tesser.program") {
    top.fail("'format' is " + brief(format) + ", expected \"tesser.program\"");
  }
  if (const std::int64_t version = top.integer("version"); !top.failed() && version != kVersion) {
    top.fail("'version' is " + std::to_string(version) + ", this tesser reads version " + std::to_string(kVersion) +
             "; capture the program again with this version");
  }
  top.optional("checksum");
  program_.name = top.name("name");
  const std::string kind = top.string("kind");
  if (const auto known = kind_from_name(kind); known.has_value()) {
    program_.kind = *known;
  } else {
    top.fail("unknown kind " + brief(kind));
  }
  program_.producer = top.name("producer", true);
  program_.first_step = top.integer("first_step");

  const Json::Array& schedules = top.array("schedules");
  for (std::size_t index = 0; index < schedules.size() && !error_.has_value(); ++index) {
    program_.schedules.push_back(read_schedule(schedules[index], entry_name("schedules", index), error_));
  }
  const Json::Array& inputs = top.array("inputs");
  const Json::Array& nodes = top.array("nodes");
  const Json::Array& outputs = top.array("outputs");
  top.finish();
  if (inputs.size() + nodes.size() > std::numeric_limits<std::int32_t>::max() / 2) {
    top.fail("too many inputs and nodes");
  }
  for (std::size_t index = 0; index < inputs.size() && !error_.has_value(); ++index) {
    read_input(inputs[index], index);
  }
  resolve_owners();
  if (!error_.has_value()) {
    program_.nodes.reserve(nodes.size());
  }
  for (std::size_t index = 0; index < nodes.size() && !error_.has_value(); ++index) {
    read_node(nodes[index], index);
  }
  for (std::size_t index = 0; index < outputs.size() && !error_.has_value(); ++index) {
    read_output(outputs[index], index);
  }
}

void ProgramReader::read_input(const Json& json, std::size_t index) {
  EntryReader entry(json, entry_name("inputs", index), error_);
  Value value;
  value.name = entry.name("name");
  if (!entry.failed()) {
    entry.rename("input " + value.name);
  }
  const std::string role = entry.string("role");
  if (const auto known = input_role_from_name(role); known.has_value()) {
    value.role = *known;
  } else {
    entry.fail("unknown role " + brief(role));
  }
  if (const Json* const dtype = entry.required("dtype")) {
    value.dtype = entry.dtype_of(*dtype);
  }
  if (const Json* const shape = entry.required("shape")) {
    value.shape = entry.shape_of(*shape);
  }
  if (value.role == Role::kParameter) {
    value.trainable = entry.boolean("trainable");
  }
  if (value.role == Role::kParameter || value.role == Role::kBuffer) {
    if (const Json* const aliases = entry.optional("aliases")) {
      value.aliases = entry.names_of(*aliases, "aliases");
    }
  }
  std::string owner;
  if (value.role == Role::kOptimizerState) {
    owner = entry.string("of");
    value.slot = entry.name("slot");
    if (const Json* const initial = entry.optional("initial")) {
      value.starts_as_zeros = initial->string() != nullptr && *initial->string() == "zeros";
      if (!value.starts_as_zeros) {
        entry.fail("'initial' is something other than \"zeros\"");
      }
    }
  }
  if (value.role == Role::kBuffer) {
    value.persistent = entry.boolean("persistent");
  }
  if (value.role == Role::kLearningRate) {
    if (const Json* const schedule = entry.required("schedule")) {
      value.schedule = small_integer(entry, "schedule", *schedule);
    }
  }
  if (const Json* const begin = entry.optional("begin")) {
    value.region_begin = entry.shape_of(*begin);
    if (const Json* const whole = entry.required("whole")) {
      value.whole_shape = entry.shape_of(*whole);
    }
  }
  entry.finish();
  define(entry, std::move(value));
  if (!error_.has_value()) {
    const ValueId id = static_cast<ValueId>(program_.values.size() - 1);
    program_.inputs.push_back(id);
    if (program_.value(id).role == Role::kOptimizerState) {
      owners_.emplace_back(id, std::move(owner));
    }
  }
}

// A parameter may come after its optimizer state.
void ProgramReader::resolve_owners() {
  for (const auto& [state, owner] : owners_) {
    Value& value = program_.values[static_cast<std::size_t>(state)];
    const auto found = value_ids_.find(owner);
    if (found == value_ids_.end() || program_.value(found->second).role != Role::kParameter) {
      error_ = error_.value_or("input " + value.name + ": 'of' is " + brief(owner) + ", which is no parameter");
      return;
    }
    value.of = found->second;
  }
}

void ProgramReader::define(EntryReader& entry, Value value) {
  if (error_.has_value()) {
    return;
  }
  const auto id = static_cast<ValueId>(program_.values.size());
  if (!value_ids_.emplace(value.name, id).second) {
    entry.fail("the value name " + brief(value.name) + " is used twice");
    return;
  }
  program_.values.push_back(std::move(value));
}

int ProgramReader::small_integer(EntryReader& entry, std::string_view key, const Json& json) {
  const std::int64_t* const integer = json.integer();
  if (integer == nullptr || *integer < 0 || *integer > std::numeric_limits<int>::max()) {
    entry.fail("'" + std::string(key) + "' is not a number from 0 on");
    return 0;
  }
  return static_cast<int>(*integer);
}

void ProgramReader::read_node(const Json& json, std::size_t index) {
  EntryReader entry(json, entry_name("nodes", index), error_);
  Node node;
  node.name = entry.name("name");
  if (!entry.failed()) {
    entry.rename("node " + node.name);
  }
  node.op = entry.string("op");
  const Json::Array& arguments = entry.array("args");
  node.args.reserve(arguments.size());
  for (std::size_t place = 0; place < arguments.size() && !error_.has_value(); ++place) {
    node.args.push_back(read_argument(entry, arguments[place]));
  }
  const std::string phase = entry.string("phase");
  if (const auto known = phase_from_name(phase); known.has_value()) {
    node.phase = *known;
  } else {
    entry.fail("unknown phase " + brief(phase));
  }
  if (entry.optional("forward") != nullptr) {
    const std::string forward = entry.string("forward");
    if (const auto found = node_ids_.find(forward); found != node_ids_.end()) {
      node.forward = found->second;
    } else {
      entry.fail("'forward' is " + brief(forward) + ", which no earlier node is called");
    }
  }
  if (entry.optional("module") != nullptr) {
    node.module = entry.name("module", true);
  }
  if (entry.optional("source") != nullptr) {
    node.source = entry.name("source");
  }
  if (entry.optional("recurrence") != nullptr) {
    node.recurrence = entry.name("recurrence");
  }
  if (const Json* const timestep = entry.optional("timestep")) {
    node.timestep = small_integer(entry, "timestep", *timestep);
  }
  if (const Json* const micro_batch = entry.optional("micro_batch")) {
    node.micro_batch = small_integer(entry, "micro_batch", *micro_batch);
  }
  const Json::Array& results = entry.array("out");
  entry.finish();
  const auto id = static_cast<NodeId>(program_.nodes.size());
  for (std::size_t place = 0; place < results.size() && !error_.has_value(); ++place) {
    if (results[place].is_null()) {
      node.outputs.push_back(kNone);
      continue;
    }
    const Json::Array* const result = results[place].array();
    if (result == nullptr || result->size() != 3 || (*result)[0].string() == nullptr) {
      entry.fail("'out' holds something other than null and [name, dtype, shape]");
      return;
    }
    Value value;
    value.name = *(*result)[0].string();
    if (const auto defect = name_defect(value.name); defect.has_value()) {
      entry.fail("the name of a result " + *defect);
    }
    value.dtype = entry.dtype_of((*result)[1]);
    value.shape = entry.shape_of((*result)[2]);
    value.producer = id;
    value.output_index = static_cast<int>(place);
    node.outputs.push_back(static_cast<ValueId>(program_.values.size()));
    define(entry, std::move(value));
  }
  if (error_.has_value()) {
    return;
  }
  if (!node_ids_.emplace(node.name, id).second) {
    entry.fail("the node name " + brief(node.name) + " is used twice");
    return;
  }
  program_.nodes.push_back(std::move(node));
}

ValueRef ProgramReader::reference(EntryReader& entry, const std::string& text) {
  const auto found = value_ids_.find(text.substr(1));
  if (found == value_ids_.end()) {
    entry.fail("reads " + brief(text) + ", which no input or earlier node defines");
    return {};
  }
  return {found->second};
}

Argument ProgramReader::read_argument(EntryReader& entry, const Json& json) {
  if (json.is_null()) {
    return None{};
  }
  if (const auto* const boolean = json.get<bool>()) {
    return *boolean;
  }
  if (const auto* const integer = json.integer()) {
    return *integer;
  }
  if (const auto* const number = json.get<double>()) {
    return *number;
  }
  if (const auto* const text = json.string()) {
    if (text->starts_with('%')) {
      return reference(entry, *text);
    }
    return *text;
  }
  if (const auto* const list = json.array()) {
    return read_list(entry, *list);
  }
  return read_enumerator(entry, json);
}

Argument ProgramReader::read_enumerator(EntryReader& entry, const Json& json) {
  const Json::Object& object = *json.object();
  if (object.size() != 1 || object[0].second.string() == nullptr) {
    entry.fail("an argument is an object with something other than one string");
    return None{};
  }
  const auto& [kind, value] = object[0];
  const std::string& name = *value.string();
  if (kind == "float") {
    if (name == "inf") {
      return std::numeric_limits<double>::infinity();
    }
    if (name == "-inf") {
      return -std::numeric_limits<double>::infinity();
    }
    if (name == "nan") {
      return std::numeric_limits<double>::quiet_NaN();
    }
    entry.fail("an argument is the float " + brief(name) + ", expected inf, -inf or nan");
    return None{};
  }
  if (!is_enumerator_kind(kind)) {
    entry.fail("an argument is of the unknown kind " + brief(kind));
    return None{};
  }
  return Enumerator{kind, name};
}

// Lists hold one kind of argument; only lists of values hold nulls.
Argument ProgramReader::read_list(EntryReader& entry, const Json::Array& list) {
  std::vector<ValueRef> values;
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  std::vector<bool> booleans;
  for (const Json& json : list) {
    if (json.array() != nullptr) {
      entry.fail("an argument is a list of lists");
      return None{};
    }
    const Argument argument = read_argument(entry, json);
    if (std::holds_alternative<None>(argument)) {
      values.push_back({});
    } else if (const auto* const value = std::get_if<ValueRef>(&argument)) {
      values.push_back(*value);
    } else if (const auto* const integer = std::get_if<std::int64_t>(&argument)) {
      integers.push_back(*integer);
    } else if (const auto* const number = std::get_if<double>(&argument)) {
      numbers.push_back(*number);
    } else if (const auto* const boolean = std::get_if<bool>(&argument)) {
      booleans.push_back(*boolean);
    } else {
      entry.fail("an argument is a list of something other than values, integers, floats or booleans");
    }
    if (error_.has_value()) {
      return None{};
    }
  }
  if (integers.size() == list.size()) {
    return integers;
  }
  if (values.size() == list.size()) {
    return values;
  }
  if (numbers.size() == list.size()) {
    return numbers;
  }
  if (booleans.size() == list.size()) {
    return booleans;
  }
  entry.fail("an argument is a list of several kinds");
  return None{};
}

void ProgramReader::read_output(const Json& json, std::size_t index) {
  EntryReader entry(json, entry_name("outputs", index), error_);
  const std::string role = entry.string("role");
  const std::string text = entry.string("value");
  ValueId value = kNone;
  if (!entry.failed()) {
    if (!text.starts_with('%')) {
      entry.fail("'value' is " + brief(text) + ", expected % and the name of a value");
    } else if (const auto found = value_ids_.find(text.substr(1)); found == value_ids_.end()) {
      entry.fail("'value' is " + brief(text) + ", which no input or node defines");
    } else {
      value = found->second;
    }
  }
  if (role == "loss") {
    entry.finish();
    if (program_.loss != kNone) {
      entry.fail("is a second loss; a step has exactly one");
    }
    program_.loss = value;
    return;
  }
  const std::string name = entry.name("name");
  entry.finish();
  if (role == "metric") {
    program_.metrics.push_back({name, value});
  } else if (role == "result") {
    program_.results.push_back({name, value});
  } else if (role == "state") {
    const auto found = value_ids_.find(name);
    if (found == value_ids_.end()) {
      entry.fail("'name' is " + brief(name) + ", which is no state value");
      return;
    }
    program_.state_outputs.push_back({found->second, value});
  } else {
    entry.fail("unknown role " + brief(role));
  }
}

}  // namespace

Result<Program> parse_program(std::string_view text, const std::string& file_name) {
  const auto in_file = [&](Error error) {
    error.message = file_name + ": " + error.message;
    return tl::unexpected<Error>(std::move(error));
  };
  Result<Json> json = parse_json(text);
  if (!json.has_value()) {
    return in_file(json.error());
  }
  if (Result<void> checked = check_own_checksum(text, *json); !checked.has_value()) {
    return in_file(checked.error());
  }
  Result<Program> program = ProgramReader().read(*json);
  if (!program.has_value()) {
    return in_file(program.error());
  }
  if (Result<void> verified = verify(*program); !verified.has_value()) {
    return in_file(verified.error());
  }
  return program;
}

Result<Program> read_program(const std::filesystem::path& path, std::string_view which) {
  std::error_code ignored;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    file /= std::string(which) + ".json";
  }
  TESSER_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(file));
  const auto bytes = mapped.bytes();
  if (bytes.size() > kLargestFile) {
    return invalid_input(file.string() + ": has " + std::to_string(bytes.size()) + " bytes, a program has at most " +
                         std::to_string(kLargestFile));
  }
  return parse_program({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
}

}  // namespace tesser::graph
