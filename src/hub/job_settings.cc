#include "hub/job_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"

namespace tesser::hub {
namespace {

constexpr std::array<std::pair<UpdateTime, std::string_view>, 2> kUpdateTimes = {
    {{UpdateTime::kAtStep, "step"}, {UpdateTime::kAtOnce, "at-once"}}};
constexpr std::array<std::pair<OnLoss, std::string_view>, 3> kLosses = {
    {{OnLoss::kStop, "stop"}, {OnLoss::kContinue, "continue"}, {OnLoss::kWait, "wait"}}};
constexpr std::array<std::pair<Algorithm, std::string_view>, 3> kAlgorithms = {
    {{Algorithm::kSgd, "sgd"}, {Algorithm::kAdam, "adam"}, {Algorithm::kAssign, "assign"}}};

template <typename Names, typename Value>
std::string name_of(const Names& names, Value value) {
  for (const auto& [each, name] : names) {
    if (each == value) {
      return std::string(name);
    }
  }
  return {};
}

template <typename Names>
auto value_of(const Names& names, JsonReader& reader, std::string_view key) {
  const std::string text = reader.string(key);
  for (const auto& [value, name] : names) {
    if (name == text) {
      return value;
    }
  }
  reader.fail(fmt::format("'{}' is '{}', which is none of its values", key, text));
  return names.front().first;
}

std::string group_text(const ParameterGroup& group) {
  return JsonMembers()
      .add("algorithm", name_of(kAlgorithms, group.algorithm))
      .add("momentum", group.has_momentum)
      .add("nesterov", group.nesterov)
      .add("decoupled_weight_decay", group.decoupled_weight_decay)
      .add("amsgrad", group.amsgrad)
      .add("maximize", group.maximize)
      .object();
}

void read_group(JsonReader& reader, ParameterGroup& group) {
  group.algorithm = value_of(kAlgorithms, reader, "algorithm");
  group.has_momentum = reader.boolean("momentum");
  group.nesterov = reader.boolean("nesterov");
  group.decoupled_weight_decay = reader.boolean("decoupled_weight_decay");
  group.amsgrad = reader.boolean("amsgrad");
  group.maximize = reader.boolean("maximize");
}

// [name, elements, group, elements of a row, 1 or 0: whether it counts in the norm]: there may be thousands.
std::string key_text(const Key& key) {
  return fmt::format("[{},{},{},{},{}]", json_string(key.name), key.elements, key.group, key.row_elements,
                     key.in_norm ? 1 : 0);
}

std::vector<Key> read_keys(JsonReader& reader) {
  std::vector<Key> keys;
  for (const Json& entry : reader.array("keys")) {
    const Json::Array* parts = entry.array();
    const bool is_key =
        parts != nullptr && parts->size() >= 3 && parts->size() <= 5 && (*parts)[0].string() != nullptr &&
        std::all_of(parts->begin() + 1, parts->end(), [](const Json& part) { return part.integer() != nullptr; });
    if (!is_key) {
      reader.fail(
          "'keys' holds what is not [name, elements, group], with the elements of a row and whether it counts in the "
          "norm as further numbers");
      break;
    }
    const std::int64_t row = parts->size() > 3 ? *(*parts)[3].integer() : 0;
    const bool in_norm = parts->size() < 5 || *(*parts)[4].integer() != 0;
    keys.push_back({*(*parts)[0].string(), *(*parts)[1].integer(), *(*parts)[2].integer(), row, in_norm});
  }
  return keys;
}

}  // namespace

int ParameterGroup::state_tensors() const {
  switch (algorithm) {
    case Algorithm::kSgd:
      return has_momentum ? 1 : 0;
    case Algorithm::kAdam:
      return amsgrad ? 3 : 2;
    case Algorithm::kAssign:
      break;
  }
  return 0;
}

Result<void> check(const JobSettings& settings) {
  if (settings.replicas < 1 || settings.replicas > kMostReplicas) {
    return invalid_input(fmt::format("{} replicas; a hub serves 1 to {}", settings.replicas, kMostReplicas));
  }
  if (settings.racks < 1 || settings.racks > kMostRacks || settings.replicas % settings.racks != 0) {
    return invalid_input(fmt::format("{} replicas on {} racks: 1 to {} racks have the same number of replicas each",
                                     settings.replicas, settings.racks, kMostRacks));
  }
  if (settings.racks > 1 && (settings.one_machine || settings.clip_norm > 0 || settings.on_loss != OnLoss::kStop)) {
    return invalid_input(
        "a job on several racks is not on one machine, does not clip by the norm of the whole gradient, and stops when "
        "a worker is lost");
  }
  if (settings.groups.empty() || settings.keys.empty()) {
    return invalid_input("a job needs at least one tensor and one parameter group");
  }
  if (settings.chunk_bytes < 64 || settings.chunk_bytes % 64 != 0 || settings.chunk_bytes > (std::int64_t{1} << 30)) {
    return invalid_input(
        fmt::format("chunks of {} bytes; they take a multiple of 64 bytes, up to 1 GiB", settings.chunk_bytes));
  }
  if (settings.wire != DType::kFloat32 && settings.wire != DType::kBFloat16 && settings.wire != DType::kFloat16) {
    return invalid_input(
        fmt::format("gradients travel as float32, bfloat16 or float16, not as {}", dtype_name(settings.wire)));
  }
  if (!std::isfinite(settings.clip_norm) || settings.clip_norm < 0) {
    return invalid_input("the norm to clip gradients to must be positive, or 0 for none");
  }
  if (settings.norm_jobs < 1 || settings.norm_job < 0 || settings.norm_job >= settings.norm_jobs ||
      (settings.norm_jobs > 1 && (settings.norm_group.empty() || settings.clip_norm == 0))) {
    return invalid_input(
        fmt::format("job {} of {} that clip by one norm; they are counted from 0, name their group, "
                    "and clip",
                    settings.norm_job, settings.norm_jobs));
  }
  if (settings.update_time == UpdateTime::kAtOnce && settings.on_loss == OnLoss::kWait) {
    return invalid_input(
        "a job whose weights change at once cannot wait for a lost worker, whose step would be half applied; let the "
        "update happen at the step, or let the job stop or continue on a loss");
  }
  std::set<std::string_view> names;
  std::int64_t total = 0;
  for (const Key& key : settings.keys) {
    if (key.name.empty() || !names.insert(key.name).second) {
      return invalid_input(fmt::format("two tensors are named '{}', or one has no name", key.name));
    }
    if (key.elements < 1 || key.elements > (std::int64_t{1} << 40) - total) {
      return invalid_input(fmt::format("tensor '{}' has {} elements", key.name, key.elements));
    }
    if (key.row_elements < 0 || key.row_elements > key.elements ||
        (key.row_elements != 0 && key.elements % key.row_elements != 0)) {
      return invalid_input(
          fmt::format("tensor '{}' of {} elements has no rows of {}", key.name, key.elements, key.row_elements));
    }
    total += key.elements;
    if (key.group < 0 || key.group >= static_cast<std::int64_t>(settings.groups.size())) {
      return invalid_input(fmt::format("tensor '{}' is of parameter group {}, and there are {}", key.name, key.group,
                                       settings.groups.size()));
    }
  }
  for (const ParameterGroup& group : settings.groups) {
    if (group.nesterov && !group.has_momentum) {
      return invalid_input("Nesterov's update needs momentum");
    }
  }
  return {};
}

std::string to_json(const JobSettings& settings) {
  return JsonMembers()
      .add("replicas", settings.replicas)
      .add("racks", settings.racks)
      .add_text("groups", json_list(settings.groups, group_text))
      .add("average", settings.average)
      .add("clip_norm", settings.clip_norm)
      .add("norm_group", settings.norm_group)
      .add("norm_jobs", settings.norm_jobs)
      .add("norm_job", settings.norm_job)
      .add("wire", std::string(dtype_name(settings.wire)))
      .add("update", name_of(kUpdateTimes, settings.update_time))
      .add("on_loss", name_of(kLosses, settings.on_loss))
      .add("one_machine", settings.one_machine)
      .add("chunk_bytes", settings.chunk_bytes)
      .add_text("keys", json_list(settings.keys, key_text))
      .object();
}

Result<JobSettings> read_job_settings(const std::string& text) {
  return read_json_object<JobSettings>(text, "job settings",
                                       [](JsonReader& reader, JobSettings& settings) {
                                         settings.replicas = reader.integer("replicas", 1);
                                         settings.racks = reader.integer("racks", 1);
                                         settings.groups = read_json_list<ParameterGroup>(reader, "groups", read_group);
                                         settings.average = reader.boolean("average");
                                         settings.clip_norm = reader.number("clip_norm");
                                         if (reader.has("norm_group")) {
                                           settings.norm_group = reader.string("norm_group");
                                           settings.norm_jobs = reader.integer("norm_jobs", 1);
                                           settings.norm_job = reader.integer("norm_job");
                                         }
                                         const std::string wire = reader.string("wire");
                                         settings.wire = dtype_from_name(wire).value_or(DType::kBool);
                                         settings.update_time = value_of(kUpdateTimes, reader, "update");
                                         settings.on_loss = value_of(kLosses, reader, "on_loss");
                                         settings.one_machine = reader.boolean("one_machine");
                                         settings.chunk_bytes = reader.integer("chunk_bytes", 1);
                                         settings.keys = read_keys(reader);
                                       })
      .and_then([](JobSettings settings) -> Result<JobSettings> {
        TESSER_RETURN_IF_ERROR(check(settings));
        return settings;
      });
}

std::string difference(const JobSettings& here, const JobSettings& there) {
  const auto differs = [](std::string_view what, const auto& first, const auto& second) {
    return fmt::format("{}: {} here and {} there", what, first, second);
  };
  if (here.replicas != there.replicas) {
    return differs("replicas", here.replicas, there.replicas);
  }
  if (here.keys.size() != there.keys.size()) {
    return differs("number of tensors", here.keys.size(), there.keys.size());
  }
  for (std::size_t key = 0; key < here.keys.size(); ++key) {
    if (here.keys[key] != there.keys[key]) {
      return differs(fmt::format("tensor {}", key), key_text(here.keys[key]), key_text(there.keys[key]));
    }
  }
  if (here.groups.size() != there.groups.size()) {
    return differs("number of parameter groups", here.groups.size(), there.groups.size());
  }
  for (std::size_t group = 0; group < here.groups.size(); ++group) {
    if (here.groups[group] != there.groups[group]) {
      return differs(fmt::format("parameter group {}", group), group_text(here.groups[group]),
                     group_text(there.groups[group]));
    }
  }
  if (here == there) {
    return {};
  }
  // What is left is short.
  JobSettings first = here;
  JobSettings second = there;
  first.keys.clear();
  second.keys.clear();
  return differs("settings", to_json(first), to_json(second));
}

}  // namespace tesser::hub
