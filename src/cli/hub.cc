// `tesser hub serve`: a parameter hub. `tesser hub recommend`: which arrangement of hubs a cluster should have.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json_members.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/stop_signal.h"
#include "hub/arrangement.h"
#include "hub/hub.h"
#include "hub/huge_pages.h"

namespace tesser::cli {
namespace {

constexpr const char* kTokenVariable = "TESSER_HUB_TOKEN";
constexpr std::size_t kShortestToken = 8;

constexpr const char* kServeExamples = R"(
Examples:
  tesser hub serve                                       for workers on this machine
  tesser hub serve --listen 10.0.0.1:7700 --cores 0-7    for a rack; one core of the hub on each of these processors
  tesser hub serve --job-memory 8GiB --job-bandwidth 2GiB
  tesser hub serve --listen 10.0.0.1:7700 --hubs 10.0.0.2,10.0.0.3    one of three, for jobs that clip or have racks

Workers are PyTorch scripts (docs/hub_pytorch.md) or programs with the C++ client. Each job is isolated by the nonce
that its workers know. With TESSER_HUB_TOKEN in the environment every request must carry it. The hub's figures, by job,
are at /metrics as Prometheus reads them. Ctrl-C ends it.)";

constexpr const char* kRecommendExamples = R"(
Examples:
  tesser hub recommend --model 400MB --workers 8 --bandwidth 1.25GB
  tesser hub recommend --model 400MB --workers 8 --bandwidth 1.25GB --hubs 1 --hub-bandwidth 10GB

Bandwidths are bytes a second in each direction (10 Gbit/s are 1.25GB). Times are those of the busiest machine's link,
by the formulas of the paper (docs/hub.md); computing comes on top where it does not overlap.)";

struct Options {
  hub::HubOptions hub;
  std::string job_memory;
  std::string job_bandwidth;
  std::string reserve_pages;
  std::string tenants;  // a file
  std::string tenant_memory;
};

void log_line(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  print_message("{:%Y-%m-%d %H:%M:%S} {}\n", fmt::localtime(std::time(nullptr)), line);
}

// 0 where none was given.
Result<std::int64_t> limit_of(const std::string& text, const char* option) {
  if (text.empty()) {
    return 0;
  }
  const auto bytes = bytes_from_text(text);
  if (!bytes || *bytes == 0) {
    return invalid_input(fmt::format("{} {}: expected a size such as 12GiB, 500MB or 800000000", option, text));
  }
  return *bytes;
}

// Lines "NAME TOKEN"; empty ones and those that begin with # do not count.
Result<std::map<std::string, std::string>> read_tenants(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return invalid_input(fmt::format("--tenants {}: the file cannot be read", path));
  }
  std::map<std::string, std::string> tenants;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line);
    std::string name;
    std::string token;
    std::string rest;
    if (!(words >> name) || name.front() == '#') {
      continue;
    }
    if (!(words >> token) || words >> rest || token.size() < kShortestToken) {
      return invalid_input(fmt::format("--tenants {}, line {}: expected a name and a token of {} or more characters",
                                       path, number, kShortestToken));
    }
    if (!tenants.emplace(token, name).second) {
      return invalid_input(fmt::format("--tenants {}, line {}: two tenants have the same token", path, number));
    }
  }
  if (tenants.empty()) {
    return invalid_input(fmt::format("--tenants {}: the file names no tenant", path));
  }
  return tenants;
}

Result<int> serve(Options options) {
  const auto& stopped = stop_on_signal("ending all jobs");
  TESSER_ASSIGN_OR_RETURN(const std::int64_t memory, limit_of(options.job_memory, "--job-memory"));
  TESSER_ASSIGN_OR_RETURN(const std::int64_t bandwidth, limit_of(options.job_bandwidth, "--job-bandwidth"));
  TESSER_ASSIGN_OR_RETURN(const std::int64_t tenant_memory, limit_of(options.tenant_memory, "--tenant-memory"));
  options.hub.tenant_memory = static_cast<std::uint64_t>(tenant_memory);
  if (!options.tenants.empty()) {
    TESSER_ASSIGN_OR_RETURN(options.hub.tenants, read_tenants(options.tenants));
  }
  options.hub.job_memory = static_cast<std::uint64_t>(memory);
  options.hub.job_bandwidth = static_cast<double>(bandwidth);
  hub::ReservedPages pages;  // longer than the hub
  if (!options.reserve_pages.empty()) {
    TESSER_ASSIGN_OR_RETURN(const std::int64_t bytes, limit_of(options.reserve_pages, "--reserve-pages"));
    TESSER_ASSIGN_OR_RETURN(pages, hub::ReservedPages::add(static_cast<std::uint64_t>(bytes)));
  }
  if (const char* token = std::getenv(kTokenVariable)) {
    options.hub.token = token;
  }
  options.hub.log = log_line;
  TESSER_ASSIGN_OR_RETURN(const auto hub, hub::Hub::open(options.hub));
  print_output("hub at {}\n{}", hub->url(), hub->describe());
  TESSER_RETURN_IF_ERROR(flush_output());
  while (!stopped.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return 0;
}

struct RecommendOptions {
  std::string model;
  std::string bandwidth;
  std::string hub_bandwidth;
  hub::Cluster cluster;
  bool json = false;
};

Result<int> recommend(RecommendOptions options) {
  TESSER_ASSIGN_OR_RETURN(const std::int64_t model, limit_of(options.model, "--model"));
  TESSER_ASSIGN_OR_RETURN(const std::int64_t bandwidth, limit_of(options.bandwidth, "--bandwidth"));
  TESSER_ASSIGN_OR_RETURN(const std::int64_t hub_bandwidth, limit_of(options.hub_bandwidth, "--hub-bandwidth"));
  options.cluster.worker_bandwidth = static_cast<double>(bandwidth);
  options.cluster.hub_bandwidth = static_cast<double>(hub_bandwidth == 0 ? bandwidth : hub_bandwidth);
  const auto all = hub::arrangements(static_cast<double>(model), options.cluster);
  if (options.json) {
    print_output("{}\n", json_list(all, [](const hub::Arrangement& each) {
                   return JsonMembers()
                       .add("arrangement", each.name)
                       .add("busiest", each.machine)
                       .add("bytes", each.bytes)
                       .add("seconds", each.seconds)
                       .object();
                 }));
    return 0;
  }
  print_output("{:<20} {:<8} {:>14} {:>12}\n", "arrangement", "busiest", "bytes a step", "ms a step");
  for (const hub::Arrangement& each : all) {
    print_output("{:<20} {:<8} {:>14} {:>12.2f}\n", each.name, each.machine,
                 bytes_text(static_cast<std::int64_t>(each.bytes)), each.seconds * 1e3);
  }
  print_output("recommended: {}\n", all.front().name);
  return 0;
}

void add_recommend(CLI::App& hub, Action& action) {
  CLI::App* command = hub.add_subcommand("recommend", "Compare arrangements of hubs for a model and a network");
  const auto options = std::make_shared<RecommendOptions>();
  command->add_option("--model", options->model, "Size of the model's parameters: 400MB")->required();
  command->add_option("--workers", options->cluster.workers, "Machines with a replica")
      ->required()
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--bandwidth", options->bandwidth, "Of a worker's link, bytes a second: 1.25GB")->required();
  command->add_option("--hubs", options->cluster.hubs, "Machines for hubs alone (0)")->check(CLI::Range(0, 1'000'000));
  command->add_option("--hub-bandwidth", options->hub_bandwidth, "Of a hub's links together (as a worker's)");
  command->add_flag("--json", options->json, "Write JSON");
  command->footer(kRecommendExamples);
  command->callback([options, &action] { action = [options] { return recommend(*options); }; });
}

}  // namespace

void add_hub(CLI::App& app, Action& action) {
  CLI::App* hub = app.add_subcommand("hub", "Exchange replicas' gradients: a parameter hub");
  hub->require_subcommand(1);
  CLI::App* command = hub->add_subcommand("serve", "Be a hub until ended");
  const auto options = std::make_shared<Options>();
  options->hub.listen = "127.0.0.1:7700";
  command->add_option("--listen", options->hub.listen, "HOST:PORT for requests (port 0: the system chooses)")
      ->capture_default_str();
  command->add_option("--cores", options->hub.processors,
                      "Processors for the hub's cores, one each: 0-3,8 (one for each hardware core)");
  command->add_flag("!--no-pin", options->hub.pins, "Let the system place the cores' threads");
  command->add_option("--job-memory", options->job_memory, "Memory that one job may take here: 8GiB");
  command->add_option("--job-bandwidth", options->job_bandwidth,
                      "Bytes of gradients and weights a second that one job may move: 2GiB");
  command->add_option("--jobs", options->hub.jobs, "Jobs at once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--tenants", options->tenants,
                      "File with a tenant's name and token (8 characters or more) in each line; requests carry one of "
                      "the tokens");
  command->add_option("--tenant-jobs", options->hub.tenant_jobs, "Jobs of one tenant at once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--tenant-memory", options->tenant_memory, "Memory that one tenant's jobs may take here: 32GiB");
  command->add_option("--hubs", options->hub.other_hubs,
                      "Hosts of other hubs that jobs may have this one connect to, for several racks or clipping: "
                      "10.0.0.2,node7, or any (this machine's only)");
  command->add_option("--reserve-pages", options->reserve_pages,
                      "Add pages of 2 MiB to the system's pool until the hub ends, as root: 8GiB, for it and the "
                      "workers on this machine");
  command->add_flag("!--no-huge-pages", options->hub.huge_pages, "Pages of 4 KiB, even where there are larger ones");
  command->add_flag("--network", options->hub.through_network,
                    "Reach workers by RDMA or TCP even on this machine, never through shared memory");
  command->footer(kServeExamples);
  command->callback([options, &action] { action = [options] { return serve(*options); }; });
  add_recommend(*hub, action);
}

}  // namespace tesser::cli
