#include "platform/store/tenants_store.h"

#include <sys/random.h>

#include <functional>
#include <utility>

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include "platform/web/sha256.h"

namespace tesser::platform {
namespace {

constexpr int kHashBegin = 8;  // bytes that the index has
constexpr std::size_t kIdBytes = 6;

// Whether there is a row; the text has one "?" for each value.
template <typename... Values>
bool has_row(SQLite::Database& database, const char* text, const Values&... values) {
  SQLite::Statement query(database, text);
  int index = 0;
  (query.bind(++index, values), ...);
  return query.executeStep();
}

// How many rows were changed.
template <typename... Values>
int run(SQLite::Database& database, const char* text, const Values&... values) {
  SQLite::Statement statement(database, text);
  int index = 0;
  (statement.bind(++index, values), ...);
  return statement.exec();
}

tl::unexpected<Error> no_user(const std::string& name) {
  return not_found(fmt::format("there is no user '{}'; `tesser user list` shows those there are", name));
}
tl::unexpected<Error> no_team(const std::string& name) {
  return not_found(fmt::format("there is no team '{}'; `tesser team list` shows those there are", name));
}

bool has_user(SQLite::Database& database, const std::string& name) {
  return has_row(database, "SELECT 1 FROM users WHERE name = ?", name);
}
bool has_team(SQLite::Database& database, const std::string& name) {
  return has_row(database, "SELECT 1 FROM teams WHERE name = ?", name);
}

// So that at least one can still let others in.
bool is_last_administrator(SQLite::Database& database, const std::string& name) {
  return has_row(database, "SELECT 1 FROM users WHERE name = ? AND is_administrator", name) &&
         !has_row(database, "SELECT 1 FROM users WHERE name <> ? AND is_administrator", name);
}

std::string new_id() {
  unsigned char bytes[kIdBytes] = {};
  return ::getrandom(bytes, sizeof(bytes), 0) == static_cast<ssize_t>(sizeof(bytes))
             ? hexadecimal({reinterpret_cast<const char*>(bytes), sizeof(bytes)})
             : "";
}

// Binds a hash, which is no text.
void bind_bytes(SQLite::Statement& statement, int index, std::string_view bytes) {
  statement.bind(index, bytes.data(), static_cast<int>(bytes.size()));
}

// Gives `take` the row of the token, if there is one. How long it takes says nothing about tokens but the first bytes
// of their hashes, from which none can be made.
void find_token(SQLite::Database& database, std::string_view text, const char* columns,
                const std::function<void(SQLite::Statement&)>& take) {
  const std::string hash = sha256(text);
  SQLite::Statement query(database, fmt::format("SELECT hash, {} FROM tokens WHERE substr(hash, 1, 8) = ?", columns));
  bind_bytes(query, 1, std::string_view(hash).substr(0, kHashBegin));
  while (query.executeStep()) {
    const SQLite::Column found = query.getColumn(0);
    if (is_same_hash(hash, {static_cast<const char*>(found.getBlob()), static_cast<std::size_t>(found.getBytes())})) {
      take(query);
      return;
    }
  }
}

std::optional<std::string> text_or_nothing(const SQLite::Column& column) {
  return column.isNull() ? std::nullopt : std::optional(column.getString());
}

class SqliteTenants final : public Tenants {
 public:
  explicit SqliteTenants(Database& database) : database_(database) {}

  Result<User> add_user(const std::string& name, bool is_administrator, std::int64_t time) override {
    TESSER_RETURN_IF_ERROR(database_.write([&](SQLite::Database& database) -> Result<void> {
      if (has_user(database, name)) {
        return invalid_input(fmt::format("there is a user '{}' already", name));
      }
      run(database, "INSERT INTO users (name, is_administrator, created) VALUES (?, ?, ?)", name,
          is_administrator ? 1 : 0, time);
      return {};
    }));
    return User{name, is_administrator, time, {}};
  }

  Result<void> remove_user(const std::string& name) override {
    return database_.write([&](SQLite::Database& database) -> Result<void> {
      if (is_last_administrator(database, name)) {
        return invalid_input(fmt::format("'{}' is the last administrator; make another first", name));
      }
      return run(database, "DELETE FROM users WHERE name = ?", name) == 0 ? Result<void>(no_user(name))
                                                                          : Result<void>();
    });
  }

  Result<std::vector<User>> users() const override {
    std::map<std::string, User> found;
    TESSER_RETURN_IF_ERROR(database_.read([&](SQLite::Database& database) -> Result<void> {
      const SQLite::Transaction whole(database);  // both queries see the same
      SQLite::Statement query(database, "SELECT name, is_administrator, created FROM users");
      while (query.executeStep()) {
        const std::string name = query.getColumn(0).getString();
        found[name] = {name, query.getColumn(1).getInt() != 0, query.getColumn(2).getInt64(), {}};
      }
      SQLite::Statement members(database, "SELECT user, team, role FROM members");
      while (members.executeStep()) {
        found[members.getColumn(0).getString()].teams[members.getColumn(1).getString()] = role_of(members, 2);
      }
      return {};
    }));
    return values_of(std::move(found));
  }

  Result<void> add_team(const std::string& name, std::int64_t time, bool may_exist) override {
    return database_.write([&](SQLite::Database& database) -> Result<void> {
      if (!has_team(database, name)) {
        run(database, "INSERT INTO teams (name, created) VALUES (?, ?)", name, time);
      } else if (!may_exist) {
        return invalid_input(fmt::format("there is a team '{}' already", name));
      }
      return {};
    });
  }

  Result<void> remove_team(const std::string& name) override {
    return database_.write([&](SQLite::Database& database) -> Result<void> {
      if (has_row(database, "SELECT 1 FROM jobs WHERE team = ? LIMIT 1", name)) {
        return invalid_input(fmt::format("team '{}' has jobs; `tesser delete` them first", name));
      }
      return run(database, "DELETE FROM teams WHERE name = ?", name) == 0 ? Result<void>(no_team(name))
                                                                          : Result<void>();
    });
  }

  Result<std::vector<Team>> teams() const override {
    std::map<std::string, Team> found;
    TESSER_RETURN_IF_ERROR(database_.read([&](SQLite::Database& database) -> Result<void> {
      const SQLite::Transaction whole(database);
      SQLite::Statement query(database,
                              "SELECT name, created, number FROM teams LEFT JOIN learner_users ON team = name");
      while (query.executeStep()) {
        Team& team = found[query.getColumn(0).getString()];
        team.name = query.getColumn(0).getString();
        team.created = query.getColumn(1).getInt64();
        team.learner_user = query.getColumn(2).isNull() ? std::nullopt : std::optional(query.getColumn(2).getInt());
      }
      SQLite::Statement members(database, "SELECT team, user, role FROM members");
      while (members.executeStep()) {
        found[members.getColumn(0).getString()].members[members.getColumn(1).getString()] = role_of(members, 2);
      }
      return {};
    }));
    return values_of(std::move(found));
  }

  Result<void> set_member(const std::string& team, const std::string& user, TeamRole role) override {
    return database_.write([&](SQLite::Database& database) -> Result<void> {
      if (!has_team(database, team)) {
        return no_team(team);
      }
      if (!has_user(database, user)) {
        return no_user(user);
      }
      run(database, "INSERT OR REPLACE INTO members (team, user, role) VALUES (?, ?, ?)", team, user,
          std::string(name_of(role)));
      return {};
    });
  }

  Result<void> remove_member(const std::string& team, const std::string& user) override {
    return database_.write([&](SQLite::Database& database) -> Result<void> {
      if (run(database, "DELETE FROM members WHERE team = ? AND user = ?", team, user) == 0) {
        return not_found(fmt::format("'{}' is no member of team '{}'", user, team));
      }
      return {};
    });
  }

  Result<TokenRecord> add_token(const std::string& text, TokenRecord record) override {
    record.id = new_id();
    if (record.id.empty()) {
      return failed("the system gives no random numbers");
    }
    TESSER_RETURN_IF_ERROR(database_.write([&](SQLite::Database& database) -> Result<void> {
      if (!has_user(database, record.user)) {
        return no_user(record.user);
      }
      if (record.only_in && !has_row(database,
                                     "SELECT 1 FROM members WHERE team = ?1 AND user = ?2 UNION "
                                     "SELECT 1 FROM users, teams WHERE users.name = ?2 AND is_administrator AND "
                                     "teams.name = ?1",
                                     *record.only_in, record.user)) {
        return invalid_input(fmt::format("'{}' is no member of team '{}'", record.user, *record.only_in));
      }
      SQLite::Statement insert(database,
                               "INSERT INTO tokens (hash, id, user, team, description, made_by, created, expires) "
                               "VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
      bind_bytes(insert, 1, sha256(text));
      insert.bind(2, record.id);
      insert.bind(3, record.user);
      if (record.only_in) {
        insert.bind(4, *record.only_in);
      }
      insert.bind(5, record.description);
      insert.bind(6, record.made_by);
      insert.bind(7, record.created);
      insert.bind(8, record.expires);
      insert.exec();
      return {};
    }));
    return record;
  }

  Result<std::vector<TokenRecord>> tokens(std::int64_t now) const override {
    std::vector<TokenRecord> found;
    TESSER_RETURN_IF_ERROR(database_.read([&](SQLite::Database& database) -> Result<void> {
      SQLite::Statement query(database,
                              "SELECT id, user, team, description, made_by, created, expires FROM tokens WHERE "
                              "user IS NOT NULL AND revoked = 0 AND (expires = 0 OR expires > ?) ORDER BY created, id");
      query.bind(1, now);
      while (query.executeStep()) {
        found.push_back({query.getColumn(0).getString(), query.getColumn(1).getString(),
                         text_or_nothing(query.getColumn(2)), query.getColumn(3).getString(),
                         query.getColumn(4).getString(), query.getColumn(5).getInt64(), query.getColumn(6).getInt64()});
      }
      return {};
    }));
    return found;
  }

  Result<void> revoke_token(const std::string& id, std::int64_t time) override {
    return database_.write([&](SQLite::Database& database) -> Result<void> {
      if (run(database, "UPDATE tokens SET revoked = ? WHERE id = ? AND user IS NOT NULL AND revoked = 0", time, id) ==
          0) {
        return not_found(fmt::format("there is no token '{}'; `tesser token list` shows those there are", id));
      }
      return {};
    });
  }

  Result<bool> knows_token(std::string_view text) const override {
    bool is_known = false;
    TESSER_RETURN_IF_ERROR(database_.read([&](SQLite::Database& database) -> Result<void> {
      find_token(database, text, "id", [&](SQLite::Statement&) { is_known = true; });
      return {};
    }));
    return is_known;
  }

  Result<std::optional<Caller>> caller(std::string_view token, std::int64_t now) const override {
    std::optional<Caller> caller;
    TESSER_RETURN_IF_ERROR(database_.read([&](SQLite::Database& database) -> Result<void> {
      const SQLite::Transaction whole(database);
      find_token(database, token, "id, user, team, job, expires, revoked", [&](SQLite::Statement& row) {
        const std::int64_t expires = row.getColumn(5).getInt64();
        if (row.getColumn(6).getInt64() != 0 || (expires != 0 && expires <= now)) {
          return;
        }
        caller.emplace();
        caller->token = row.getColumn(1).getString();
        caller->user = text_or_nothing(row.getColumn(2)).value_or("");
        caller->only_in = text_or_nothing(row.getColumn(3));
        caller->job = text_or_nothing(row.getColumn(4)).value_or("");
        caller->expires = expires;
      });
      if (caller && !caller->is_guardian()) {
        add_rights(database, *caller);
      }
      return {};
    }));
    return caller;
  }

  Result<int> learner_user(const std::string& team, int first, int last) override {
    int number = 0;
    TESSER_RETURN_IF_ERROR(database_.write([&](SQLite::Database& database) -> Result<void> {
      SQLite::Statement known(database, "SELECT number FROM learner_users WHERE team = ?");
      known.bind(1, team);
      if (known.executeStep()) {
        number = known.getColumn(0).getInt();
        if (number >= first && number <= last) {
          return {};
        }
        return invalid_input(
            fmt::format("learners of team '{}' run as user {}, which is not within {}-{}: its files are that user's. "
                        "Start the server with a range that holds all users it ever had",
                        team, number, first, last));
      }
      SQLite::Statement free(database,
                             "SELECT coalesce(max(number) + 1, ?1) FROM learner_users WHERE number BETWEEN ?1 AND ?2");
      free.bind(1, first);
      free.bind(2, last);
      free.executeStep();
      number = free.getColumn(0).getInt();
      if (number > last) {
        return invalid_input(
            fmt::format("all users of {}-{} are given to teams; start the server with a larger range", first, last));
      }
      run(database, "INSERT INTO learner_users (team, number) VALUES (?, ?)", team, number);
      return {};
    }));
    return number;
  }

 private:
  static TeamRole role_of(SQLite::Statement& row, int column) {
    return team_role_named(row.getColumn(column).getString()).value_or(TeamRole::kViewer);
  }

  template <typename T>
  static std::vector<T> values_of(std::map<std::string, T> map) {
    std::vector<T> values;
    for (auto& [name, value] : map) {
      values.push_back(std::move(value));
    }
    return values;
  }

  // Those of its user, as they are now, within what the token is limited to.
  static void add_rights(SQLite::Database& database, Caller& caller) {
    SQLite::Statement user(database, "SELECT is_administrator FROM users WHERE name = ?");
    user.bind(1, caller.user);
    const bool is_administrator = user.executeStep() && user.getColumn(0).getInt() != 0;
    caller.is_administrator = is_administrator && !caller.only_in;
    SQLite::Statement members(database, "SELECT team, role FROM members WHERE user = ?");
    members.bind(1, caller.user);
    while (members.executeStep()) {
      const std::string team = members.getColumn(0).getString();
      if (!caller.only_in || *caller.only_in == team) {
        caller.teams[team] = role_of(members, 1);
      }
    }
    if (is_administrator && caller.only_in) {
      caller.teams[*caller.only_in] = TeamRole::kAdministrator;
    }
  }

  Database& database_;
};

}  // namespace

std::unique_ptr<Tenants> make_tenants(Database& database) { return std::make_unique<SqliteTenants>(database); }

void put_guardian_token(SQLite::Database& database, const std::string& token, const std::string& job,
                        std::int64_t time) {
  SQLite::Statement insert(database, "INSERT INTO tokens (hash, id, job, created) VALUES (?, ?, ?, ?)");
  bind_bytes(insert, 1, sha256(token));
  insert.bind(2, new_id());
  insert.bind(3, job);
  insert.bind(4, time);
  insert.exec();
}

}  // namespace tesser::platform
