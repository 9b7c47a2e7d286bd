// `tesser simulate`: replays a trace of jobs over a described cluster with the platform's scheduler.
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_members.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "platform/scheduler/simulation.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser simulate trace.csv --nodes 28x8                        all four policies side by side
  tesser simulate trace.csv --nodes 28x8 --policy gang-pack --seed 7 --json
  tesser simulate trace.csv --nodes 4x8 --quota vision=16 --quota speech=16
  tesser simulate --synthetic 100000 --nodes 10000x8 --load 0.9

A trace is CSV with the columns app_id, submit_time (seconds), num_jobs (accelerators asked for) and service
(accelerator seconds) or run_time (seconds), and optionally team and priority. Policies: gang-pack, gang-spread (all
learners of a job or none), single-pack, single-spread (learners one by one, holding what they have while they wait for
the others). Waits are the time from submission to the end that a job did not run.)";

struct Options {
  std::string trace;
  std::string nodes = "8x8";
  std::vector<std::string> policies;
  std::vector<std::string> quotas;
  std::int64_t learner = 1;
  std::uint64_t seed = 1;
  int samples = 4;
  bool no_backfill = false;
  bool unknown_run_times = false;
  double patience = 3600;
  std::size_t synthetic = 0;
  double load = 0.9;
  bool json = false;
};

struct Policy {
  const char* name;
  bool gang;
  platform::PlacementPolicy placement;
};
constexpr Policy kPolicies[] = {{"gang-pack", true, platform::PlacementPolicy::kPack},
                                {"gang-spread", true, platform::PlacementPolicy::kSpread},
                                {"single-pack", false, platform::PlacementPolicy::kPack},
                                {"single-spread", false, platform::PlacementPolicy::kSpread}};
constexpr int kMostNodes = 1'000'000;
constexpr std::int64_t kMostAccelerators = 1'000'000;

std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= most
             ? std::optional(number)
             : std::nullopt;
}

Result<platform::SimulationSettings> settings_of(const Options& options) {
  platform::SimulationSettings settings;
  const std::size_t by = options.nodes.find('x');
  const auto nodes = whole_number(std::string_view(options.nodes).substr(0, by), kMostNodes);
  const auto accelerators = by == std::string::npos
                                ? std::nullopt
                                : whole_number(std::string_view(options.nodes).substr(by + 1), kMostAccelerators);
  if (!nodes || !accelerators) {
    return invalid_input(
        fmt::format("--nodes {}: expected NODESxACCELERATORS, as in 28x8 for 28 nodes of 8", options.nodes));
  }
  settings.nodes = static_cast<int>(*nodes);
  settings.accelerators_per_node = *accelerators;
  if (options.learner < 1 || options.learner > *accelerators) {
    return invalid_input(fmt::format("--learner {}: a learner has from 1 to {} accelerators, as many as a node",
                                     options.learner, *accelerators));
  }
  settings.accelerators_per_learner = options.learner;
  for (const std::string& quota : options.quotas) {
    const std::size_t is = quota.rfind('=');
    const auto amount = is == std::string::npos
                            ? std::nullopt
                            : whole_number(std::string_view(quota).substr(is + 1), kMostAccelerators);
    if (!amount || is == 0) {
      return invalid_input(fmt::format("--quota {}: expected TEAM=ACCELERATORS", quota));
    }
    settings.teams.push_back({quota.substr(0, is), {0, 0, {{"gpu", *amount}}}});
  }
  settings.scheduler.placement.seed = options.seed;
  settings.scheduler.placement.samples = options.samples;
  settings.scheduler.backfill = !options.no_backfill;
  settings.run_times_are_known = !options.unknown_run_times;
  settings.patience_seconds = options.patience;
  return settings;
}

std::string hours_text(double seconds) {
  return seconds < 600 ? fmt::format("{:.0f} s", seconds) : fmt::format("{:.1f} h", seconds / 3600);
}

std::string json_of(const std::string& trace, const Policy& policy, const platform::SimulationReport& report) {
  std::vector<double> quantiles;
  for (int percent = 1; percent <= 100; ++percent) {
    quantiles.push_back(report.wait_percentile(percent / 100.0));
  }
  return JsonMembers()
      .add("trace", trace)
      .add("policy", std::string(policy.name))
      .add("jobs", static_cast<std::int64_t>(report.jobs))
      .add("finished", static_cast<std::int64_t>(report.finished))
      .add("never_fit", static_cast<std::int64_t>(report.never_fit))
      .add("stuck", static_cast<std::int64_t>(report.stuck))
      .add("given_up", static_cast<std::int64_t>(report.given_up))
      .add("preemptions", static_cast<std::int64_t>(report.preemptions))
      .add("idle_held_gpu_hours", report.idle_held_hours)
      .add("used_gpu_hours", report.used_hours)
      .add("utilization", report.utilization)
      .add("makespan_s", report.makespan_seconds)
      .add("wait_p50_s", report.wait_percentile(0.5))
      .add("wait_p95_s", report.wait_percentile(0.95))
      .add("wait_p99_s", report.wait_percentile(0.99))
      .add_text("wait_percentiles_s", json_list(quantiles))
      .add("decisions", static_cast<std::int64_t>(report.decisions))
      .add("decisions_s",
           report.deciding_seconds > 0 ? static_cast<double>(report.decisions) / report.deciding_seconds : 0.0)
      .object();
}

Result<int> simulate(const Options& options) {
  TESSER_ASSIGN_OR_RETURN(platform::SimulationSettings settings, settings_of(options));
  std::vector<platform::TraceJob> trace;
  std::string name = "synthetic";
  if (options.trace.empty() == (options.synthetic == 0)) {
    return invalid_input("expected either a trace or --synthetic JOBS");
  }
  if (options.synthetic > 0) {
    platform::SyntheticTrace synthetic;
    synthetic.jobs = options.synthetic;
    synthetic.load = options.load;
    synthetic.accelerators = settings.accelerators_per_node * settings.nodes;
    synthetic.seed = options.seed;
    trace = platform::make_trace(synthetic);
  } else {
    TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(options.trace));
    TESSER_ASSIGN_OR_RETURN(trace, platform::read_trace(text, options.trace));
    name = std::filesystem::path(options.trace).stem();
  }
  std::vector<std::string> objects;
  if (!options.json) {
    print_output("{}: {} jobs on {} nodes of {} accelerators\n", name, trace.size(), settings.nodes,
                 settings.accelerators_per_node);
    print_output("{:14} {:>9} {:>12} {:>9} {:>9} {:>9} {:>6} {:>10} {:>12}\n", "policy", "finished", "idle held",
                 "wait p50", "p95", "p99", "used", "preempted", "decisions/s");
  }
  for (const Policy& policy : kPolicies) {
    bool is_asked = options.policies.empty();
    for (const std::string& asked : options.policies) {
      is_asked = is_asked || asked == policy.name;
    }
    if (!is_asked) {
      continue;
    }
    settings.gang = policy.gang;
    settings.scheduler.placement.policy = policy.placement;
    const platform::SimulationReport report = platform::simulate(trace, settings);
    if (options.json) {
      objects.push_back(json_of(name, policy, report));
      continue;
    }
    print_output("{:14} {:>9} {:>12} {:>9} {:>9} {:>9} {:>5.0f}% {:>10} {:>12.0f}\n", policy.name, report.finished,
                 fmt::format("{:.0f} h", report.idle_held_hours), hours_text(report.wait_percentile(0.5)),
                 hours_text(report.wait_percentile(0.95)), hours_text(report.wait_percentile(0.99)),
                 100 * report.utilization, report.preemptions,
                 report.deciding_seconds > 0 ? static_cast<double>(report.decisions) / report.deciding_seconds : 0.0);
    if (report.never_fit > 0 || report.stuck > 0 || report.given_up > 0) {
      print_output("{:14} {} larger than the cluster, {} never finished, places given back {} times\n", "",
                   report.never_fit, report.stuck, report.given_up);
    }
  }
  if (options.json) {
    print_output("[{}]\n", fmt::join(objects, ",\n "));
  }
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("simulate", "Replay a trace of jobs with the platform's scheduler");
  command->footer(kExamples);
  auto options = std::make_shared<Options>();
  command->add_option("TRACE", options->trace, "CSV file of jobs");
  command->add_option("--nodes", options->nodes, "The cluster: NODESxACCELERATORS")->capture_default_str();
  command->add_option("--policy", options->policies, "Only these policies (default: all four)")
      ->check(CLI::IsMember({"gang-pack", "gang-spread", "single-pack", "single-spread"}));
  command->add_option("--learner", options->learner, "Accelerators of a learner")->capture_default_str();
  command->add_option("--quota", options->quotas, "TEAM=ACCELERATORS; other teams only borrow");
  command->add_option("--seed", options->seed, "Of the placement's draws, and of --synthetic")->capture_default_str();
  command->add_option("--samples", options->samples, "Placements drawn for each job; 0: best fit alone")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_flag("--no-backfill", options->no_backfill, "Nobody passes a job that waits");
  command->add_flag("--unknown-run-times", options->unknown_run_times, "The scheduler does not know how long jobs run");
  command
      ->add_option("--patience", options->patience,
                   "single-*: seconds after which a job gives back places it cannot use; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--synthetic", options->synthetic, "Make a trace of so many jobs")
      ->check(CLI::Range(1, 10'000'000));
  command->add_option("--load", options->load, "Of the cluster, by the synthetic trace")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON array, for programs");
  command->callback([&action, options] { action = [options] { return simulate(*options); }; });
}

}  // namespace tesser::cli
