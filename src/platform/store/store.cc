#include "platform/store/store.h"

#include <mutex>
#include <utility>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include "base/json_members.h"
#include "platform/store/database.h"
#include "platform/store/store_read.h"
#include "platform/store/store_scheduling.h"
#include "platform/store/tenants_store.h"

namespace tesser::platform {
namespace {

class SqliteStore final : public Store {
 public:
  explicit SqliteStore(std::unique_ptr<Database> database)
      : database_(std::move(database)), tenants_(make_tenants(*database_)) {}

  Tenants& tenants() override { return *tenants_; }

  Result<Submitted> submit(const NewJob& job, const std::string& guardian_token) override {
    Submitted made;
    const auto act = [&](SQLite::Database& database) -> Result<void> {
      made.is_new = true;
      if (!job.idempotency_key.empty()) {
        TESSER_ASSIGN_OR_RETURN(auto earlier,
                                find_submitted(database, job.user, job.idempotency_key, job.request_digest));
        if (earlier) {
          made = {std::move(*earlier), false};
          return {};
        }
      }
      if (made.one_too_many = one_too_many(database, job); !made.one_too_many.empty()) {
        return {};
      }
      SQLite::Statement insert(
          database,
          "INSERT INTO jobs (id, name, description, user, team, priority, learners, resources, "
          "restarts_most, state, idempotency_key, request_digest, submitted, queued, changed, "
          "longest) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?13, ?9, ?10, ?11, ?12, ?12, ?12, ?14)");
      insert.bind(1, job.id);
      insert.bind(2, job.name);
      insert.bind(3, job.description);
      insert.bind(4, job.user);
      insert.bind(5, job.team);
      insert.bind(6, job.priority);
      insert.bind(7, job.learners);
      insert.bind(8, resources_text(job.each));
      insert.bind(9, std::string(name_of(JobState::kQueued)));
      if (!job.idempotency_key.empty()) {
        insert.bind(10, job.idempotency_key);
      }
      insert.bind(11, job.request_digest);
      insert.bind(12, job.time);
      insert.bind(13, job.restarts_most);
      insert.bind(14, job.longest);
      insert.exec();
      StateChange change;
      change.time = job.time;
      add_history(database, job.id, change);
      put_guardian_token(database, guardian_token, job.id, job.time);
      TESSER_ASSIGN_OR_RETURN(made.job, read_job(database, job.id));
      return {};
    };
    TESSER_RETURN_IF_ERROR(database_->add(act, [&] {
      if (made.is_new) {
        tell({made.job.id, made.job});
      }
    }));
    return made;
  }

  Result<JobRecord> job(const std::string& id) const override {
    JobRecord record;
    TESSER_RETURN_IF_ERROR(database_->read([&](SQLite::Database& database) -> Result<void> {
      TESSER_ASSIGN_OR_RETURN(record, read_job(database, id));
      return {};
    }));
    return record;
  }

  Result<std::optional<JobRecord>> submitted_with(const std::string& user, const std::string& key,
                                                  const std::string& request_digest) const override {
    std::optional<JobRecord> record;
    TESSER_RETURN_IF_ERROR(database_->read([&](SQLite::Database& database) -> Result<void> {
      TESSER_ASSIGN_OR_RETURN(record, find_submitted(database, user, key, request_digest));
      return {};
    }));
    return record;
  }

  Result<std::vector<JobRecord>> jobs(const JobFilter& filter) const override {
    std::string where;
    const auto add = [&](const std::string& condition) { where += (where.empty() ? " WHERE " : " AND ") + condition; };
    if (!filter.states.empty()) {
      std::string states;  // names of ours, so there is nothing to quote
      for (const JobState state : filter.states) {
        states += fmt::format("{}'{}'", states.empty() ? "" : ", ", name_of(state));
      }
      add(fmt::format("state IN ({})", states));
    }
    if (!filter.text.empty()) {
      add("instr(lower(id || '\n' || description || '\n' || user), lower(:text)) > 0");
    }
    if (!filter.team.empty()) {
      add("team = :team");
    }
    if (filter.teams) {
      add("team IN (SELECT value FROM json_each(:teams))");
    }
    if (filter.before > 0) {
      add("number < :before");
    }
    return select(fmt::format("SELECT {} FROM jobs{} ORDER BY number DESC LIMIT :limit", kJobColumns, where),
                  [&](SQLite::Statement& query) {
                    if (!filter.text.empty()) {
                      query.bind(":text", filter.text);
                    }
                    if (!filter.team.empty()) {
                      query.bind(":team", filter.team);
                    }
                    if (filter.teams) {
                      query.bind(":teams", json_list(*filter.teams));
                    }
                    if (filter.before > 0) {
                      query.bind(":before", filter.before);
                    }
                    query.bind(":limit", static_cast<std::int64_t>(filter.limit));
                  });
  }

  Result<std::vector<JobRecord>> live_jobs() const override {
    return select(fmt::format("SELECT {} FROM jobs WHERE state IN ('QUEUED', 'RESUMED', 'PENDING', 'DEPLOYING', "
                              "'DOWNLOADING', 'PROCESSING', 'STORING') OR wanted = 'delete' ORDER BY number",
                              kJobColumns),
                  [](SQLite::Statement&) {});
  }

  Result<std::vector<JobRecord>> placed_jobs() const override {
    return select(fmt::format("SELECT {} FROM jobs WHERE state IN ('PENDING', 'DEPLOYING', 'DOWNLOADING', "
                              "'PROCESSING', 'STORING') ORDER BY number",
                              kJobColumns),
                  [](SQLite::Statement&) {});
  }

  Result<std::map<std::string, std::int64_t>> count_waiting_by_team() const override {
    std::map<std::string, std::int64_t> counts;
    TESSER_RETURN_IF_ERROR(database_->read([&](SQLite::Database& database) -> Result<void> {
      SQLite::Statement query(database,
                              "SELECT team, count(*) FROM jobs WHERE state IN ('QUEUED', 'RESUMED') GROUP BY team");
      while (query.executeStep()) {
        counts.emplace(query.getColumn(0).getString(), query.getColumn(1).getInt64());
      }
      return {};
    }));
    return counts;
  }

  void watch(std::function<void(const JobChange&)> hear) override {
    const std::lock_guard lock(hearing_);
    hear_ = std::move(hear);
  }

  Result<std::vector<StateChange>> history(const std::string& id) const override {
    std::vector<StateChange> changes;
    TESSER_RETURN_IF_ERROR(database_->read([&](SQLite::Database& database) -> Result<void> {
      TESSER_ASSIGN_OR_RETURN(const JobRecord record, read_job(database, id));
      SQLite::Statement query(database,
                              "SELECT state, code, reason, attempt, epoch, time FROM history WHERE job = ? "
                              "ORDER BY number");
      query.bind(1, record.id);
      while (query.executeStep()) {
        changes.push_back({job_state_named(query.getColumn(0).getString()).value_or(JobState::kFailed),
                           query.getColumn(1).getString(), query.getColumn(2).getString(), query.getColumn(3).getInt(),
                           query.getColumn(4).getInt64(), query.getColumn(5).getInt64()});
      }
      return {};
    }));
    return changes;
  }

  Result<std::vector<std::pair<JobState, std::int64_t>>> count_by_state(
      const std::optional<std::vector<std::string>>& teams) const override {
    std::vector<std::pair<JobState, std::int64_t>> counts;
    TESSER_RETURN_IF_ERROR(database_->read([&](SQLite::Database& database) -> Result<void> {
      SQLite::Statement query(database,
                              fmt::format("SELECT state, count(*) FROM jobs{} GROUP BY state",
                                          teams ? " WHERE team IN (SELECT value FROM json_each(:teams))" : ""));
      if (teams) {
        query.bind(":teams", json_list(*teams));
      }
      while (query.executeStep()) {
        counts.emplace_back(job_state_named(query.getColumn(0).getString()).value_or(JobState::kFailed),
                            query.getColumn(1).getInt64());
      }
      return {};
    }));
    return counts;
  }

  Result<JobRecord> change(const std::string& id, const StateChange& change) override {
    return update(id, [&](SQLite::Database& database, const JobRecord& job) -> Result<void> {
      TESSER_RETURN_IF_ERROR(check_change(job, change.state));
      StateChange made = change;
      made.attempt = job.attempt;
      made.epoch = job.epoch;
      apply_change(database, job, made);
      return {};
    });
  }

  Result<std::vector<std::string>> carry_out(const std::vector<SchedulingStep>& steps, std::int64_t time) override {
    std::vector<std::string> left;
    std::vector<JobRecord> changed;
    const auto act = [&](SQLite::Database& database) -> Result<void> {
      left.clear();
      changed.clear();
      for (const SchedulingStep& step : steps) {
        if (const auto done = carry_out_step(database, step, time)) {
          TESSER_ASSIGN_OR_RETURN(JobRecord record, read_job(database, step.job));
          changed.push_back(std::move(record));
        } else {
          left.push_back(done.error().message);
        }
      }
      return {};
    };
    TESSER_RETURN_IF_ERROR(database_->write(act, [&] {
      for (const JobRecord& job : changed) {
        tell({job.id, job});
      }
    }));
    return left;
  }

  Result<void> set_quota(const std::string& team, const std::optional<Resources>& quota) override {
    return database_->write(
        [&](SQLite::Database& database) -> Result<void> { return write_quota(database, team, quota); });
  }

  Result<std::map<std::string, Resources>> quotas() const override {
    std::map<std::string, Resources> quotas;
    TESSER_RETURN_IF_ERROR(database_->read([&](SQLite::Database& database) -> Result<void> {
      quotas = read_quotas(database);
      return {};
    }));
    return quotas;
  }

  Result<void> set_draining(const std::string& node, bool drains) override {
    return database_->write([&](SQLite::Database& database) -> Result<void> {
      write_draining(database, node, drains);
      return {};
    });
  }

  Result<std::set<std::string>> draining_nodes() const override {
    std::set<std::string> nodes;
    TESSER_RETURN_IF_ERROR(database_->read([&](SQLite::Database& database) -> Result<void> {
      nodes = read_draining(database);
      return {};
    }));
    return nodes;
  }

  Result<JobRecord> want(const std::string& id, Wanted wanted) override {
    return update(id, [&](SQLite::Database& database, const JobRecord& job) -> Result<void> {
      if (job.wanted == wanted) {
        return {};
      }
      if (job.wanted == Wanted::kDelete) {
        return invalid_input(fmt::format("job {} is being deleted", id));
      }
      if (wanted == Wanted::kHalt && is_final(job.state)) {
        return invalid_input(fmt::format("job {} is {}, which is final", id, name_of(job.state)));
      }
      if (wanted == Wanted::kRun && job.state == JobState::kHalted) {
        return invalid_input(fmt::format("job {} is HALTED and has to be resumed", id));
      }
      set_wanted(database, id, wanted);
      return {};
    });
  }

  Result<JobRecord> resume(const std::string& id, int learners, std::int64_t time) override {
    return update(id, [&](SQLite::Database& database, const JobRecord& job) -> Result<void> {
      if (job.wanted == Wanted::kDelete) {
        return invalid_input(fmt::format("job {} is being deleted", id));
      }
      TESSER_RETURN_IF_ERROR(check_change(job, JobState::kResumed));
      apply_change(database, job, {JobState::kResumed, "", "", job.attempt, job.epoch, time});
      set_wanted(database, id, Wanted::kRun);
      // Its guardian begins to count restarts anew, too.
      SQLite::Statement set(database, "UPDATE jobs SET learners = ?, restarts = 0 WHERE id = ?");
      set.bind(1, learners);
      set.bind(2, id);
      set.exec();
      return {};
    });
  }

  Result<void> remove(const std::string& id) override {
    const auto act = [&](SQLite::Database& database) -> Result<void> {
      SQLite::Statement remove(database, "DELETE FROM jobs WHERE id = ?");
      remove.bind(1, id);
      remove.exec();
      return {};
    };
    return database_->write(act, [&] { tell({id, std::nullopt}); });
  }

  Result<JobRecord> take_lease(const std::string& id, const std::string& holder) override {
    return update(id, [&](SQLite::Database& database, const JobRecord& job) -> Result<void> {
      if (!holds_places(job.state)) {
        return invalid_input(fmt::format("job {} is {} and needs no guardian", id, name_of(job.state)));
      }
      SQLite::Statement set(database, "UPDATE jobs SET epoch = epoch + 1, holder = ? WHERE id = ?");
      set.bind(1, holder.empty() ? "guardian" : holder);
      set.bind(2, id);
      set.exec();
      return {};
    });
  }

  Result<JobRecord> report(const std::string& id, const GuardianReport& report) override {
    return update(id, [&](SQLite::Database& database, const JobRecord& job) -> Result<void> {
      SQLite::Statement last(database, "SELECT sequence FROM jobs WHERE id = ?");
      last.bind(1, id);
      last.executeStep();
      if (report.sequence <= last.getColumn(0).getInt64()) {
        return {};  // said before: its answer was lost
      }
      if (report.change.epoch != job.epoch || job.holder.empty()) {
        return invalid_input(
            fmt::format("job {} has another guardian: epoch {} is over, {} holds", id, report.change.epoch, job.epoch));
      }
      TESSER_RETURN_IF_ERROR(check_change(job, report.change.state));
      StateChange change = report.change;
      if (change.code == kPreempted && !job.preempted.empty()) {  // the guardian does not know for whom
        change.reason = job.preempted;
      }
      apply_change(database, job, change);
      SQLite::Statement set(database, "UPDATE jobs SET sequence = ? WHERE id = ?");
      set.bind(1, report.sequence);
      set.bind(2, id);
      set.exec();
      return {};
    });
  }

 private:
  // One transaction that reads a job, acts, and gives the job as it is then.
  template <typename Act>
  Result<JobRecord> update(const std::string& id, const Act& act) {
    JobRecord record;
    const auto change = [&](SQLite::Database& database) -> Result<void> {
      TESSER_ASSIGN_OR_RETURN(const JobRecord job, read_job(database, id));
      TESSER_RETURN_IF_ERROR(act(database, job));
      TESSER_ASSIGN_OR_RETURN(record, read_job(database, id));
      return {};
    };
    TESSER_RETURN_IF_ERROR(database_->write(change, [&] { tell({record.id, record}); }));
    return record;
  }

  void tell(const JobChange& change) {
    const std::lock_guard lock(hearing_);
    if (hear_) {
      hear_(change);
    }
  }

  template <typename Bind>
  Result<std::vector<JobRecord>> select(const std::string& text, const Bind& bind) const {
    std::vector<JobRecord> records;
    TESSER_RETURN_IF_ERROR(database_->read([&](SQLite::Database& database) -> Result<void> {
      SQLite::Statement query(database, text);
      bind(query);
      while (query.executeStep()) {
        records.push_back(record_of(query));
      }
      return {};
    }));
    return records;
  }

  static Result<std::optional<JobRecord>> find_submitted(SQLite::Database& database, const std::string& user,
                                                         const std::string& key, const std::string& digest) {
    SQLite::Statement query(database, "SELECT id, request_digest FROM jobs WHERE user = ? AND idempotency_key = ?");
    query.bind(1, user);
    query.bind(2, key);
    if (!query.executeStep()) {
      return std::optional<JobRecord>();
    }
    const std::string id = query.getColumn(0).getString();
    if (query.getColumn(1).getString() != digest) {
      return invalid_input(fmt::format("this Idempotency-Key was used for another submission, job {}", id));
    }
    TESSER_ASSIGN_OR_RETURN(JobRecord record, read_job(database, id));
    return std::optional(std::move(record));
  }

  static std::string one_too_many(SQLite::Database& database, const NewJob& job) {
    const auto waiting = [&](const char* column, const std::string& value) {
      SQLite::Statement query(
          database, fmt::format("SELECT count(*) FROM jobs WHERE state IN ('QUEUED', 'RESUMED') AND {} = ?", column));
      query.bind(1, value);
      query.executeStep();
      return query.getColumn(0).getInt64();
    };
    if (job.most_waiting_of_user > 0 && waiting("user", job.user) >= job.most_waiting_of_user) {
      return fmt::format("{} of your jobs wait, and more may not", job.most_waiting_of_user);
    }
    if (job.most_waiting_of_team > 0 && waiting("team", job.team) >= job.most_waiting_of_team) {
      return fmt::format("{} jobs of team '{}' wait, and more may not", job.most_waiting_of_team, job.team);
    }
    return "";
  }

  static void set_wanted(SQLite::Database& database, const std::string& id, Wanted wanted) {
    SQLite::Statement set(database, "UPDATE jobs SET wanted = ? WHERE id = ?");
    set.bind(1, std::string(name_of(wanted)));
    set.bind(2, id);
    set.exec();
  }

  const std::unique_ptr<Database> database_;
  const std::unique_ptr<Tenants> tenants_;
  std::mutex hearing_;
  std::function<void(const JobChange&)> hear_;
};

}  // namespace

Wanted wanted_of_guardian(const JobRecord& job) {
  return job.wanted == Wanted::kRun && !job.preempted.empty() ? Wanted::kYield : job.wanted;
}

Result<std::unique_ptr<Store>> Store::open(const std::filesystem::path& file) {
  TESSER_ASSIGN_OR_RETURN(auto database, Database::open(file));
  return std::make_unique<SqliteStore>(std::move(database));
}

}  // namespace tesser::platform
