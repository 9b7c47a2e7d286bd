// `tesser user`, `tesser team` and `tesser token`: who may do what on the platform.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "cli/commands.h"
#include "cli/job_text.h"
#include "cli/output.h"
#include "cli/platform_login.h"
#include "platform/web/url.h"

namespace tesser::cli {
namespace {

constexpr const char* kUserExamples = R"(
Examples:
  tesser user add ann                        then `tesser team join vision ann` and `tesser token create --user ann`
  tesser user add bo --administrator         one who may do everything
  tesser user remove ann                     with all tokens; the jobs stay with their teams
  tesser user list --json)";

constexpr const char* kTeamExamples = R"(
Examples:
  tesser team add vision
  tesser team join vision ann                        as a member: submits, and changes own jobs
  tesser team join vision bo --role administrator    changes all jobs of the team, its members and its tokens
  tesser team join vision cleo --role viewer         sees jobs
  tesser team leave vision ann
  tesser team list)";

constexpr const char* kTokenExamples = R"(
Examples:
  tesser token create                                      another one for yourself
  tesser token create --user ann --days 90                 for ann, good for 90 days
  tesser token create --team vision --description nightly  good for one team alone
  tesser token list
  tesser token revoke 4be1c0ffee00

A token is shown once, and kept nowhere: give it to who is to have it, who runs `tesser login`.)";

using Members = JsonMembers;

// What the commands share: they ask for one thing, and show the answer or the JSON of it.
struct Request {
  std::string method;
  std::string path;
  std::string body;
};
using Show = std::function<Result<void>(const std::string& answer)>;

Result<int> ask(const Request& request, bool json, const Show& show) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  TESSER_ASSIGN_OR_RETURN(const std::string answer, client->ask(request.method, request.path, request.body));
  if (json) {
    print_output("{}\n", answer);
    return 0;
  }
  TESSER_RETURN_IF_ERROR(show(answer));
  return 0;
}

// Says one line, whatever the answer is.
Show say(std::string line) {
  return [line = std::move(line)](const std::string&) {
    print_output("{}\n", line);
    return Result<void>();
  };
}

std::string text_or(const Json& json, std::string_view member, const char* otherwise) {
  const Json* found = json.find(member);
  return found != nullptr && found->string() != nullptr ? safe_line(*found->string(), true) : otherwise;
}

// "vision (member), speech (viewer)"
std::string roles_text(const Json& json, std::string_view list, std::string_view what) {
  std::string text;
  const Json* found = json.find(list);
  for (const Json& each : found != nullptr && found->array() != nullptr ? *found->array() : Json::Array()) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", text_or(each, what, "?"), text_or(each, "role", "?"));
  }
  return text.empty() ? "-" : text;
}

// A table with a row for each member of the list.
Show show_table(std::vector<std::string> head, std::string list,
                std::function<std::vector<std::string>(const Json&)> row, const char* when_empty) {
  return [=](const std::string& answer) -> Result<void> {
    TESSER_ASSIGN_OR_RETURN(const Json json, parse_json(answer));
    JsonReader reader(json, "the answer");
    std::vector<std::vector<std::string>> rows = {head};
    for (const Json& each : reader.array(list)) {
      rows.push_back(row(each));
    }
    TESSER_RETURN_IF_ERROR(reader.outcome());
    print_output("{}", rows.size() == 1 ? std::string(when_empty) + "\n" : table(rows));
    return {};
  };
}

std::string path_of(const char* kind, const std::string& name) {
  return fmt::format("/v1/{}/{}", kind, platform::url_encoded(name));
}

// A subcommand with --json; `make` makes what is asked for once its arguments are there.
CLI::App* add_one(CLI::App& parent, Action& action, const char* name, const char* about,
                  std::function<Result<int>(bool json)> act) {
  CLI::App* command = parent.add_subcommand(name, about);
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Write JSON");
  command->callback([json, act = std::move(act), &action] { action = [json, act] { return act(*json); }; });
  return command;
}

CLI::App* add_group(CLI::App& app, const char* name, const char* about, const char* examples) {
  CLI::App* group = app.add_subcommand(name, about);
  group->require_subcommand(1);
  group->footer(examples);
  return group;
}

Result<int> list_users(bool json) {
  return ask({"GET", "/v1/users", ""}, json,
             show_table(
                 {"USER", "ADMINISTRATOR", "TEAMS"}, "users",
                 [](const Json& user) -> std::vector<std::string> {
                   const Json* is_administrator = user.find("is_administrator");
                   const bool* truth = is_administrator != nullptr ? is_administrator->get<bool>() : nullptr;
                   return {text_or(user, "name", "?"), truth != nullptr && *truth ? "yes" : "no",
                           roles_text(user, "teams", "team")};
                 },
                 "no users"));
}

Result<int> list_teams(bool json) {
  return ask({"GET", "/v1/teams", ""}, json,
             show_table(
                 {"TEAM", "RUNS AS", "MEMBERS"}, "teams",
                 [](const Json& team) -> std::vector<std::string> {
                   const Json* user = team.find("learner_user");
                   return {text_or(team, "name", "?"),
                           user != nullptr && user->integer() != nullptr ? std::to_string(*user->integer()) : "-",
                           roles_text(team, "members", "user")};
                 },
                 "you are in no team"));
}

Result<int> list_tokens(bool json) {
  return ask({"GET", "/v1/tokens", ""}, json,
             show_table(
                 {"TOKEN", "USER", "ONLY IN", "EXPIRES", "AGE", "DESCRIPTION"}, "tokens",
                 [](const Json& token) -> std::vector<std::string> {
                   return {text_or(token, "id", "?"),
                           text_or(token, "user", "?"),
                           text_or(token, "team", "-"),
                           text_or(token, "expires", "never"),
                           age_text(text_or(token, "created", "")),
                           text_or(token, "description", "")};
                 },
                 "no tokens"));
}

struct NewToken {
  std::string user;
  std::string team;
  std::string description;
  double days = 0;
};

Result<int> create_token(const NewToken& options, bool json) {
  Members body;
  for (const auto& [name, value] : {std::pair("user", options.user), std::pair("team", options.team),
                                    std::pair("description", options.description)}) {
    if (!value.empty()) {
      body.add(name, value);
    }
  }
  if (options.days > 0) {
    body.add("expires_in", std::max<std::int64_t>(1, static_cast<std::int64_t>(options.days * 24 * 3600)));
  }
  return ask({"POST", "/v1/tokens", body.object()}, json, [](const std::string& answer) -> Result<void> {
    TESSER_ASSIGN_OR_RETURN(const Json token, parse_json(answer));
    print_message("token {} of {}, shown this once:\n", text_or(token, "id", "?"), text_or(token, "user", "?"));
    print_output("{}\n", text_or(token, "token", ""));
    return {};
  });
}

}  // namespace

void add_user(CLI::App& app, Action& action) {
  CLI::App* group = add_group(app, "user", "Users of the platform", kUserExamples);
  const auto name = std::make_shared<std::string>();
  const auto is_administrator = std::make_shared<bool>(false);
  CLI::App* add = add_one(*group, action, "add", "Add a user, who then needs a team and a token", [=](bool json) {
    return ask({"POST", "/v1/users", Members().add("name", *name).add("is_administrator", *is_administrator).object()},
               json, say(fmt::format("added user {0}; `tesser token create --user {0}` lets them in", *name)));
  });
  add->add_option("user", *name, "The user's name")->required();
  add->add_flag("--administrator", *is_administrator, "One who may do everything");
  CLI::App* remove = add_one(*group, action, "remove", "Remove a user, with all tokens", [=](bool json) {
    return ask({"DELETE", path_of("users", *name), ""}, json, say(fmt::format("removed user {}", *name)));
  });
  remove->add_option("user", *name, "The user's name")->required();
  add_one(*group, action, "list", "Users, and the teams they are in", list_users);
}

void add_team(CLI::App& app, Action& action) {
  CLI::App* group = add_group(app, "team", "Teams, and who is in them", kTeamExamples);
  const auto team = std::make_shared<std::string>();
  const auto user = std::make_shared<std::string>();
  const auto role = std::make_shared<std::string>("member");
  const auto member_path = [=] { return path_of("teams", *team) + "/members/" + platform::url_encoded(*user); };
  const auto add_names = [&](CLI::App* command, bool has_user) {
    command->add_option("team", *team, "The team's name")->required();
    if (has_user) {
      command->add_option("user", *user, "The user's name")->required();
    }
  };
  add_names(add_one(*group, action, "add", "Add a team",
                    [=](bool json) {
                      return ask({"POST", "/v1/teams", Members().add("name", *team).object()}, json,
                                 say(fmt::format("added team {}", *team)));
                    }),
            false);
  add_names(
      add_one(*group, action, "remove", "Remove a team that has no jobs",
              [=](bool json) {
                return ask({"DELETE", path_of("teams", *team), ""}, json, say(fmt::format("removed team {}", *team)));
              }),
      false);
  CLI::App* join =
      add_one(*group, action, "join", "Take a user into a team, or give a member another role", [=](bool json) {
        return ask({"PUT", member_path(), Members().add("role", *role).object()}, json,
                   say(fmt::format("{} is {} of team {}", *user, *role, *team)));
      });
  add_names(join, true);
  join->add_option("--role", *role, "viewer, member or administrator")
      ->capture_default_str()
      ->check(CLI::IsMember({"viewer", "member", "administrator"}));
  add_names(add_one(*group, action, "leave", "End a user's membership",
                    [=](bool json) {
                      return ask({"DELETE", member_path(), ""}, json,
                                 say(fmt::format("{} is no member of team {} any more", *user, *team)));
                    }),
            true);
  add_one(*group, action, "list", "Teams that you see, with their members", list_teams);
}

void add_token(CLI::App& app, Action& action) {
  CLI::App* group = add_group(app, "token", "Tokens, by which users get in", kTokenExamples);
  const auto options = std::make_shared<NewToken>();
  CLI::App* create = add_one(*group, action, "create", "Make a token; it is shown this once",
                             [=](bool json) { return create_token(*options, json); });
  create->add_option("--user", options->user, "Whose; yours by default");
  create->add_option("--team", options->team, "Good for this team alone");
  create->add_option("--description", options->description, "What it is for, as lists show it");
  create->add_option("--days", options->days, "Good for so long; for ever by default")
      ->check(CLI::Range(0.00001, 3650.0));
  const auto id = std::make_shared<std::string>();
  CLI::App* revoke = add_one(*group, action, "revoke", "End a token", [=](bool json) {
    return ask({"DELETE", path_of("tokens", *id), ""}, json, say(fmt::format("revoked token {}", *id)));
  });
  revoke->add_option("token", *id, "Its id, as `tesser token list` shows it")->required();
  add_one(*group, action, "list", "Tokens that you may revoke", list_tokens);
}

}  // namespace tesser::cli
