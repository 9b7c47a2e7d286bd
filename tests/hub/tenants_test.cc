// Many jobs on one hub, one of them hostile: the numbers of the others are those of a run alone.
#include <chrono>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/control_http.h"
#include "hostile_tenant.h"
#include "hub/chunk_map.h"
#include "hub/messages.h"
#include "hub/wire.h"
#include "replica_run.h"

namespace tesser::hub {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{20};

RunOptions options_of(const JobSettings& settings) {
  RunOptions options;
  options.settings = settings;
  options.numbers = [](std::int64_t step, std::size_t) {
    Hyperparameters numbers;
    numbers.learning_rate = 0.1 / static_cast<double>(step + 1);
    return numbers;
  };
  return options;
}

std::unique_ptr<control::ControlClient> control_of(const Hub& hub) {
  auto client = control::ControlClient::open(hub.url(), "", kPatience, "hub");
  return client ? std::move(*client) : nullptr;
}

TEST(HubTenantsTest, NotificationsThatMeanNothingEndTheirJobAlone) {
  const auto hubs = open_hubs(1, 1);
  const JobSettings settings = settings_for(1, {100});
  // Of a chunk or tensor that there is not, the same twice, commits without weights.
  const std::vector<std::vector<std::uint32_t>> cases = {
      {notice(Notice::kGradient, 77)},
      {notice(Notice::kTensor, 1)},
      {notice(Notice::kTensor, 0), notice(Notice::kTensor, 0)},
      {notice(Notice::kTensor, 0), notice(Notice::kGradient, 0)},
      {notice(Notice::kGradient, 0), notice(Notice::kGradient, 0)},
      {notice(Notice::kCommit, 0), notice(Notice::kCommit, 0), notice(Notice::kCommit, 0)},
  };
  for (std::size_t index = 0; index < cases.size(); ++index) {
    const std::string job = "lawless" + std::to_string(index);
    const auto worker = LawlessWorker::join(hubs[0]->url(), 1, job, settings);
    ASSERT_TRUE(worker.has_value()) << worker.error().message;
    for (const std::uint32_t number : cases[index]) {
      (*worker)->send(number);
    }
    EXPECT_TRUE((*worker)->is_thrown_out()) << job;
  }
  const RunOptions options = options_of(settings);
  EXPECT_EQ(run_replicas(options, hubs, "lawful")[0], run_alone(options));
}

TEST(HubTenantsTest, AJobThatNobodyConnectsToIsForgotten) {
  HubOptions hub_options;
  hub_options.processors = "0";
  hub_options.pins = false;
  hub_options.patience = std::chrono::milliseconds(300);
  const auto hub = Hub::open(hub_options);
  ASSERT_TRUE(hub.has_value()) << hub.error().message;
  const auto control = control_of(**hub);
  const JobSettings settings = settings_for(1, {100});
  JoinRequest request;
  request.job = "job";
  request.nonce = kNonce;
  request.cores = {1};
  request.memory.bytes = WorkerMemory(*map_chunks(settings, {1}), settings).bytes;
  request.settings = settings;
  ASSERT_TRUE(control->post("/v1/jobs/join", to_json(request)).has_value());
  WorkerRequest self;
  self.job = "job";
  self.nonce = kNonce;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::string state;
  while (state != "failed" && std::chrono::steady_clock::now() < deadline) {
    const auto status = control->post("/v1/jobs/status", to_json(self)).and_then(read_job_status);
    ASSERT_TRUE(status.has_value()) << status.error().message;
    state = status->state;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(state, "failed");
  // Its name, and the rank that had joined, are free again.
  request.nonce = "another nonce";
  EXPECT_TRUE(control->post("/v1/jobs/join", to_json(request)).has_value());
}

// Asks for a job as its first worker does, with a tenant's token.
Result<void> open_job(const Hub& hub, const std::string& token, const std::string& job, std::int64_t elements = 100,
                      const std::string& nonce = kNonce) {
  const JobSettings settings = settings_for(2, {elements});
  JoinRequest request;
  request.job = job;
  request.nonce = nonce;
  request.cores = {1};
  TESSER_ASSIGN_OR_RETURN(const ChunkMap map, map_chunks(settings, {1}));
  request.memory.bytes = WorkerMemory(map, settings).bytes;
  request.settings = settings;
  TESSER_ASSIGN_OR_RETURN(const auto control, control::ControlClient::open(hub.url(), token, kPatience, "hub"));
  return control->post("/v1/jobs/join", to_json(request)).map([](const std::string&) {});
}

std::string refusal(const Result<void>& outcome) { return outcome ? "taken" : outcome.error().message; }

std::unique_ptr<Hub> hub_of_two_tenants(int tenant_jobs, std::uint64_t tenant_memory) {
  HubOptions options;
  options.processors = "0";
  options.pins = false;
  options.tenants = {{"secret of ada", "ada"}, {"secret of bob", "bob"}};
  options.jobs = 4;
  options.tenant_jobs = tenant_jobs;
  options.tenant_memory = tenant_memory;
  auto hub = Hub::open(options);
  return hub ? std::move(*hub) : nullptr;
}

TEST(HubTenantsTest, WhoOpensTooManyJobsTakesThemFromNobodyElse) {
  const auto hub = hub_of_two_tenants(3, 0);
  ASSERT_NE(hub, nullptr);
  for (const char* job : {"first", "second", "third"}) {
    EXPECT_EQ(refusal(open_job(*hub, "secret of ada", job)), "taken");
  }
  EXPECT_THAT(refusal(open_job(*hub, "secret of ada", "fourth")),
              HasSubstr("tenant ada has 3 jobs here and may have 3"));
  EXPECT_EQ(refusal(open_job(*hub, "secret of bob", "fourth")), "taken");
  EXPECT_THAT(refusal(open_job(*hub, "secret of bob", "fifth")), HasSubstr("this hub has 4 jobs"));
  EXPECT_THAT(refusal(open_job(*hub, "secret of bob", "first")), HasSubstr("another tenant"));
  EXPECT_THAT(refusal(open_job(*hub, "secret of eve", "sixth")), HasSubstr("token"));
  EXPECT_THAT(refusal(open_job(*hub, "", "sixth")), HasSubstr("token"));
}

TEST(HubTenantsTest, MemoryOfATenantIsThatOfAllItsJobs) {
  const auto hub = hub_of_two_tenants(4, 20'000);
  ASSERT_NE(hub, nullptr);
  EXPECT_EQ(refusal(open_job(*hub, "secret of ada", "first", 2000)), "taken");
  EXPECT_THAT(refusal(open_job(*hub, "secret of ada", "second", 2000)), HasSubstr("may have 20000"));
  EXPECT_EQ(refusal(open_job(*hub, "secret of ada", "small", 100)), "taken");
  EXPECT_EQ(refusal(open_job(*hub, "secret of bob", "second", 2000)), "taken");
}

TEST(HubTenantsTest, WithoutTenantsTheHubIsBounded) {
  HubOptions options;
  options.processors = "0";
  options.pins = false;
  options.jobs = 2;
  const auto hub = Hub::open(options);
  ASSERT_TRUE(hub.has_value()) << hub.error().message;
  EXPECT_EQ(refusal(open_job(**hub, "", "first")), "taken");
  EXPECT_EQ(refusal(open_job(**hub, "", "second", 100, "another nonce")), "taken");
  EXPECT_THAT(refusal(open_job(**hub, "", "third", 100, "a third nonce")), HasSubstr("may have 2"));
}

TEST(HubTenantsTest, SevenJobsKeepTheirNumbersBesideAHostileOne) {
  const auto hubs = open_hubs(1, 1);
  std::optional<HostileTenant> hostile(std::in_place, hubs[0]->url(), 1, "tenant1");
  std::vector<std::thread> tenants;
  for (int tenant = 0; tenant < 7; ++tenant) {
    tenants.emplace_back([&, tenant] {
      RunOptions options = options_of(settings_for(
          2, {1000 + tenant, 20'000, 3}, {.algorithm = tenant % 2 == 0 ? Algorithm::kAdam : Algorithm::kSgd}));
      options.steps = 60;
      const Tensors expected = run_alone(options);
      const std::vector<Tensors> seen = run_replicas(options, hubs, "tenant" + std::to_string(tenant));
      for (const Tensors& each : seen) {
        EXPECT_EQ(each, expected) << "tenant " << tenant;
      }
    });
  }
  for (std::thread& tenant : tenants) {
    tenant.join();
  }
  const auto metrics = control_of(*hubs[0])->get("/metrics");
  while (hostile->acts() < 100) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(hostile->surprise(), "");
  hostile.reset();
  ASSERT_TRUE(metrics.has_value()) << metrics.error().message;
  EXPECT_THAT(*metrics, HasSubstr("tesser_hub_requests_refused_total"));
  EXPECT_THAT(*metrics, HasSubstr("tesser_hub_gradient_bytes_total{job=\"tenant3\"}"));
}

}  // namespace
}  // namespace tesser::hub
