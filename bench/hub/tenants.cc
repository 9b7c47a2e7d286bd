#include "hub/tenants.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hostile_tenant.h"
#include "hub/client.h"
#include "hub/hub.h"
#include "hub/processor_shares.h"

namespace tesser::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTenants = 8;
constexpr int kReplicas = 2;
constexpr int kTensors = 8;
constexpr std::int64_t kElements = 1 << 18;  // of each tensor
constexpr std::chrono::milliseconds kLook{20};
constexpr const char* kHubGroup = "hub";

hub::JobSettings settings() {
  hub::JobSettings settings;
  settings.replicas = kReplicas;
  settings.groups.push_back({.algorithm = hub::Algorithm::kSgd, .has_momentum = true});
  for (int key = 0; key < kTensors; ++key) {
    settings.keys.push_back({"tensor " + std::to_string(key), kElements, 0});
  }
  return settings;
}

// Of a tenant's process, in memory that it shares with the bench.
struct Tally {
  std::atomic<int> started{0};  // workers
  std::atomic<std::int64_t> exchanges{0};
  std::atomic<std::int64_t> acts{0};  // of the hostile one
  std::atomic<bool> is_good{true};
};

struct Shared {
  char address[256] = {};  // the hub's
  std::atomic<bool> ends{false};
  std::array<Tally, kTenants> tallies;
};

// One worker of a job, which exchanges until the end.
Result<void> work(Shared& shared, Tally& tally, const std::string& job, int rank) {
  hub::ClientOptions options;
  options.hubs = {shared.address};
  options.job = job;
  options.nonce = "of " + job + " alone";
  options.rank = rank;
  options.settings = settings();
  TESSER_ASSIGN_OR_RETURN(const auto client, hub::Client::join(std::move(options)));
  TESSER_RETURN_IF_ERROR(client->start());
  tally.started.fetch_add(1);
  hub::Hyperparameters numbers;
  numbers.learning_rate = 1e-4;
  numbers.momentum = 0.9;
  while (!shared.ends.load()) {
    for (int key = 0; key < kTensors; ++key) {
      TESSER_RETURN_IF_ERROR(client->push(key));
    }
    TESSER_RETURN_IF_ERROR(client->commit({&numbers, 1}));
    for (int key = 0; key < kTensors && !shared.ends.load();) {
      TESSER_ASSIGN_OR_RETURN(const bool is_there, client->wait_for(key, kLook));
      key += is_there ? 1 : 0;
    }
    if (rank == 0) {
      tally.exchanges.fetch_add(1);
    }
  }
  return client->leave();
}

int be_tenant(Shared& shared, Tally& tally, const std::string& job) {
  std::vector<std::thread> workers;
  for (int rank = 0; rank < kReplicas; ++rank) {
    workers.emplace_back([&, rank] {
      const Result<void> outcome = work(shared, tally, job, rank);
      if (!outcome && !shared.ends.load()) {  // at the end one may leave while the other goes on
        std::fprintf(stderr, "%s, rank %d: %s\n", job.c_str(), rank, outcome.error().message.c_str());
        tally.is_good.store(false);
      }
      tally.started.fetch_add(1);  // who fails is not waited for
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  return 0;
}

int be_hostile(Shared& shared, Tally& tally, const std::string& foreign_job, int cores) {
  hub::HostileTenant hostile(shared.address, cores, foreign_job);
  tally.started.store(kReplicas);
  while (!shared.ends.load()) {
    std::this_thread::sleep_for(kLook);
    tally.acts.store(hostile.acts());
  }
  const std::string surprise = hostile.surprise();
  std::fprintf(stderr, "%s", surprise.c_str());
  tally.is_good.store(surprise.empty());
  return 0;
}

// A process in a group, where there are groups.
pid_t start(const ProcessorShares* shares, const std::string& group, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Result<void> entered = shares == nullptr ? Result<void>() : shares->enter(group);
    if (!entered) {
      std::fprintf(stderr, "%s\n", entered.error().message.c_str());
    }
    ::_exit(entered ? body() : 1);
  }
  return child;
}

bool ended_well(pid_t process) {
  int status = 0;
  return ::waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Rates {
  bool is_good = true;
  std::vector<double> exchanges_s;
  double hostile_acts_s = 0;
};

std::string group_of(int tenant) { return "tenant" + std::to_string(tenant); }

Rates measure(Shared& shared, const ProcessorShares* shares, const std::string& name, int tenants, bool with_hostile,
              std::chrono::milliseconds time) {
  // As many as the hub has by default.
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  shared.ends.store(false);
  std::vector<pid_t> processes;
  for (int number = 0; number < tenants + (with_hostile ? 1 : 0); ++number) {
    Tally& tally = *new (&shared.tallies[static_cast<std::size_t>(number)]) Tally;
    const std::string job = name + std::to_string(number);
    processes.push_back(start(shares, group_of(number), [&shared, &tally, job, name, number, tenants, cores] {
      return number < tenants ? be_tenant(shared, tally, job) : be_hostile(shared, tally, name + "0", cores);
    }));
  }
  for (std::size_t number = 0; number < processes.size(); ++number) {
    while (shared.tallies[number].started.load() < kReplicas && ::waitpid(processes[number], nullptr, WNOHANG) == 0) {
      std::this_thread::sleep_for(kLook);
    }
  }
  std::this_thread::sleep_for(time / 4);  // memory has been touched
  std::vector<std::int64_t> before;
  for (const Tally& tally : shared.tallies) {
    before.push_back(tally.exchanges.load() + tally.acts.load());
  }
  const auto begin = Clock::now();
  std::this_thread::sleep_for(time);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Rates rates;
  for (std::size_t number = 0; number < processes.size(); ++number) {
    const Tally& tally = shared.tallies[number];
    const double rate = static_cast<double>(tally.exchanges.load() + tally.acts.load() - before[number]) / seconds;
    if (number < static_cast<std::size_t>(tenants)) {
      rates.exchanges_s.push_back(rate);
    } else {
      rates.hostile_acts_s = rate;
    }
  }
  shared.ends.store(true);
  for (std::size_t number = 0; number < processes.size(); ++number) {
    rates.is_good = ended_well(processes[number]) && shared.tallies[number].is_good.load() && rates.is_good;
  }
  return rates;
}

std::string list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    char number[32];
    std::snprintf(number, sizeof(number), "%s%.5g", text.empty() ? "" : ", ", value);
    text += number;
  }
  return "[" + text + "]";
}

// Until the bench closes its end of the pipe. The hub's URL goes to the shared memory.
int serve(Shared& shared, int ready, int end) {
  const auto server = hub::Hub::open({});
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  std::snprintf(shared.address, sizeof(shared.address), "%s", (*server)->url().c_str());
  ::close(ready);
  char byte = 0;
  return ::read(end, &byte, 1) == 0 ? 0 : 1;
}

// A hub and its tenants; with groups each has its share of the processors, and the hub goes before all.
bool measure_case(Shared& shared, const ProcessorShares* shares, std::chrono::milliseconds time) {
  int ready[2];
  int end[2];
  if (::pipe(ready) != 0 || ::pipe(end) != 0) {
    std::perror("no pipes for the bench's processes");
    return false;
  }
  new (&shared) Shared;
  const pid_t server = start(shares, kHubGroup, [&] {
    ::close(ready[0]);
    ::close(end[1]);
    return serve(shared, ready[1], end[0]);
  });
  ::close(ready[1]);
  char byte = 0;
  (void)!::read(ready[0], &byte, 1);  // its end
  bool good = shared.address[0] != '\0';
  if (good) {
    const Rates alone = measure(shared, shares, "alone", 1, false, time);
    const Rates together = measure(shared, shares, "together", kTenants, false, time);
    const Rates beside = measure(shared, shares, "beside", kTenants - 1, true, time);
    good = alone.is_good && together.is_good && beside.is_good;
    std::printf(
        "{\"shares\": %s, \"alone\": %.5g, \"together\": %s, \"beside_hostile\": %s, "
        "\"hostile_acts_s\": %.5g}\n",
        shares != nullptr ? "true" : "false", alone.exchanges_s.front(), list(together.exchanges_s).c_str(),
        list(beside.exchanges_s).c_str(), beside.hostile_acts_s);
    std::fflush(stdout);
  }
  ::close(ready[0]);
  ::close(end[0]);
  ::close(end[1]);
  return ended_well(server) && good;
}

Result<ProcessorShares> shares_of_tenants() {
  TESSER_ASSIGN_OR_RETURN(ProcessorShares shares, ProcessorShares::open());
  TESSER_RETURN_IF_ERROR(shares.add(kHubGroup, 1000));
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    TESSER_RETURN_IF_ERROR(shares.add(group_of(tenant), 10));
  }
  return shares;
}

}  // namespace

int measure_tenants(std::chrono::milliseconds time) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("no memory for the bench's processes");
    return 1;
  }
  auto& shared = *static_cast<Shared*>(memory);
  bool good = measure_case(shared, nullptr, time);
  const Result<ProcessorShares> shares = shares_of_tenants();
  if (!shares) {
    std::fprintf(stderr, "not measured with shares of the processors: %s\n", shares.error().message.c_str());
    return good ? 0 : 1;
  }
  good = measure_case(shared, &*shares, time) && good;
  return good ? 0 : 1;
}

}  // namespace tesser::bench
