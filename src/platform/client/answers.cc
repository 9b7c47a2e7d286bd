#include "platform/client/answers.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_members.h"
#include "base/json_reader.h"

namespace tesser::platform {
namespace {

// The value as JSON again, for --json of parts of an answer.
std::string text_of(const Json& json) {
  if (json.string() != nullptr) {
    return json_string(*json.string());
  }
  if (json.integer() != nullptr) {
    return std::to_string(*json.integer());
  }
  if (const auto* number = json.get<double>()) {
    return json_number_text(*number);
  }
  if (const auto* truth = json.get<bool>()) {
    return *truth ? "true" : "false";
  }
  if (json.array() != nullptr) {
    return json_list(*json.array(), text_of);
  }
  if (json.object() != nullptr) {
    JsonMembers members;
    for (const auto& [key, value] : *json.object()) {
      members.add_text(key, text_of(value));
    }
    return members.object();
  }
  return "null";
}

// Members that may be missing or null.
std::string string_of(const Json& json, std::string_view key) {
  const Json* found = json.find(key);
  return found != nullptr && found->string() != nullptr ? *found->string() : "";
}
std::int64_t integer_of(const Json& json, std::string_view key) {
  const Json* found = json.find(key);
  return found != nullptr && found->integer() != nullptr ? *found->integer() : 0;
}
int int_of(const Json& json, std::string_view key) { return static_cast<int>(integer_of(json, key)); }
bool bool_of(const Json& json, std::string_view key, bool otherwise) {
  const Json* found = json.find(key);
  return found != nullptr && found->get<bool>() != nullptr ? *found->get<bool>() : otherwise;
}
std::optional<double> number_of(const Json& json, std::string_view key) {
  const Json* found = json.find(key);
  if (found == nullptr) {
    return std::nullopt;
  }
  if (found->integer() != nullptr) {
    return static_cast<double>(*found->integer());
  }
  return found->get<double>() != nullptr ? std::optional(*found->get<double>()) : std::nullopt;
}
const Json::Array& array_of(const Json& json, std::string_view key) {
  static const Json::Array kNone;
  const Json* found = json.find(key);
  return found != nullptr && found->array() != nullptr ? *found->array() : kNone;
}

Resources resources_of(const Json* json) {
  Resources resources;
  if (json == nullptr) {
    return resources;
  }
  resources.millicpus = integer_of(*json, "millicpus");
  resources.memory_bytes = integer_of(*json, "memory_bytes");
  if (const Json* accelerators = json->find("accelerators"); accelerators != nullptr && accelerators->object()) {
    for (const auto& [type, count] : *accelerators->object()) {
      resources.accelerators[type] = count.integer() != nullptr ? *count.integer() : 0;
    }
  }
  return resources;
}

// Parses an object that must have `member`.
Result<Json> parse_object(std::string_view text, std::string_view member) {
  Result<Json> json = parse_json(text);
  if (!json || json->find(member) == nullptr) {
    return failed(
        fmt::format("the answer has no '{}'; is this a server of tesser's platform, and of this version?", member));
  }
  return json;
}

Result<JobAnswer> job_of(const Json& json) {
  JobAnswer job;
  job.id = string_of(json, "id");
  const std::string state = string_of(json, "state");
  const auto known = job_state_named(state);
  if (job.id.empty() || !known) {
    return failed(
        fmt::format("the answer has a job '{}' in a state '{}' that this client does not know", job.id, state));
  }
  job.state = *known;
  job.name = string_of(json, "name");
  job.description = string_of(json, "description");
  job.team = string_of(json, "team");
  job.user = string_of(json, "user");
  job.code = string_of(json, "code");
  job.reason = string_of(json, "reason");
  job.wanted = wanted_named(string_of(json, "wanted")).value_or(Wanted::kRun);
  job.priority = int_of(json, "priority");
  job.place_in_queue = int_of(json, "place_in_queue");
  job.starts_by = string_of(json, "starts_by");
  job.is_borrowed = bool_of(json, "is_borrowed", false);
  job.attempt = int_of(json, "attempt");
  job.restarts = int_of(json, "restarts");
  job.restarts_most = int_of(json, "restarts_most");
  job.submitted = string_of(json, "submitted");
  job.started = string_of(json, "started");
  job.ended = string_of(json, "ended");
  job.changed = string_of(json, "changed");
  job.each = resources_of(json.find("each"));
  job.learners_wanted = int_of(json, "learners_wanted");
  for (const Json& each : array_of(json, "learners")) {
    job.learners.push_back({int_of(each, "rank"), string_of(each, "node"), string_of(each, "state")});
  }
  if (const Json* progress = json.find("progress"); progress != nullptr && progress->object() != nullptr) {
    const auto whole = [&](std::string_view key) {
      const Json* found = progress->find(key);
      return found != nullptr && found->integer() != nullptr ? std::optional(*found->integer()) : std::nullopt;
    };
    job.progress = {whole("step"), whole("steps"), number_of(*progress, "seconds_left")};
  }
  job.json = text_of(json);
  return job;
}

}  // namespace

Result<JobAnswer> read_job(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_object(text, "id"));
  return job_of(json);
}

Result<JobsAnswer> read_jobs(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_object(text, "jobs"));
  JobsAnswer answer;
  answer.next = string_of(json, "next");
  for (const Json& each : array_of(json, "jobs")) {
    TESSER_ASSIGN_OR_RETURN(JobAnswer job, job_of(each));
    answer.jobs.push_back(std::move(job));
  }
  return answer;
}

Result<std::vector<ChangeAnswer>> read_history(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_object(text, "changes"));
  std::vector<ChangeAnswer> changes;
  for (const Json& each : array_of(json, "changes")) {
    changes.push_back({string_of(each, "time"), string_of(each, "state"), string_of(each, "code"),
                       string_of(each, "reason"), int_of(each, "attempt")});
  }
  return changes;
}

Result<LinesAnswer> read_lines(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_object(text, "lines"));
  LinesAnswer answer;
  answer.cursor = string_of(json, "cursor");
  answer.ended = bool_of(json, "ended", false);
  for (const Json& each : array_of(json, "lines")) {
    answer.lines.push_back({int_of(each, "learner"), int_of(each, "attempt"), integer_of(each, "sequence"),
                            string_of(each, "time"), string_of(each, "text"), text_of(each)});
  }
  return answer;
}

Result<MetricsAnswer> read_metrics(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_object(text, "metrics"));
  MetricsAnswer answer;
  answer.cursor = string_of(json, "cursor");
  answer.ended = bool_of(json, "ended", false);
  for (const Json& each : array_of(json, "metrics")) {
    answer.metrics.push_back({int_of(each, "learner"), integer_of(each, "step"), string_of(each, "time"),
                              string_of(each, "name"), number_of(each, "value"), text_of(each)});
  }
  return answer;
}

Result<std::vector<NodeAnswer>> read_nodes(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_object(text, "nodes"));
  std::vector<NodeAnswer> nodes;
  for (const Json& each : array_of(json, "nodes")) {
    NodeAnswer node;
    node.name = string_of(each, "name");
    node.is_ready = bool_of(each, "is_ready", true);
    node.not_ready = string_of(each, "not_ready");
    node.is_draining = bool_of(each, "is_draining", false);
    node.capacity = resources_of(each.find("capacity"));
    node.held = resources_of(each.find("held"));
    for (const Json& job : array_of(each, "jobs")) {
      node.jobs.push_back(job.string() != nullptr ? *job.string() : "");
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

Result<std::vector<QuotaAnswer>> read_quota(std::string_view text) {
  TESSER_ASSIGN_OR_RETURN(const Json json, parse_object(text, "teams"));
  std::vector<QuotaAnswer> teams;
  for (const Json& each : array_of(json, "teams")) {
    const Json* quota = each.find("quota");
    teams.push_back(
        {string_of(each, "team"), int_of(each, "running"), int_of(each, "waiting"), resources_of(each.find("held")),
         resources_of(each.find("borrowed")),
         quota != nullptr && quota->object() != nullptr ? std::optional(resources_of(quota)) : std::nullopt});
  }
  return teams;
}

}  // namespace tesser::platform
