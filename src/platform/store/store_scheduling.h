// Changes of a job's state, and what the scheduler decides, as statements of a transaction. Internal to this folder.
//
// All may throw SQLite::Exception.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "platform/store/store.h"

namespace SQLite {
class Database;
}  // namespace SQLite

namespace tesser::platform {

// kInvalidInput, in words, when the job may not go to this state.
Result<void> check_change(const JobRecord& job, JobState to);
// Stores a change that `job` may make, with all that follows from it: a job that holds places no longer has given back
// its quota and its lease with them.
void apply_change(SQLite::Database& database, const JobRecord& job, const StateChange& change);
void add_history(SQLite::Database& database, const std::string& id, const StateChange& change);

// kInvalidInput or kNotFound when the job has changed so that this cannot be any more.
Result<void> carry_out_step(SQLite::Database& database, const SchedulingStep& step, std::int64_t time);

// kNotFound when there is no such team.
Result<void> write_quota(SQLite::Database& database, const std::string& team, const std::optional<Resources>& quota);
std::map<std::string, Resources> read_quotas(SQLite::Database& database);
void write_draining(SQLite::Database& database, const std::string& node, bool drains);
std::set<std::string> read_draining(SQLite::Database& database);

}  // namespace tesser::platform
