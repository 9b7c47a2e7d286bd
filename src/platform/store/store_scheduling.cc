#include "platform/store/store_scheduling.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include "base/json_members.h"
#include "platform/store/store_read.h"

namespace tesser::platform {
namespace {

void set_borrowed(SQLite::Database& database, const std::string& id, bool is_borrowed) {
  SQLite::Statement set(database, "UPDATE jobs SET is_borrowed = ? WHERE id = ?");
  set.bind(1, is_borrowed ? 1 : 0);
  set.bind(2, id);
  set.exec();
}

Result<void> place(SQLite::Database& database, const JobRecord& job, const SchedulingStep& step, std::int64_t time) {
  TESSER_RETURN_IF_ERROR(check_change(job, JobState::kPending));
  if (job.wanted != Wanted::kRun) {
    return invalid_input(fmt::format("job {} is not wanted to run", job.id));
  }
  apply_change(database, job, {JobState::kPending, "", "", job.attempt, job.epoch, time});
  SQLite::Statement set(database, "UPDATE jobs SET placement = ?, placed = ?, is_borrowed = ? WHERE id = ?");
  set.bind(1, json_list(step.nodes));
  set.bind(2, time);
  set.bind(3, step.is_borrowed ? 1 : 0);
  set.bind(4, job.id);
  set.exec();
  return {};
}

Result<void> preempt(SQLite::Database& database, const JobRecord& job, const std::string& reason) {
  if (!holds_places(job.state) || job.state == JobState::kStoring) {
    return invalid_input(fmt::format("job {} is {} and cannot be preempted", job.id, name_of(job.state)));
  }
  if (job.wanted != Wanted::kRun || !job.preempted.empty()) {
    return invalid_input(fmt::format("job {} gives its places back already", job.id));
  }
  SQLite::Statement set(database, "UPDATE jobs SET preempted = ? WHERE id = ?");
  set.bind(1, reason);
  set.bind(2, job.id);
  set.exec();
  return {};
}

}  // namespace

void add_history(SQLite::Database& database, const std::string& id, const StateChange& change) {
  SQLite::Statement insert(database,
                           "INSERT INTO history SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7 "
                           "FROM history WHERE job = ?1");
  insert.bind(1, id);
  insert.bind(2, std::string(name_of(change.state)));
  insert.bind(3, change.code);
  insert.bind(4, change.reason);
  insert.bind(5, change.attempt);
  insert.bind(6, change.epoch);
  insert.bind(7, change.time);
  insert.exec();
}

void apply_change(SQLite::Database& database, const JobRecord& job, const StateChange& change) {
  const JobState state = change.state;
  const bool holds = holds_places(state);
  SQLite::Statement update(
      database,
      "UPDATE jobs SET state = ?2, code = ?3, reason = ?4, attempt = ?5, changed = ?6, queued = ?7, started = ?8, "
      "ended = ?9, restarts = restarts + ?11, placement = CASE WHEN ?10 THEN placement ELSE '[]' END, "
      "placed = CASE WHEN ?10 THEN placed ELSE 0 END, is_borrowed = CASE WHEN ?10 THEN is_borrowed ELSE 0 END, "
      "preempted = CASE WHEN ?10 THEN preempted ELSE '' END, holder = CASE WHEN ?10 THEN holder ELSE '' END, "
      // Whoever held the lease of a job without a guardian is fenced off.
      "epoch = CASE WHEN ?10 OR holder = '' THEN epoch ELSE epoch + 1 END WHERE id = ?1");
  update.bind(1, job.id);
  update.bind(2, std::string(name_of(state)));
  update.bind(3, change.code);
  update.bind(4, change.reason);
  update.bind(5, change.attempt);
  update.bind(6, change.time);
  update.bind(7, waits_for_places(state) ? change.time : job.queued);
  update.bind(8, state == JobState::kProcessing && job.started == 0 ? change.time : job.started);
  update.bind(9, is_final(state) || state == JobState::kHalted ? change.time : std::int64_t{0});
  update.bind(10, holds ? 1 : 0);
  const bool again = job.state == JobState::kProcessing &&
                     (state == JobState::kDeploying || (waits_for_places(state) && change.code != kPreempted));
  update.bind(11, again ? 1 : 0);
  update.exec();
  add_history(database, job.id, change);
}

Result<void> check_change(const JobRecord& job, JobState to) {
  if (may_follow(job.state, to)) {
    return {};
  }
  if (is_final(job.state)) {
    return invalid_input(fmt::format("job {} is {}, which is final", job.id, name_of(job.state)));
  }
  return invalid_input(fmt::format("job {} is {}; {} does not follow that", job.id, name_of(job.state), name_of(to)));
}

Result<void> carry_out_step(SQLite::Database& database, const SchedulingStep& step, std::int64_t time) {
  TESSER_ASSIGN_OR_RETURN(const JobRecord job, read_job(database, step.job));
  switch (step.kind) {
    case SchedulingStep::Kind::kPlace:
      return place(database, job, step, time);
    case SchedulingStep::Kind::kPreempt:
      return preempt(database, job, step.reason);
    case SchedulingStep::Kind::kOwn:
    case SchedulingStep::Kind::kLend:
      break;
  }
  if (!holds_places(job.state)) {
    return invalid_input(fmt::format("job {} is {} and holds nothing", job.id, name_of(job.state)));
  }
  set_borrowed(database, job.id, step.kind == SchedulingStep::Kind::kLend);
  return {};
}

Result<void> write_quota(SQLite::Database& database, const std::string& team, const std::optional<Resources>& quota) {
  SQLite::Statement known(database, "SELECT 1 FROM teams WHERE name = ?");
  known.bind(1, team);
  if (!known.executeStep()) {
    return not_found(fmt::format("there is no team '{}'; `tesser team list` shows those there are", team));
  }
  SQLite::Statement write(database, quota ? "INSERT OR REPLACE INTO quotas (team, resources) VALUES (?, ?)"
                                          : "DELETE FROM quotas WHERE team = ?");
  write.bind(1, team);
  if (quota) {
    write.bind(2, resources_text(*quota));
  }
  write.exec();
  return {};
}

std::map<std::string, Resources> read_quotas(SQLite::Database& database) {
  std::map<std::string, Resources> quotas;
  SQLite::Statement query(database, "SELECT team, resources FROM quotas");
  while (query.executeStep()) {
    quotas.emplace(query.getColumn(0).getString(), resources_of(query.getColumn(1).getString()));
  }
  return quotas;
}

void write_draining(SQLite::Database& database, const std::string& node, bool drains) {
  SQLite::Statement write(database, drains ? "INSERT OR IGNORE INTO draining_nodes (name) VALUES (?)"
                                           : "DELETE FROM draining_nodes WHERE name = ?");
  write.bind(1, node);
  write.exec();
}

std::set<std::string> read_draining(SQLite::Database& database) {
  std::set<std::string> nodes;
  SQLite::Statement query(database, "SELECT name FROM draining_nodes");
  while (query.executeStep()) {
    nodes.insert(query.getColumn(0).getString());
  }
  return nodes;
}

}  // namespace tesser::platform
