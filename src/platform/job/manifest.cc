#include "platform/job/manifest.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "platform/job/manifest_fields.h"
#include "platform/job/manifest_secrets.h"
#include "platform/job/metric_pattern.h"
#include "platform/job/yaml_value.h"

namespace tesser::platform {
namespace {

constexpr std::int64_t kYear = std::int64_t{366} * 86400;
constexpr std::int64_t kPebibyte = std::int64_t{1} << 50;

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kDigits = "0123456789";

bool is_made_of(std::string_view text, std::string_view more, bool capitals = true) {
  const std::string_view letters = kLetters.substr(0, capitals ? kLetters.size() : 26);
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return letters.find(c) != std::string_view::npos || kDigits.find(c) != std::string_view::npos ||
           more.find(c) != std::string_view::npos;
  });
}

// A name that is a label of hosts, Kubernetes and Slurm alike.
bool is_label(std::string_view text) {
  return text.size() <= 40 && is_made_of(text, "-", false) && !text.starts_with('-') && !text.ends_with('-');
}
constexpr const char* kLabel =
    "small letters, digits and '-' between them, at most 40 of them, such as mnist or resnet-50";

bool is_store_id(std::string_view text) {
  return text.size() <= 63 && is_made_of(text, "_.-") && is_made_of(text.substr(0, 1), "");
}

bool is_variable(std::string_view text) {
  return !text.empty() && is_made_of(text, "_") && kDigits.find(text.front()) == std::string_view::npos;
}

// A path that stays inside the directory it is taken from.
bool is_inner_path(std::string_view text) {
  if (!is_free_text(text) || text.starts_with('/')) {
    return false;
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    if (text.substr(begin, end - begin) == "..") {
      return false;
    }
    begin = end + 1;
  }
  return true;
}
constexpr const char* kInnerPath = "a path without '..' that does not begin with '/'";

bool is_absolute_path(std::string_view text) { return is_free_text(text) && text.starts_with('/'); }

bool is_bucket(std::string_view text) {
  return text.size() >= 3 && text.size() <= 63 && is_made_of(text, ".-", false) && is_made_of(text.substr(0, 1), "") &&
         is_made_of(text.substr(text.size() - 1), "");
}

bool is_endpoint(std::string_view text) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (text.starts_with(scheme)) {
      text.remove_prefix(scheme.size());
      return !text.empty() && is_made_of(text, ".:[]-");
    }
  }
  return false;
}

bool is_region(std::string_view text) { return is_made_of(text, "-", false); }
bool is_prefix(std::string_view text) { return is_free_text(text) && !text.starts_with('/'); }

std::optional<std::int64_t> millicpus_of(const YamlValue& value) {
  double cpus = 0;
  if (value.kind == YamlValue::Kind::kNumber) {
    cpus = value.number * 1000;
  } else if (value.kind == YamlValue::Kind::kText && value.text.size() > 1 && value.text.size() < 12 &&
             value.text.ends_with('m') && value.text.find_first_not_of(kDigits) == value.text.size() - 1) {
    cpus = std::stod(value.text);
  } else {
    return std::nullopt;
  }
  const bool is_right = cpus >= 1 && cpus <= 1e8;
  return is_right ? std::optional(std::llround(cpus)) : std::nullopt;
}

void read_sizes(ManifestFields& fields, Manifest& manifest) {
  ManifestProblem& problem = fields.problem();
  if (const YamlValue* cpus = fields.find("cpus")) {
    const auto millicpus = millicpus_of(*cpus);
    if (!millicpus) {
      problem.at(cpus->line, fmt::format("'cpus' is {}, expected a number from 0.001 to 100000, such as 4, 0.5 or 500m",
                                         cpus->is_scalar() ? cpus->text : kind_name(*cpus)));
    }
    manifest.each.millicpus = millicpus.value_or(1000);
  }
  manifest.each.memory_bytes = fields.bytes("memory", {std::int64_t{1} << 20, kPebibyte}).value_or(0);
  if (const YamlValue* accelerators = fields.mapping("accelerators")) {
    ManifestFields types(*accelerators, "'accelerators'", problem);
    for (const auto& [type, count] : accelerators->members()) {
      if (type.text.empty() || type.text.size() > 63 || !is_made_of(type.text, "_./-") ||
          !is_made_of(type.text.substr(0, 1), "")) {
        problem.at(type.line, fmt::format("'{}' is no type of accelerators; expected a name such as v100",
                                          type.text.substr(0, 100)));
      }
      if (const auto number = types.integer(type.text, {1, 1024})) {
        manifest.each.accelerators[type.text] = *number;
      }
    }
  }
}

void read_command(ManifestFields& fields, Manifest& manifest) {
  ManifestProblem& problem = fields.problem();
  const bool has_command = fields.has("command");
  const bool has_program = fields.has("program");
  if (has_command == has_program) {
    problem.missing(has_command ? "has both 'command' and 'program'; take one away"
                                : "says nothing to run; give 'command', such as `command: python train.py`, or for a "
                                  "tesser program 'program' and 'data'");
  }
  if (const YamlValue* command = fields.find("command")) {
    if (command->kind == YamlValue::Kind::kList) {
      manifest.command = fields.words("command", false);
      if (!manifest.command.empty() && manifest.command.front().empty()) {
        problem.at(command->line, "'command' begins with an empty word; the first is the program to run");
      }
    } else if (command->kind == YamlValue::Kind::kText) {
      manifest.command = {"sh", "-c", fields.text("command")};
    } else {
      problem.at(command->line,
                 fmt::format("'command' is {}, expected a shell line or a list of words", kind_name(*command)));
    }
  }
  TesserProgram program;
  program.program = fields.text("program", is_inner_path, kInnerPath);
  program.data = fields.text("data", is_inner_path, kInnerPath);
  const auto workers = fields.integer("workers", {1, 10'000});
  const auto replicas = fields.integer("replicas", {1, 10'000});
  program.workers = workers ? std::optional(static_cast<int>(*workers)) : std::nullopt;
  program.replicas = replicas ? std::optional(static_cast<int>(*replicas)) : std::nullopt;
  program.preset = fields.text("preset", is_label, kLabel);
  program.arguments = fields.words("arguments", true);
  const auto learners = fields.integer("learners", {1, 10'000});
  manifest.learners = static_cast<int>(learners.value_or(1));
  if (!has_program) {
    for (const char* key : {"data", "workers", "replicas", "preset", "arguments"}) {
      if (fields.has(key)) {
        problem.at(fields.find(key) != nullptr ? fields.find(key)->line : fields.line(),
                   fmt::format("'{}' belongs to a tesser program, and there is no 'program'", key));
      }
    }
    return;
  }
  if (const YamlValue* given = fields.find("learners")) {
    problem.at(given->line, "'learners' is for commands; a tesser program has 'workers' and 'replicas'");
  }
  if (!fields.has("data")) {
    problem.missing("has 'program' without 'data', the directory it is trained on");
  }
  const std::int64_t all = workers.value_or(1) * replicas.value_or(1);
  if (all > 10'000) {
    problem.missing(fmt::format("'workers' times 'replicas' is {}, expected at most 10000", all));
  }
  manifest.learners = static_cast<int>(std::min<std::int64_t>(all, 10'000));
  manifest.program = std::move(program);
}

void read_environment(ManifestFields& fields, Manifest& manifest, SecretTaker& secrets) {
  ManifestProblem& problem = fields.problem();
  const YamlValue* environment = fields.mapping("environment");
  if (environment == nullptr) {
    return;
  }
  for (const auto& [name, value] : environment->members()) {
    if (!is_variable(name.text)) {
      problem.at(name.line, fmt::format("'{}' is no name of an environment variable: letters, digits and underscores, "
                                        "no digit first",
                                        name.text.substr(0, 100)));
    } else if (name.text == "TESSER_LEARNER") {
      problem.at(name.line, "'TESSER_LEARNER' is the platform's own; take it away");
    } else if (value.kind == YamlValue::Kind::kMapping) {
      ManifestFields marked(value, fmt::format("the value of '{}'; `secret: VALUE` marks a secret", name.text),
                            problem);
      if (const YamlValue* secret = marked.find("secret")) {
        manifest.environment[name.text] = "${" + secrets.take(*secret, name.text) + "}";
      } else {
        problem.at(value.line, fmt::format("'{}' has keys and values; expected text, or `secret: VALUE`", name.text));
      }
      marked.finish();
    } else if (!value.is_scalar() || value.kind == YamlValue::Kind::kNull) {
      problem.at(name.line, fmt::format("'{}' is {}, expected text; '' is the empty one", name.text, kind_name(value)));
    } else if (!is_free_text(value.text)) {
      problem.at(value.line, fmt::format("'{}' has a zero byte in it", name.text));
    } else {
      secrets.refer(value);
      manifest.environment[name.text] = value.text;
    }
  }
}

DataStore read_data_store(const YamlValue& value, ManifestProblem& problem, SecretTaker& secrets) {
  DataStore store;
  ManifestFields fields(value, "a data store", problem);
  store.id = fields.text("id", is_store_id, "letters, digits, '_', '.' and '-', at most 63, a letter or digit first");
  store.type = fields.text(
      "type", [](std::string_view type) { return type == "host" || type == "s3"; }, "host or s3");
  for (const char* key : {"id", "type"}) {
    if (!fields.has(key)) {
      problem.at(value.line, fmt::format("this data store has no '{}'", key));
    }
  }
  if (store.type == "host") {
    store.path = fields.text("path", is_absolute_path, "a directory's path from '/' on, which all nodes see");
    if (!fields.has("path")) {
      problem.at(value.line, "this data store has no 'path'");
    }
  } else if (store.type == "s3") {
    store.endpoint = fields.text("endpoint", is_endpoint, "https://HOST[:PORT]");
    store.region =
        fields.has("region") ? fields.text("region", is_region, "a region such as eu-central-1") : store.region;
    store.bucket = fields.text("bucket", is_bucket, "a bucket's name: 3 to 63 small letters, digits, '.' and '-'");
    store.prefix = fields.text("prefix", is_prefix, "text that does not begin with '/'");
    const YamlValue* access_key = fields.find("access_key");
    const YamlValue* secret_key = fields.find("secret_key");
    if (!fields.has("bucket")) {
      problem.at(value.line, "this data store has no 'bucket'");
    }
    if ((access_key != nullptr) != (secret_key != nullptr)) {
      problem.at(value.line,
                 fmt::format("this data store has '{0}_key' without '{1}_key'",
                             access_key != nullptr ? "access" : "secret", access_key != nullptr ? "secret" : "access"));
    } else if (access_key != nullptr) {
      store.access_key = secrets.take(*access_key, store.id + "_ACCESS_KEY");
      store.secret_key = secrets.take(*secret_key, store.id + "_SECRET_KEY");
    }
  } else {
    for (const char* key : {"path", "endpoint", "region", "bucket", "prefix", "access_key", "secret_key"}) {
      fields.find(key);  // known of some type; the type's problem is the one to tell
    }
  }
  fields.finish();
  return store;
}

MetricExtractor read_metric(const YamlValue& value, ManifestProblem& problem) {
  MetricExtractor extractor;
  ManifestFields fields(value, "an entry of 'metrics'", problem);
  constexpr std::array<std::string_view, 4> kTypes = {"regex", "json", "tensorboard", "tesser"};
  extractor.type = fields.text(
      "type",
      [](std::string_view type) {
        return type == "regex" || type == "json" || type == "tensorboard" || type == "tesser";
      },
      "regex, json, tensorboard or tesser");
  if (!fields.has("type")) {
    problem.at(value.line, "this entry of 'metrics' has no 'type'");
  }
  const bool is_known = std::find(kTypes.begin(), kTypes.end(), extractor.type) != kTypes.end();
  if (extractor.type == "regex" || !is_known) {
    extractor.pattern = fields.text("pattern");
    if (is_known && !fields.has("pattern")) {
      problem.at(value.line, "this entry of 'metrics' has no 'pattern'");
    }
    if (!extractor.pattern.empty()) {
      if (const auto compiled = MetricPattern::compile(extractor.pattern); !compiled) {
        problem.at(fields.find("pattern")->line, compiled.error().message);
      }
    }
  }
  if (extractor.type == "json" || extractor.type == "tensorboard" || !is_known) {
    extractor.path = fields.text("path", is_inner_path, kInnerPath);
    if (extractor.type == "tensorboard" && !fields.has("path")) {
      problem.at(value.line, "this entry of 'metrics' has no 'path', the directory with event files");
    }
  }
  fields.finish();
  return extractor;
}

// "STORE" or "STORE/PATH".
bool begins_with_store(const std::string& text, const std::vector<DataStore>& stores) {
  return std::any_of(stores.begin(), stores.end(),
                     [&](const DataStore& store) { return store.id == text.substr(0, text.find('/')); });
}

void read_stores(ManifestFields& fields, Manifest& manifest, SecretTaker& secrets) {
  ManifestProblem& problem = fields.problem();
  for (const YamlValue& value : fields.list("data_stores")) {
    DataStore store = read_data_store(value, problem, secrets);
    for (const DataStore& other : manifest.data_stores) {
      if (!store.id.empty() && other.id == store.id) {
        problem.at(value.line, fmt::format("a second data store has the id '{}'", store.id));
      }
    }
    manifest.data_stores.push_back(std::move(store));
  }
  manifest.results = fields.text("results", is_inner_path, "STORE or STORE/PATH, with the id of a data store");
  if (!manifest.results.empty() && !begins_with_store(manifest.results, manifest.data_stores)) {
    problem.at(fields.find("results")->line,
               fmt::format("'results' is '{}', but no data store has the id '{}'", manifest.results,
                           manifest.results.substr(0, manifest.results.find('/'))));
  }
}

Manifest read(const YamlValue& document, ManifestProblem& problem, SecretTaker& secrets) {
  Manifest manifest;
  ManifestFields fields(document, "a manifest", problem);
  manifest.name = fields.text("name", is_label, kLabel);
  if (!fields.has("name")) {
    problem.missing("has no 'name'");
  }
  manifest.description = fields.text("description");
  manifest.team = fields.text("team", is_label, kLabel);
  read_command(fields, manifest);
  read_sizes(fields, manifest);
  manifest.priority = static_cast<int>(fields.integer("priority", {0, 100}).value_or(manifest.priority));
  read_environment(fields, manifest, secrets);
  read_stores(fields, manifest, secrets);
  manifest.restarts = static_cast<int>(fields.integer("restarts", {0, 1000}).value_or(manifest.restarts));
  manifest.time_limit = std::chrono::seconds(fields.seconds("time_limit", {1, kYear}).value_or(0));
  manifest.start_limit =
      std::chrono::seconds(fields.seconds("start_limit", {1, kYear}).value_or(manifest.start_limit.count()));
  manifest.grace = std::chrono::seconds(fields.seconds("grace", {0, 3600}).value_or(manifest.grace.count()));
  if (const YamlValue* checkpoints = fields.mapping("checkpoints")) {
    ManifestFields policy(*checkpoints, "'checkpoints'", problem);
    manifest.keep_checkpoints =
        static_cast<int>(policy.integer("keep", {1, 10'000}).value_or(manifest.keep_checkpoints));
    manifest.checkpoint_every = policy.integer("every", {1, 1'000'000'000}).value_or(0);
    if (manifest.checkpoint_every != 0 && !fields.has("program")) {
      problem.at(policy.find("every")->line, "'every' counts the steps of a tesser program, and there is no 'program'");
    }
    policy.finish();
  }
  manifest.log_bytes =
      fields.bytes("log_limit", {std::int64_t{1} << 16, std::int64_t{1} << 40}).value_or(manifest.log_bytes);
  for (const YamlValue& value : fields.list("metrics")) {
    manifest.metrics.push_back(read_metric(value, problem));
  }
  fields.finish();
  return manifest;
}

}  // namespace

Result<Submission> read_submission(std::string_view yaml, const std::string& where) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (yaml.starts_with(kByteOrderMark)) {
    yaml.remove_prefix(kByteOrderMark.size());
  }
  TESSER_ASSIGN_OR_RETURN(const YamlValue document, parse_yaml(yaml, where));
  ManifestProblem problem(where);
  SecretTaker secrets(yaml, problem);
  Submission submission;
  submission.manifest = read(document, problem, secrets);
  TESSER_RETURN_IF_ERROR(problem.outcome());
  submission.text = secrets.text_without_secrets();
  submission.secrets = secrets.secrets();
  submission.missing = secrets.missing();
  TESSER_RETURN_IF_ERROR(problem.outcome());
  if (!submission.secrets.empty()) {
    // What is stored must mean the same, whatever way the values were written.
    const Result<Submission> again = read_submission(submission.text, where);
    if (!again || again->manifest != submission.manifest || !again->secrets.empty()) {
      return invalid_input(
          fmt::format("{}: the secrets cannot be taken out of the text as they are written; write "
                      "${{NAME}} and set NAME in your environment",
                      where));
    }
  }
  return submission;
}

Result<Manifest> read_manifest(std::string_view yaml, const std::string& where) {
  TESSER_ASSIGN_OR_RETURN(Submission submission, read_submission(yaml, where));
  return std::move(submission.manifest);
}

}  // namespace tesser::platform
