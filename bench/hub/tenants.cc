#include "hub/tenants.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
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

namespace tesser::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTenants = 8;
constexpr int kReplicas = 2;
constexpr int kTensors = 8;
constexpr std::int64_t kElements = 1 << 18;  // of each tensor
constexpr std::chrono::milliseconds kLook{20};

hub::JobSettings settings() {
  hub::JobSettings settings;
  settings.replicas = kReplicas;
  settings.groups.push_back({.algorithm = hub::Algorithm::kSgd, .has_momentum = true});
  for (int key = 0; key < kTensors; ++key) {
    settings.keys.push_back({"tensor " + std::to_string(key), kElements, 0});
  }
  return settings;
}

// One job of two workers, which exchange until it is destroyed.
class Tenant {
 public:
  Tenant(const std::string& hub, const std::string& job) {
    for (int rank = 0; rank < kReplicas; ++rank) {
      threads_.emplace_back([this, hub, job, rank] {
        const Result<void> outcome = work(hub, job, rank);
        if (!outcome && !ends_.load()) {  // at the end one may leave while the other goes on
          std::fprintf(stderr, "%s, rank %d: %s\n", job.c_str(), rank, outcome.error().message.c_str());
          is_good_.store(false);
        }
        started_.fetch_add(1);  // who fails is not waited for
      });
    }
  }
  ~Tenant() {
    ends_.store(true);
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  bool has_started() const { return started_.load() >= kReplicas; }
  bool is_good() const { return is_good_.load(); }
  std::int64_t exchanges() const { return exchanges_.load(); }

 private:
  Result<void> work(const std::string& hub, const std::string& job, int rank) {
    hub::ClientOptions options;
    options.hubs = {hub};
    options.job = job;
    options.nonce = "of " + job + " alone";
    options.rank = rank;
    options.settings = settings();
    TESSER_ASSIGN_OR_RETURN(const auto client, hub::Client::join(std::move(options)));
    TESSER_RETURN_IF_ERROR(client->start());
    started_.fetch_add(1);
    hub::Hyperparameters numbers;
    numbers.learning_rate = 1e-4;
    numbers.momentum = 0.9;
    while (!ends_.load()) {
      for (int key = 0; key < kTensors; ++key) {
        TESSER_RETURN_IF_ERROR(client->push(key));
      }
      TESSER_RETURN_IF_ERROR(client->commit({&numbers, 1}));
      for (int key = 0; key < kTensors && !ends_.load();) {
        TESSER_ASSIGN_OR_RETURN(const bool is_there, client->wait_for(key, kLook));
        key += is_there ? 1 : 0;
      }
      if (rank == 0) {
        exchanges_.fetch_add(1);
      }
    }
    return client->leave();
  }

  std::atomic<bool> ends_{false};
  std::atomic<bool> is_good_{true};
  std::atomic<int> started_{0};
  std::atomic<std::int64_t> exchanges_{0};
  std::vector<std::thread> threads_;
};

struct Rates {
  bool is_good = true;
  std::vector<double> exchanges_s;
  double hostile_acts_s = 0;
};

Rates measure(const std::string& hub, const std::string& name, int tenants, int cores, bool with_hostile,
              std::chrono::milliseconds time) {
  std::vector<std::unique_ptr<Tenant>> all;
  for (int tenant = 0; tenant < tenants; ++tenant) {
    all.push_back(std::make_unique<Tenant>(hub, name + std::to_string(tenant)));
  }
  for (const auto& tenant : all) {
    while (!tenant->has_started()) {
      std::this_thread::sleep_for(kLook);
    }
  }
  std::optional<hub::HostileTenant> hostile;
  if (with_hostile) {
    hostile.emplace(hub, cores, name + "0");
  }
  std::this_thread::sleep_for(time / 4);  // memory has been touched
  std::vector<std::int64_t> before;
  for (const auto& tenant : all) {
    before.push_back(tenant->exchanges());
  }
  const std::int64_t acts = hostile ? hostile->acts() : 0;
  const auto begin = Clock::now();
  std::this_thread::sleep_for(time);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Rates rates;
  for (std::size_t tenant = 0; tenant < all.size(); ++tenant) {
    rates.exchanges_s.push_back(static_cast<double>(all[tenant]->exchanges() - before[tenant]) / seconds);
    rates.is_good = rates.is_good && all[tenant]->is_good();
  }
  if (hostile) {
    rates.hostile_acts_s = static_cast<double>(hostile->acts() - acts) / seconds;
    const std::string surprise = hostile->surprise();
    std::fprintf(stderr, "%s", surprise.c_str());
    rates.is_good = rates.is_good && surprise.empty();
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

// The hub, in a process of its own; its URL goes to `address`.
int serve(char (&address)[256], int ready, int end) {
  const auto server = hub::Hub::open({});
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  std::snprintf(address, sizeof(address), "%s", (*server)->url().c_str());
  ::close(ready);
  char byte = 0;
  return ::read(end, &byte, 1) == 0 ? 0 : 1;
}

}  // namespace

int measure_tenants(std::chrono::milliseconds time) {
  using Address = char[256];
  void* memory = ::mmap(nullptr, sizeof(Address), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ready[2];
  int end[2];
  if (memory == MAP_FAILED || ::pipe(ready) != 0 || ::pipe(end) != 0) {
    std::perror("no memory or pipes for the bench's processes");
    return 1;
  }
  auto& address = *static_cast<Address*>(memory);
  const pid_t server = ::fork();
  if (server == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ready[0]);
    ::close(end[1]);
    ::_exit(serve(address, ready[1], end[0]));
  }
  ::close(ready[1]);
  char byte = 0;
  (void)!::read(ready[0], &byte, 1);  // its end
  const std::string hub = address;
  bool good = !hub.empty();
  if (good) {
    // As many as the hub has by default.
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    const Rates alone = measure(hub, "alone", 1, cores, false, time);
    const Rates together = measure(hub, "together", kTenants, cores, false, time);
    const Rates beside = measure(hub, "beside", kTenants - 1, cores, true, time);
    good = alone.is_good && together.is_good && beside.is_good;
    std::printf("{\"alone\": %.5g, \"together\": %s, \"beside_hostile\": %s, \"hostile_acts_s\": %.5g}\n",
                alone.exchanges_s.front(), list(together.exchanges_s).c_str(), list(beside.exchanges_s).c_str(),
                beside.hostile_acts_s);
    std::fflush(stdout);
  }
  ::close(end[1]);
  int status = 0;
  good = ::waitpid(server, &status, 0) == server && WIFEXITED(status) && WEXITSTATUS(status) == 0 && good;
  return good ? 0 : 1;
}

}  // namespace tesser::bench
