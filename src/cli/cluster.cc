// `tesser nodes` and `tesser quota`: where jobs run, and how much each team may have.
#include <charconv>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json_members.h"
#include "cli/commands.h"
#include "cli/job_text.h"
#include "cli/output.h"
#include "cli/platform_login.h"
#include "platform/web/url.h"

namespace tesser::cli {
namespace {

constexpr const char* kNodesExamples = R"(
Examples:
  tesser nodes                what each node has, what of it is held, and by which jobs
  tesser nodes drain node3    its jobs end after their checkpoint and go on elsewhere; it takes no others
  tesser nodes undrain node3)";

constexpr const char* kQuotaExamples = R"(
Examples:
  tesser quota                what each team may have, what it holds, and what of that is borrowed
  tesser quota set vision --cpus 64 --memory 512GiB --accelerators v100:8 --accelerators t4:4
  tesser quota set speech --accelerators v100:2      processors and memory are not bounded
  tesser quota remove speech

A team's jobs within its quota have a right to their places. Beyond it, and without one, they run on what is free, and
end after a checkpoint, to go on later, when others need what they own. While no team has a quota, nobody is bounded.)";

Result<int> show_nodes(bool json) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  if (json) {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, client->get("/v1/nodes"));
    print_output("{}\n", answer);
    return 0;
  }
  TESSER_ASSIGN_OR_RETURN(const auto nodes, client->nodes());
  std::vector<std::vector<std::string>> rows = {{"NODE", "READY", "HAS", "HELD", "JOBS"}};
  for (const platform::NodeAnswer& node : nodes) {
    std::string jobs;
    for (const std::string& job : node.jobs) {
      jobs += (jobs.empty() ? "" : ", ") + job;
    }
    rows.push_back({node.name,
                    !node.is_ready     ? "no: " + safe_line(node.not_ready, true)
                    : node.is_draining ? "no: is being emptied"
                                       : "yes",
                    resources_text(node.capacity), resources_text(node.held), jobs});
  }
  print_output("{}", nodes.empty() ? "the engine has no nodes\n" : table(rows));
  return 0;
}

Result<int> show_quota(bool json) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  if (json) {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, client->get("/v1/quota"));
    print_output("{}\n", answer);
    return 0;
  }
  TESSER_ASSIGN_OR_RETURN(const auto teams, client->quota());
  std::vector<std::vector<std::string>> rows = {{"TEAM", "RUNNING", "WAITING", "HELD", "BORROWED", "QUOTA"}};
  for (const platform::QuotaAnswer& team : teams) {
    rows.push_back({team.team, std::to_string(team.running), std::to_string(team.waiting), resources_text(team.held),
                    resources_text(team.borrowed), team.quota ? resources_text(*team.quota) : "none set"});
  }
  print_output("{}", teams.empty() ? "no team has a job or a quota\n" : table(rows));
  return 0;
}

Result<int> change(const std::string& method, const std::string& path, const std::string& body, bool json,
                   const std::string& done) {
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  TESSER_ASSIGN_OR_RETURN(const std::string answer, client->ask(method, path, body));
  print_output("{}\n", json ? answer : done);
  return 0;
}

std::string quota_path(const std::string& team) {
  return fmt::format("/v1/teams/{}/quota", platform::url_encoded(team));
}

struct QuotaOptions {
  std::string team;
  std::optional<double> cpus;
  std::string memory;
  std::vector<std::string> accelerators;
};

Result<int> set_quota(const QuotaOptions& options, bool json) {
  JsonMembers body;
  if (options.cpus) {
    body.add("millicpus", static_cast<std::int64_t>(*options.cpus * 1000 + 0.5));
  }
  if (!options.memory.empty()) {
    const auto bytes = bytes_from_text(options.memory);
    if (!bytes || *bytes <= 0) {
      return invalid_input(fmt::format("--memory {}: expected an amount such as 512GiB", options.memory));
    }
    body.add("memory_bytes", *bytes);
  }
  std::map<std::string, std::int64_t> accelerators;
  for (const std::string& text : options.accelerators) {
    const std::size_t colon = text.rfind(':');
    std::int64_t count = 0;
    const char* end = text.data() + text.size();
    const auto read = colon == std::string::npos || colon == 0
                          ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                          : std::from_chars(text.data() + colon + 1, end, count);
    if (read.ec != std::errc() || read.ptr != end || count < 1) {
      return invalid_input(fmt::format("--accelerators {}: expected TYPE:COUNT, as in v100:8", text));
    }
    accelerators[text.substr(0, colon)] = count;
  }
  if (!accelerators.empty()) {
    body.add_text("accelerators", json_object(accelerators));
  }
  if (body.object() == "{}") {
    return invalid_input("a quota bounds --cpus, --memory or --accelerators; `tesser quota remove` removes one");
  }
  return change("PUT", quota_path(options.team), body.object(), json, fmt::format("team {} has a quota", options.team));
}

using Act = std::function<Result<int>(bool json)>;

// With --json; does nothing by itself where one of its subcommands was chosen.
CLI::App* add_command(CLI::App& parent, Action& action, const char* name, const char* about, Act act) {
  CLI::App* command = parent.add_subcommand(name, about);
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Write JSON");
  command->callback([json, command, act = std::move(act), &action] {
    if (command->get_subcommands().empty()) {
      action = [json, act] { return act(*json); };
    }
  });
  return command;
}

}  // namespace

void add_nodes(CLI::App& app, Action& action) {
  CLI::App* command = add_command(app, action, "nodes", "Nodes that learners run on", show_nodes);
  command->footer(kNodesExamples);
  const auto node = std::make_shared<std::string>();
  const auto add = [&](const char* name, const char* about, bool drains, const char* done) {
    CLI::App* made = add_command(*command, action, name, about, [=](bool json) {
      return change("PATCH", "/v1/nodes/" + platform::url_encoded(*node), JsonMembers().add("drain", drains).object(),
                    json, fmt::format("{} {}", *node, done));
    });
    made->add_option("node", *node, "The node's name")->required();
  };
  add("drain", "Empty a node: its jobs go on elsewhere", true, "is being emptied");
  add("undrain", "Let a node take learners again", false, "takes learners");
}

void add_quota(CLI::App& app, Action& action) {
  CLI::App* command = add_command(app, action, "quota", "What each team may have and holds", show_quota);
  command->footer(kQuotaExamples);
  const auto options = std::make_shared<QuotaOptions>();
  CLI::App* set = add_command(*command, action, "set", "Set what a team may have; what is not named is not bounded",
                              [=](bool json) { return set_quota(*options, json); });
  set->add_option("team", options->team, "The team's name")->required();
  set->add_option("--cpus", options->cpus, "Processors")->check(CLI::Range(0.001, 1e9));
  set->add_option("--memory", options->memory, "Memory, as in 512GiB");
  set->add_option("--accelerators", options->accelerators, "TYPE:COUNT; may be given for several types");
  CLI::App* remove =
      add_command(*command, action, "remove", "Remove a team's quota: it only borrows then", [=](bool json) {
        return change("DELETE", quota_path(options->team), "", json,
                      fmt::format("team {} has no quota any more", options->team));
      });
  remove->add_option("team", options->team, "The team's name")->required();
}

}  // namespace tesser::cli
