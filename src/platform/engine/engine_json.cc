#include <utility>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "platform/engine/engine.h"

namespace tesser::platform {
namespace {

std::string text_of(const std::map<std::string, std::string>& strings) {
  JsonMembers members;
  for (const auto& [key, value] : strings) {
    members.add(key, value);
  }
  return members.object();
}

std::string text_of(const Resources& resources) {
  JsonMembers accelerators;
  for (const auto& [type, count] : resources.accelerators) {
    accelerators.add(type, count);
  }
  return JsonMembers()
      .add("millicpus", resources.millicpus)
      .add("memory_bytes", resources.memory_bytes)
      .add_text("accelerators", accelerators.object())
      .object();
}

// The members of an object that is a member, each read by `take`; whether all were as expected.
template <typename Take>
void read_members(JsonReader& reader, const Json& json, const std::string& key, const Take& take) {
  const Json* found = json.find(key);
  if (found == nullptr || found->object() == nullptr) {
    reader.fail("'" + key + "' is missing or not an object");
    return;
  }
  for (const auto& [name, value] : *found->object()) {
    if (!take(name, value)) {
      reader.fail("'" + key + "': '" + name + "' is not as expected");
    }
  }
}

Resources read_resources(JsonReader& outer, const Json& json, const std::string& key) {
  Resources resources;
  const Json* found = json.find(key);
  if (found == nullptr) {
    outer.fail("'" + key + "' is missing");
    return resources;
  }
  JsonReader reader(*found, key);
  resources.millicpus = reader.integer("millicpus", 0);
  resources.memory_bytes = reader.integer("memory_bytes", 0);
  read_members(reader, *found, "accelerators", [&](const std::string& type, const Json& count) {
    resources.accelerators[type] = count.integer() != nullptr ? *count.integer() : 0;
    return count.integer() != nullptr && *count.integer() >= 0;
  });
  if (const auto outcome = reader.outcome(); !outcome) {
    outer.fail(outcome.error().message);
  }
  return resources;
}

std::map<std::string, std::string> read_strings(JsonReader& reader, const Json& json, const std::string& key) {
  std::map<std::string, std::string> strings;
  read_members(reader, json, key, [&](const std::string& name, const Json& value) {
    strings[name] = value.string() != nullptr ? *value.string() : "";
    return value.string() != nullptr;
  });
  return strings;
}

std::vector<std::string> strings_of(const std::vector<std::filesystem::path>& paths) {
  return {paths.begin(), paths.end()};
}

}  // namespace

std::string to_json(const Deployment& deployment) {
  return JsonMembers()
      .add("job", deployment.job)
      .add("team", deployment.team)
      .add("attempt", deployment.attempt)
      .add_text("command", json_list(deployment.command))
      .add_text("environment", text_of(deployment.environment))
      .add("volume", deployment.volume.string())
      .add_text("each", text_of(deployment.each))
      .add_text("nodes", json_list(deployment.nodes))
      .object();
}

Result<Deployment> deployment_from_json(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  JsonReader reader(json, "deployment");
  Deployment deployment;
  deployment.job = reader.string("job");
  deployment.team = reader.string("team");
  deployment.attempt = static_cast<int>(reader.integer("attempt", 0));
  deployment.command = reader.strings("command");
  deployment.environment = read_strings(reader, json, "environment");
  deployment.volume = reader.string("volume");
  deployment.each = read_resources(reader, json, "each");
  deployment.nodes = reader.strings("nodes");
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return deployment;
}

std::string to_json(const EngineSettings& settings) {
  return JsonMembers()
      .add("kind", settings.kind)
      .add("patience_milliseconds", static_cast<std::int64_t>(settings.patience.count()))
      .add_text(
          "nodes",
          json_list(settings.nodes,
                    [](const Node& node) {
                      return JsonMembers().add("name", node.name).add_text("capacity", text_of(node.capacity)).object();
                    }))
      .add("state_directory", settings.state_directory.string())
      .add("slurm_configuration", settings.slurm_configuration.string())
      .add("partition", settings.partition)
      .add("system_places", settings.system_places)
      .add("kubeconfig", settings.kubeconfig.string())
      .add("image", settings.image)
      .add("namespace_prefix", settings.namespace_prefix)
      .add_text("host_directories", json_list(strings_of(settings.host_directories)))
      .object();
}

Result<EngineSettings> engine_settings_from_json(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  JsonReader reader(json, "engine settings");
  EngineSettings settings;
  settings.kind = reader.string("kind");
  settings.patience = std::chrono::milliseconds(reader.integer("patience_milliseconds", 1));
  for (const Json& entry : reader.array("nodes")) {
    JsonReader member(entry, "nodes");
    Node node;
    node.name = member.string("name");
    node.capacity = read_resources(member, entry, "capacity");
    if (const auto outcome = member.outcome(); !outcome) {
      reader.fail(outcome.error().message);
    }
    settings.nodes.push_back(std::move(node));
  }
  settings.state_directory = reader.string("state_directory");
  settings.slurm_configuration = reader.string("slurm_configuration");
  settings.partition = reader.string("partition");
  settings.system_places = reader.boolean("system_places");
  settings.kubeconfig = reader.string("kubeconfig");
  settings.image = reader.string("image");
  settings.namespace_prefix = reader.string("namespace_prefix");
  settings.host_directories.clear();
  for (const std::string& directory : reader.strings("host_directories")) {
    settings.host_directories.emplace_back(directory);
  }
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return settings;
}

}  // namespace tesser::platform
