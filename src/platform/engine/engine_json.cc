#include <utility>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "platform/engine/engine.h"
#include "platform/job/resources_json.h"

namespace tesser::platform {
namespace {

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
      .add_text("environment", json_object(deployment.environment))
      .add("volume", deployment.volume.string())
      .add_text("each", resources_json(deployment.each))
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
  deployment.environment = reader.map<std::string>("environment");
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
      .add_text("nodes", json_list(settings.nodes,
                                   [](const Node& node) {
                                     return JsonMembers()
                                         .add("name", node.name)
                                         .add_text("capacity", resources_json(node.capacity))
                                         .object();
                                   }))
      .add("state_directory", settings.state_directory.string())
      .add("slurm_configuration", settings.slurm_configuration.string())
      .add("partition", settings.partition)
      .add("system_places", settings.system_places)
      .add("volumes", settings.volumes.string())
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
  settings.volumes = reader.string("volumes");
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
