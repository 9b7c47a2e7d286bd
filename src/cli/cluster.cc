// `tesser nodes` and `tesser quota`: where jobs run, and how much each team may have.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/job_text.h"
#include "cli/platform_login.h"

namespace tesser::cli {
namespace {

constexpr const char* kNodesExamples = R"(
Examples:
  tesser nodes            what each node has, what of it is held, and by which jobs
  tesser nodes --json)";

constexpr const char* kQuotaExamples = R"(
Examples:
  tesser quota            what each team may have, and what it holds
  tesser quota --json)";

Result<int> show_nodes(bool json) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  if (json) {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, client->get("/v1/nodes"));
    fmt::print("{}\n", answer);
    return 0;
  }
  TESSER_ASSIGN_OR_RETURN(const auto nodes, client->nodes());
  std::vector<std::vector<std::string>> rows = {{"NODE", "READY", "HAS", "HELD", "JOBS"}};
  for (const platform::NodeAnswer& node : nodes) {
    std::string jobs;
    for (const std::string& job : node.jobs) {
      jobs += (jobs.empty() ? "" : ", ") + job;
    }
    rows.push_back({node.name, node.is_ready ? "yes" : "no: " + safe_line(node.not_ready, true),
                    resources_text(node.capacity), resources_text(node.held), jobs});
  }
  fmt::print("{}", nodes.empty() ? "the engine has no nodes\n" : table(rows));
  return 0;
}

Result<int> show_quota(bool json) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  if (json) {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, client->get("/v1/quota"));
    fmt::print("{}\n", answer);
    return 0;
  }
  TESSER_ASSIGN_OR_RETURN(const auto teams, client->quota());
  std::vector<std::vector<std::string>> rows = {{"TEAM", "RUNNING", "WAITING", "HELD", "QUOTA"}};
  for (const platform::QuotaAnswer& team : teams) {
    rows.push_back({team.team, std::to_string(team.running), std::to_string(team.waiting), resources_text(team.held),
                    team.quota ? resources_text(*team.quota) : "none set"});
  }
  fmt::print("{}", teams.empty() ? "no team has a job or a quota\n" : table(rows));
  return 0;
}

void add_command(CLI::App& app, Action& action, const char* name, const char* about, const char* examples,
                 Result<int> (*show)(bool)) {
  CLI::App* command = app.add_subcommand(name, about);
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Write JSON");
  command->footer(examples);
  command->callback([json, show, &action] { action = [json, show] { return show(*json); }; });
}

}  // namespace

void add_nodes(CLI::App& app, Action& action) {
  add_command(app, action, "nodes", "Nodes that learners run on", kNodesExamples, show_nodes);
}

void add_quota(CLI::App& app, Action& action) {
  add_command(app, action, "quota", "What each team may have and holds", kQuotaExamples, show_quota);
}

}  // namespace tesser::cli
