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
