#include "platform/store/store_read.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"

namespace tesser::platform {
// Texts in the store were written by the store: what cannot be read is damage, which is shown as nothing.
Resources resources_of(const std::string& text) {
  Resources resources;
  const auto json = parse_json(text);
  if (!json) {
    return resources;
  }
  JsonReader reader(*json, "resources");
  resources.millicpus = reader.integer("millicpus");
  resources.memory_bytes = reader.integer("memory");
  if (const Json* accelerators = json->find("accelerators"); accelerators != nullptr && accelerators->object()) {
    for (const auto& [type, count] : *accelerators->object()) {
      resources.accelerators[type] = count.integer() != nullptr ? *count.integer() : 0;
    }
  }
  return resources;
}

namespace {

Placement placement_of(const std::string& text) {
  Placement placement;
  const auto json = parse_json(text);
  if (json && json->array() != nullptr) {
    for (const Json& name : *json->array()) {
      placement.push_back(name.string() != nullptr ? *name.string() : "");
    }
  }
  return placement;
}

}  // namespace

const char* const kJobColumns =
    "number, id, name, description, user, team, priority, learners, resources, state, code, reason, wanted, attempt, "
    "epoch, holder, placement, restarts, restarts_most, longest, is_borrowed, "
    "preempted, submitted, queued, placed, changed, started, ended";

JobRecord record_of(SQLite::Statement& row) {
  JobRecord job;
  int column = 0;
  const auto text = [&] { return row.getColumn(column++).getString(); };
  const auto number = [&] { return row.getColumn(column++).getInt64(); };
  job.number = number();
  job.id = text();
  job.name = text();
  job.description = text();
  job.user = text();
  job.team = text();
  job.priority = static_cast<int>(number());
  job.learners = static_cast<int>(number());
  job.each = resources_of(text());
  job.state = job_state_named(text()).value_or(JobState::kFailed);
  job.code = text();
  job.reason = text();
  job.wanted = wanted_named(text()).value_or(Wanted::kHalt);
  job.attempt = static_cast<int>(number());
  job.epoch = number();
  job.holder = text();
  job.placement = placement_of(text());
  job.restarts = static_cast<int>(number());
  job.restarts_most = static_cast<int>(number());
  job.longest = number();
  job.is_borrowed = number() != 0;
  job.preempted = text();
  job.submitted = number();
  job.queued = number();
  job.placed = number();
  job.changed = number();
  job.started = number();
  job.ended = number();
  return job;
}

Result<JobRecord> read_job(SQLite::Database& database, const std::string& id) {
  SQLite::Statement query(database, fmt::format("SELECT {} FROM jobs WHERE id = ?", kJobColumns));
  query.bind(1, id);
  if (!query.executeStep()) {
    return not_found(fmt::format("there is no job '{}'; `tesser list` shows those there are", id));
  }
  return record_of(query);
}

std::string resources_text(const Resources& resources) {
  JsonMembers accelerators;
  for (const auto& [type, count] : resources.accelerators) {
    accelerators.add(type, count);
  }
  return JsonMembers()
      .add("millicpus", resources.millicpus)
      .add("memory", resources.memory_bytes)
      .add_text("accelerators", accelerators.object())
      .object();
}

}  // namespace tesser::platform
