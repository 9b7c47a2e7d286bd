// job.json: a manifest with every default filled in, as the platform's own processes read it.
#include "base/json.h"
#include "base/json_members.h"
#include "base/json_reader.h"
#include "platform/job/manifest.h"
#include "platform/job/resources_json.h"

namespace tesser::platform {
namespace {

std::string program_json(const TesserProgram& program) {
  return JsonMembers()
      .add("program", program.program)
      .add("data", program.data)
      .add("workers", program.workers)
      .add("replicas", program.replicas)
      .add("preset", program.preset)
      .add_text("arguments", json_list(program.arguments))
      .object();
}

std::string data_store_json(const DataStore& store) {
  return JsonMembers()
      .add("id", store.id)
      .add("type", store.type)
      .add("path", store.path.string())
      .add("endpoint", store.endpoint)
      .add("region", store.region)
      .add("bucket", store.bucket)
      .add("prefix", store.prefix)
      .add("access_key", store.access_key)
      .add("secret_key", store.secret_key)
      .object();
}

std::string metric_json(const MetricExtractor& extractor) {
  return JsonMembers()
      .add("type", extractor.type)
      .add("pattern", extractor.pattern)
      .add("path", extractor.path.string())
      .object();
}

std::optional<int> read_size(JsonReader& reader, std::string_view key) {
  const auto size = reader.optional_integer(key, 1);
  return size ? std::optional(static_cast<int>(*size)) : std::nullopt;
}

void read_program(JsonReader& reader, const Json& json, Manifest& manifest) {
  const Json* found = json.find("program");
  if (found == nullptr || found->is_null()) {
    return;
  }
  JsonReader members(*found, "program");
  TesserProgram program;
  program.program = members.string("program");
  program.data = members.string("data");
  program.workers = read_size(members, "workers");
  program.replicas = read_size(members, "replicas");
  program.preset = members.string("preset");
  program.arguments = members.strings("arguments");
  if (const Result<void> outcome = members.outcome(); !outcome) {
    reader.fail(outcome.error().message);
  }
  manifest.program = std::move(program);
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  return JsonMembers()
      .add("name", manifest.name)
      .add("description", manifest.description)
      .add("team", manifest.team)
      .add_text("command", json_list(manifest.command))
      .add_text("program", manifest.program ? program_json(*manifest.program) : "null")
      .add("learners", manifest.learners)
      .add_text("each", resources_json(manifest.each))
      .add("priority", manifest.priority)
      .add_text("environment", json_object(manifest.environment))
      .add_text("data_stores", json_list(manifest.data_stores, data_store_json))
      .add("results", manifest.results)
      .add("restarts", manifest.restarts)
      .add("time_limit_seconds", std::int64_t{manifest.time_limit.count()})
      .add("start_limit_seconds", std::int64_t{manifest.start_limit.count()})
      .add("grace_seconds", std::int64_t{manifest.grace.count()})
      .add("keep_checkpoints", manifest.keep_checkpoints)
      .add("checkpoint_every", manifest.checkpoint_every)
      .add("log_bytes", manifest.log_bytes)
      .add_text("metrics", json_list(manifest.metrics, metric_json))
      .object();
}

Result<Manifest> manifest_from_json(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  JsonReader reader(json, "job");
  Manifest manifest;
  manifest.name = reader.string("name");
  manifest.description = reader.string("description");
  manifest.team = reader.string("team");
  manifest.command = reader.strings("command");
  read_program(reader, json, manifest);
  manifest.learners = static_cast<int>(reader.integer("learners", 1));
  manifest.each = read_resources(reader, json, "each");
  if (manifest.each.millicpus < 1) {
    reader.fail("'each' has no millicpus");
  }
  manifest.priority = static_cast<int>(reader.integer("priority", 0));
  manifest.environment = reader.map<std::string>("environment");
  manifest.data_stores = read_json_list<DataStore>(reader, "data_stores", [](JsonReader& members, DataStore& store) {
    store.id = members.string("id");
    store.type = members.string("type");
    store.path = members.string("path");
    store.endpoint = members.string("endpoint");
    store.region = members.string("region");
    store.bucket = members.string("bucket");
    store.prefix = members.string("prefix");
    store.access_key = members.string("access_key");
    store.secret_key = members.string("secret_key");
  });
  manifest.results = reader.string("results");
  manifest.restarts = static_cast<int>(reader.integer("restarts", 0));
  manifest.time_limit = std::chrono::seconds(reader.integer("time_limit_seconds", 0));
  manifest.start_limit = std::chrono::seconds(reader.integer("start_limit_seconds", 0));
  manifest.grace = std::chrono::seconds(reader.integer("grace_seconds", 0));
  manifest.keep_checkpoints = static_cast<int>(reader.integer("keep_checkpoints", 1));
  manifest.checkpoint_every = reader.integer("checkpoint_every", 0);
  manifest.log_bytes = reader.integer("log_bytes", 1);
  manifest.metrics =
      read_json_list<MetricExtractor>(reader, "metrics", [](JsonReader& members, MetricExtractor& extractor) {
        extractor.type = members.string("type");
        extractor.pattern = members.string("pattern");
        extractor.path = members.string("path");
      });
  TESSER_RETURN_IF_ERROR(reader.outcome());
  return manifest;
}

}  // namespace tesser::platform
