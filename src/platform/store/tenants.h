// Users, teams and tokens: who may do what (docs/platform.md, Tenants).
//
// Any thread; each change is one transaction that is on the disk when the call returns. Errors: kNotFound when there is
// no such user, team or token, kInvalidInput when the change is refused, kFailed as the store's. Times are microseconds
// since 1970.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

// In a team. Each may do what those before it may, too.
enum class TeamRole : std::uint8_t {
  kViewer,         // sees the team's jobs
  kMember,         // submits; changes own jobs
  kAdministrator,  // changes all jobs of the team, its members, and tokens for it
};
std::string_view name_of(TeamRole role);  // "viewer", "member", "administrator"
std::optional<TeamRole> team_role_named(std::string_view name);

// Letters, digits, and "._@-" between them; 63 at most. Teams' names are those that manifests may name.
inline constexpr const char* kDefaultTeam = "default";  // of who runs the server
bool is_user_name(std::string_view name);
bool is_team_name(std::string_view name);

// Who asks, as the token says.
struct Caller {
  std::string token;  // its id, which is no secret
  std::string user;   // empty: a guardian
  bool is_administrator = false;
  std::map<std::string, TeamRole> teams;
  std::string job;                     // the only one that a guardian's token is for
  std::optional<std::string> only_in;  // the team that the token is limited to
  std::int64_t expires = 0;            // 0: never

  bool is_guardian() const { return !job.empty(); }
  bool sees(const std::string& team) const { return is_administrator || teams.contains(team); }
  bool may_submit(const std::string& team) const { return has(team, TeamRole::kMember); }
  bool may_administer(const std::string& team) const { return has(team, TeamRole::kAdministrator); }
  // Halt, resume, delete a job of this user and team.
  bool may_change(const std::string& owner, const std::string& team) const {
    return may_administer(team) || (owner == user && may_submit(team));
  }
  // The teams whose jobs this one sees; nothing: all.
  std::optional<std::vector<std::string>> seen_teams() const;

 private:
  bool has(const std::string& team, TeamRole least) const {
    const auto found = teams.find(team);
    return is_administrator || (found != teams.end() && found->second >= least);
  }
};

struct User {
  std::string name;
  bool is_administrator = false;
  std::int64_t created = 0;
  std::map<std::string, TeamRole> teams;
};

struct Team {
  std::string name;
  std::int64_t created = 0;
  std::optional<int> learner_user;  // the system's number of the user as whom its learners run
  std::map<std::string, TeamRole> members;
};

// All of a token but its text, of which only a hash is kept.
struct TokenRecord {
  std::string id;
  std::string user;
  std::optional<std::string> only_in;  // one team
  std::string description;
  std::string made_by;
  std::int64_t created = 0;
  std::int64_t expires = 0;  // 0: never
};

class Tenants {
 public:
  virtual ~Tenants() = default;

  virtual Result<User> add_user(const std::string& name, bool is_administrator, std::int64_t time) = 0;
  // With all tokens and memberships; jobs stay with their teams. Refused for the last administrator.
  virtual Result<void> remove_user(const std::string& name) = 0;
  virtual Result<std::vector<User>> users() const = 0;

  // Changes nothing when it is there already and `may_exist`.
  virtual Result<void> add_team(const std::string& name, std::int64_t time, bool may_exist) = 0;
  // Refused while it has jobs.
  virtual Result<void> remove_team(const std::string& name) = 0;
  virtual Result<std::vector<Team>> teams() const = 0;
  // Also another role for one who is a member already.
  virtual Result<void> set_member(const std::string& team, const std::string& user, TeamRole role) = 0;
  virtual Result<void> remove_member(const std::string& team, const std::string& user) = 0;

  // `record.id` is made here. kInvalidInput when the user is no member of the team that the token is limited to.
  virtual Result<TokenRecord> add_token(const std::string& text, TokenRecord record) = 0;
  // Those of users that are neither revoked nor expired.
  virtual Result<std::vector<TokenRecord>> tokens(std::int64_t now) const = 0;
  // From then on nobody gets in with it.
  virtual Result<void> revoke_token(const std::string& id, std::int64_t time) = 0;
  // Whether the text was ever a token, also one that is revoked or expired.
  virtual Result<bool> knows_token(std::string_view text) const = 0;
  // Nothing when there is no such token, or not any more.
  virtual Result<std::optional<Caller>> caller(std::string_view token, std::int64_t now) const = 0;

  // The system's number of the user for the team's learners: the same as ever, or a free one of the range, which then
  // is never another team's, not even when this one is removed.
  virtual Result<int> learner_user(const std::string& team, int first, int last) = 0;
};

}  // namespace tesser::platform
