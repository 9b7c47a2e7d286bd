// Users, teams and tokens (docs/platform.md, Tenants).
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "platform/job/times.h"
#include "platform/server/api.h"
#include "platform/server/submission.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kMostDescriptionBytes = 200;
constexpr std::int64_t kMostLifeSeconds = std::int64_t{10} * 365 * 24 * 3600;

control::HttpResponse json_response(std::string body, int status = 200) {
  control::HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

control::HttpResponse no_administrator() {
  return Api::error(403, "U_ROLE", "only administrators of the platform may do this");
}
control::HttpResponse no_administrator_of(const std::string& team) {
  return Api::error(403, "U_ROLE", fmt::format("only administrators of team '{}' may do this", team));
}
// Also of a team that is there and not the caller's.
control::HttpResponse no_such_team(const std::string& team) {
  return Api::error(404, "U_NOT_FOUND", fmt::format("there is no team '{}'; `tesser team list` shows yours", team));
}
control::HttpResponse no_such_token(const std::string& id) {
  return Api::error(404, "U_NOT_FOUND",
                    fmt::format("there is no token '{}'; `tesser token list` shows those there are", id));
}

std::string time_or_null(std::int64_t time) { return time == 0 ? "null" : json_string(time_text(time)); }

std::string roles_json(const std::map<std::string, TeamRole>& roles, const char* what) {
  std::vector<std::pair<std::string, TeamRole>> list(roles.begin(), roles.end());
  return json_list(list, [&](const auto& entry) {
    return JsonMembers().add(what, entry.first).add("role", std::string(name_of(entry.second))).object();
  });
}

std::string user_json(const User& user) {
  return JsonMembers()
      .add("name", user.name)
      .add("is_administrator", user.is_administrator)
      .add_text("created", time_or_null(user.created))
      .add_text("teams", roles_json(user.teams, "team"))
      .object();
}

std::string team_json(const Team& team) {
  return JsonMembers()
      .add("name", team.name)
      .add_text("created", time_or_null(team.created))
      .add_text("learner_user", team.learner_user ? std::to_string(*team.learner_user) : "null")
      .add_text("members", roles_json(team.members, "user"))
      .object();
}

JsonMembers token_members(const TokenRecord& token) {
  JsonMembers members;
  members.add("id", token.id)
      .add("user", token.user)
      .add_text("team", token.only_in ? json_string(*token.only_in) : "null")
      .add("description", token.description)
      .add("made_by", token.made_by)
      .add_text("created", time_or_null(token.created))
      .add_text("expires", time_or_null(token.expires));
  return members;
}

// Whether the caller may see, and revoke, the token: it is the caller's, or for a team the caller administers.
bool may_revoke(const Caller& caller, const TokenRecord& token) {
  if (caller.is_administrator || (token.only_in && caller.may_administer(*token.only_in))) {
    return true;
  }
  return token.user == caller.user && (!caller.only_in || caller.only_in == token.only_in);
}

}  // namespace

control::HttpResponse Api::me(const Call& call) {
  return json_response(
      JsonMembers()
          .add("user", call.caller.user)
          .add("is_administrator", call.caller.is_administrator)
          .add_text("teams", roles_json(call.caller.teams, "team"))
          .add_text("token", JsonMembers()
                                 .add("id", call.caller.token)
                                 .add_text("team", call.caller.only_in ? json_string(*call.caller.only_in) : "null")
                                 .add_text("expires", time_or_null(call.caller.expires))
                                 .object())
          .object());
}

control::HttpResponse Api::users(const Call& call) {
  auto users = store_.tenants().users();
  if (!users) {
    return error(users.error());
  }
  std::vector<User> shown;
  for (User& user : *users) {
    // Of others only what they are in teams of the caller.
    if (!call.caller.is_administrator) {
      std::erase_if(user.teams, [&](const auto& entry) { return !call.caller.sees(entry.first); });
    }
    if (call.caller.is_administrator || user.name == call.caller.user || !user.teams.empty()) {
      shown.push_back(std::move(user));
    }
  }
  return json_response(JsonMembers().add_text("users", json_list(shown, user_json)).object());
}

control::HttpResponse Api::add_user(const Call& call) {
  if (!call.caller.is_administrator) {
    return no_administrator();
  }
  const auto body = body_of(call, {"name", "is_administrator"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  const std::string name = reader.string("name");
  const bool is_administrator = reader.has("is_administrator") && reader.boolean("is_administrator");
  if (!is_user_name(name)) {
    reader.fail("'name' has letters, digits, and '.', '_', '@' or '-' between them, 63 at most");
  }
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  const auto user = store_.tenants().add_user(name, is_administrator, now_microseconds());
  return user ? json_response(user_json(*user), 201) : error(user.error());
}

control::HttpResponse Api::remove_user(const Call& call) {
  if (!call.caller.is_administrator) {
    return no_administrator();
  }
  const auto removed = store_.tenants().remove_user(call.id());
  return removed ? json_response("{}") : error(removed.error());
}

control::HttpResponse Api::teams(const Call& call) {
  auto teams = store_.tenants().teams();
  if (!teams) {
    return error(teams.error());
  }
  std::erase_if(*teams, [&](const Team& team) { return !call.caller.sees(team.name); });
  return json_response(JsonMembers().add_text("teams", json_list(*teams, team_json)).object());
}

control::HttpResponse Api::add_team(const Call& call) {
  if (!call.caller.is_administrator) {
    return no_administrator();
  }
  const auto body = body_of(call, {"name"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  Team team;
  team.name = reader.string("name");
  team.created = now_microseconds();
  if (!is_team_name(team.name)) {
    reader.fail("'name' has small letters, digits, and '-' between them, 40 at most");
  }
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  const auto added = store_.tenants().add_team(team.name, team.created, false);
  return added ? json_response(team_json(team), 201) : error(added.error());
}

control::HttpResponse Api::remove_team(const Call& call) {
  if (!call.caller.is_administrator) {
    return no_administrator();
  }
  const auto removed = store_.tenants().remove_team(call.id());
  dispatcher_.cluster_has_changed();  // its quota is gone, too
  return removed ? json_response("{}") : error(removed.error());
}

control::HttpResponse Api::set_member(const Call& call) {
  const std::string& team = call.id();
  if (!call.caller.sees(team)) {
    return no_such_team(team);
  }
  if (!call.caller.may_administer(team)) {
    return no_administrator_of(team);
  }
  const auto body = body_of(call, {"role"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  const auto role = team_role_named(reader.string("role"));
  if (!role) {
    reader.fail("'role' is viewer, member or administrator");
  }
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  const auto set = store_.tenants().set_member(team, call.values.at(1), *role);
  return set ? json_response(JsonMembers()
                                 .add("team", team)
                                 .add("user", call.values.at(1))
                                 .add("role", std::string(name_of(*role)))
                                 .object())
             : error(set.error());
}

control::HttpResponse Api::remove_member(const Call& call) {
  const std::string& team = call.id();
  const std::string& user = call.values.at(1);
  if (!call.caller.sees(team)) {
    return no_such_team(team);
  }
  if (!call.caller.may_administer(team) && user != call.caller.user) {  // whoever wants to may leave
    return no_administrator_of(team);
  }
  const auto removed = store_.tenants().remove_member(team, user);
  return removed ? json_response("{}") : error(removed.error());
}

control::HttpResponse Api::tokens(const Call& call) {
  auto tokens = store_.tenants().tokens(now_microseconds());
  if (!tokens) {
    return error(tokens.error());
  }
  std::erase_if(*tokens, [&](const TokenRecord& token) { return !may_revoke(call.caller, token); });
  return json_response(
      JsonMembers()
          .add_text("tokens",
                    json_list(*tokens, [](const TokenRecord& token) { return token_members(token).object(); }))
          .object());
}

control::HttpResponse Api::add_token(const Call& call) {
  const auto body = body_of(call, {"user", "team", "description", "expires_in"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  TokenRecord record;
  record.user = reader.has("user") ? reader.string("user") : call.caller.user;
  if (reader.has("team")) {
    record.only_in = reader.string("team");
  }
  record.description = reader.has("description") ? reader.string("description") : "";
  const std::int64_t life = reader.has("expires_in") ? reader.integer("expires_in", 1) : 0;
  if (record.description.size() > kMostDescriptionBytes) {
    reader.fail(fmt::format("'description' has {} bytes at most", kMostDescriptionBytes));
  } else if (life > kMostLifeSeconds) {
    reader.fail(fmt::format("'expires_in' is {} seconds at most", kMostLifeSeconds));
  }
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  // A token gives nobody more than its maker has: for others only administrators make some, for a team its own.
  if (call.caller.only_in && record.only_in != call.caller.only_in) {
    return error(403, "U_ROLE",
                 fmt::format("your token is for team '{}' alone, and can make only such", *call.caller.only_in));
  }
  if (record.only_in && !call.caller.sees(*record.only_in)) {
    return no_such_team(*record.only_in);
  }
  if (record.user != call.caller.user && !call.caller.is_administrator &&
      !(record.only_in && call.caller.may_administer(*record.only_in))) {
    return error(403, "U_ROLE",
                 "tokens of others are made by administrators; those of a team make some that are for the team alone");
  }
  if (record.user != call.caller.user && !call.caller.is_administrator) {
    const auto users = store_.tenants().users();
    if (!users) {
      return error(users.error());
    }
    if (std::any_of(users->begin(), users->end(),
                    [&](const User& user) { return user.name == record.user && user.is_administrator; })) {
      return error(403, "U_ROLE", "tokens of administrators of the platform are made by such");
    }
  }
  record.made_by = call.caller.user;
  record.created = now_microseconds();
  record.expires = life == 0 ? 0 : record.created + life * 1'000'000;
  if (call.caller.expires != 0 && record.user == call.caller.user &&
      (record.expires == 0 || record.expires > call.caller.expires)) {
    return error(403, "U_ROLE", "your token expires, and makes none for you that lives longer");
  }
  const auto text = new_token();
  if (!text) {
    return error(text.error());
  }
  const auto made = store_.tenants().add_token(*text, std::move(record));
  if (!made) {
    return error(made.error());
  }
  Response response = json_response(token_members(*made).add("token", *text).object(), 201);
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

control::HttpResponse Api::revoke_token(const Call& call) {
  const auto tokens = store_.tenants().tokens(now_microseconds());
  if (!tokens) {
    return error(tokens.error());
  }
  const auto found =
      std::find_if(tokens->begin(), tokens->end(), [&](const TokenRecord& token) { return token.id == call.id(); });
  if (found == tokens->end() || !may_revoke(call.caller, *found)) {
    return no_such_token(call.id());
  }
  const auto revoked = store_.tenants().revoke_token(found->id, now_microseconds());
  return revoked ? json_response("{}") : error(revoked.error());
}

}  // namespace tesser::platform
