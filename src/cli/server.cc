// tesser server: takes jobs and sees to them.

#include <sys/resource.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/amount_text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/python.h"
#include "cli/stop_signal.h"
#include "platform/server/server.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  tesser server --data /srv/tesser                                  jobs run on this machine
  tesser server --data D --node a=2,4GiB --node b=2,4GiB,v100:1     as if it were two machines
  tesser server --data /shared/tesser --engine slurm --listen 10.0.0.1:8470
  tesser server --data /shared/tesser --engine kubernetes --kubeconfig ~/.kube/config --image tesser:1 \
      --advertise http://10.0.0.1:8470

  tesser server --data /srv/tesser --listen 0.0.0.0:8470 --advertise https://jobs.example.org:8470 \
      --tls-certificate fullchain.pem --tls-key key.pem

The first start makes DATA/admin.token, with which `tesser login` gets in. Ctrl-C ends the server and no job: they run
on, and the next server goes on with them.)";

struct Options {
  platform::ServerOptions server;
  std::vector<std::string> nodes;
  std::vector<std::string> host_directories;
  std::vector<std::string> host_data;
  std::string learner_users;
  std::int64_t patience = 5;
  std::string placement = "pack";
};

// Blocks until SIGINT, SIGTERM or SIGHUP, which every thread has blocked since before it was made.
int wait_for_signal(const sigset_t& signals) {
  int signal = 0;
  while (::sigwait(&signals, &signal) != 0) {
  }
  return signal;
}

void log_line(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  print_message("{:%Y-%m-%d %H:%M:%S} {}\n", fmt::localtime(std::time(nullptr)), line);
}

tl::unexpected<Error> wrong_node(const std::string& text) {
  return invalid_input(
      fmt::format("--node {}: expected NAME=CPUS,MEMORY[,TYPE:COUNT]..., as in a=4,16GiB,v100:2", text));
}

Result<platform::Node> node_of(const std::string& text) {
  platform::Node node;
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return wrong_node(text);
  }
  node.name = text.substr(0, equals);
  std::vector<std::string> parts;
  for (std::size_t begin = equals + 1; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (parts.size() < 2) {
    return wrong_node(text);
  }
  char* end = nullptr;
  const double processors = std::strtod(parts[0].c_str(), &end);
  const auto memory = bytes_from_text(parts[1]);
  if (*end != '\0' || parts[0].empty() || !(processors >= 0.001 && processors <= 1e6) || !memory || *memory <= 0) {
    return wrong_node(text);
  }
  node.capacity.millicpus = static_cast<std::int64_t>(processors * 1000 + 0.5);
  node.capacity.memory_bytes = *memory;
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const std::size_t colon = parts[i].find(':');
    const std::string count = colon == std::string::npos ? "" : parts[i].substr(colon + 1);
    const long number = std::strtol(count.c_str(), &end, 10);
    if (count.empty() || *end != '\0' || number < 0 || number > 1'000'000 || colon == 0) {
      return wrong_node(text);
    }
    node.capacity.accelerators[parts[i].substr(0, colon)] = number;
  }
  return node;
}

Result<platform::LearnerUsers> learner_users_of(const std::string& text) {
  platform::LearnerUsers users;
  users.same = text == "same";
  if (text.empty() || users.same) {
    return users;
  }
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, users.first);
  const bool has_last = first.ec == std::errc() && first.ptr != end && *first.ptr == '-';
  const auto last = std::from_chars(has_last ? first.ptr + 1 : end, end, users.last);
  if (!has_last || last.ec != std::errc() || last.ptr != end || users.first < 1 || users.last < users.first) {
    return invalid_input(
        fmt::format("--learner-users {}: expected FIRST-LAST, numbers of users such as 60000-60999, or same", text));
  }
  return users;
}

Result<int> serve(Options options) {
  for (const std::string& text : options.nodes) {
    TESSER_ASSIGN_OR_RETURN(platform::Node node, node_of(text));
    for (const platform::Node& other : options.server.engine.nodes) {
      if (other.name == node.name) {
        return invalid_input(fmt::format("--node {}: there are two nodes of this name", text));
      }
    }
    options.server.engine.nodes.push_back(std::move(node));
  }
  for (const std::string& directory : options.host_directories) {
    options.server.engine.host_directories.emplace_back(directory);
  }
  options.server.placement.policy =
      options.placement == "spread" ? platform::PlacementPolicy::kSpread : platform::PlacementPolicy::kPack;
  for (const std::string& directory : options.host_data) {
    options.server.host_data.emplace_back(directory);
  }
  TESSER_ASSIGN_OR_RETURN(options.server.learner_users, learner_users_of(options.learner_users));
  options.server.engine.patience = std::chrono::seconds(options.patience);
  std::error_code error;
  options.server.tesser = std::filesystem::read_symlink("/proc/self/exe", error);
  options.server.python = find_python();
  options.server.version = TESSER_VERSION;
  options.server.log = log_line;
  // A connection a client, and a descriptor a guardian.
  if (rlimit files{}; ::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  outlive_output();
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is an error of the write
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (!is_ignored(SIGHUP)) {
    sigaddset(&signals, SIGHUP);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  TESSER_ASSIGN_OR_RETURN(auto server, platform::Server::open(options.server));
  print_output("server at {}\nadmin's token in {}\n", server->url(), server->admin_token_file().string());
  TESSER_RETURN_IF_ERROR(flush_output());
  wait_for_signal(signals);
  log_line("ending; jobs run on");
  server.reset();
  return 0;
}

}  // namespace

void add_server(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("server", "Take jobs and see to them, for all of a cluster");
  const auto options = std::make_shared<Options>();
  platform::EngineSettings& engine = options->server.engine;
  command->add_option("--data", options->server.data, "Directory for jobs and the store, shared by all nodes")
      ->required();
  command->add_option("--listen", options->server.listen, "HOST:PORT for requests (port 0: the system chooses)")
      ->capture_default_str();
  command->add_option("--advertise", options->server.advertise,
                      "URL by which guardians reach this server, where that is another");
  command->add_option("--learner-users", options->learner_users,
                      "FIRST-LAST: users, by number, of whom each team gets one as whom its learners run, where the "
                      "server is root; same: they run as the server");
  command->add_option("--host-data", options->host_data,
                      "Data stores of type host lie below this directory (or another one given so)");
  auto* certificate = command->add_option("--tls-certificate", options->server.tls_certificate,
                                          "PEM file: the server speaks TLS, and guardians trust it by this");
  auto* key = command->add_option("--tls-key", options->server.tls_key, "PEM file of the certificate's key");
  certificate->needs(key);
  key->needs(certificate);
  platform::TenantLimits& limits = options->server.limits;
  const auto limit = [&](const char* name, auto& value, const char* about, int most) {
    command->add_option(name, value, fmt::format("{} (0: any number)", about))
        ->check(CLI::Range(0, most))
        ->capture_default_str();
  };
  limit("--requests-per-second", limits.requests_per_second, "Of a user, on average", 1'000'000);
  limit("--strangers-per-second", limits.strangers_per_second,
        "Requests of an address without a token that is known, on average", 1'000'000);
  limit("--requests-at-once", limits.requests_at_once, "Of a user, those that wait too", 1'000'000);
  limit("--waiting-jobs", limits.waiting_jobs_of_user, "Of a user", 10'000'000);
  limit("--waiting-jobs-of-team", limits.waiting_jobs_of_team, "Of all of a team", 10'000'000);
  command->add_option("--engine", engine.kind, "Where learners run: local, slurm or kubernetes")
      ->check(CLI::IsMember({"local", "slurm", "kubernetes"}))
      ->capture_default_str();
  command->add_option("--node", options->nodes,
                      "local: a part of this machine that counts as a node, NAME=CPUS,MEMORY[,TYPE:COUNT]... (all of "
                      "the machine is one)");
  command
      ->add_option("--placement", options->placement,
                   "Learners on few nodes that are full (pack), or on many that "
                   "are empty (spread)")
      ->check(CLI::IsMember({"pack", "spread"}))
      ->capture_default_str();
  command
      ->add_option("--placement-seed", options->server.placement.seed,
                   "Of the draws among places that are equally good: the same seed gives the same places")
      ->capture_default_str();
  command->add_option("--slurm-conf", engine.slurm_configuration, "slurm: its configuration (the system's)");
  command->add_option("--partition", engine.partition, "slurm: where jobs go (the default partition)");
  command->add_flag("--slurm-places", engine.system_places, "slurm: Slurm chooses the nodes");
  command->add_option("--kubeconfig", engine.kubeconfig, "kubernetes: access (that of the pod this runs in)");
  command->add_option("--image", engine.image, "kubernetes: image of learners and guardians");
  command->add_option("--namespace-prefix", engine.namespace_prefix, "kubernetes: a team's namespace is PREFIX TEAM")
      ->capture_default_str();
  command->add_option("--host-directory", options->host_directories,
                      "kubernetes: mounted in pods, read-only, under the same path");
  command->add_option("--patience", options->patience, "Seconds until the engine's system counts as out of reach")
      ->check(CLI::Range(1, 600))
      ->capture_default_str();
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return serve(*options); }; });
}

}  // namespace tesser::cli
