// Many jobs on one hub, one of them hostile: the numbers of the others are those of a run alone.
#include <atomic>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/control_http.h"
#include "hub/messages.h"
#include "hub/wire.h"
#include "replica_run.h"
#include "transport/device.h"
#include "transport/notification_queue.h"

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

// Requests that mean nothing, name others' jobs, or are too large.
void flood_requests(const Hub& hub, const std::atomic<bool>& ends) {
  const auto control = control_of(hub);
  ASSERT_NE(control, nullptr);
  WorkerRequest foreign;
  foreign.job = "tenant1";
  foreign.nonce = "not the nonce";
  const std::string huge(1 << 20, '[');
  while (!ends.load()) {
    for (const char* path : {"/v1/jobs/leave", "/v1/jobs/start", "/v1/jobs/status", "/v1/jobs/state",
                             "/v1/jobs/rack-weights", "/v1/jobs/connected"}) {
      EXPECT_FALSE(control->post(path, to_json(foreign)).has_value()) << path;
    }
    for (const std::string& body : {std::string("{}"), std::string("\xff\xfe"), huge, std::string("{\"job\":1}")}) {
      EXPECT_FALSE(control->post("/v1/jobs/join", body).has_value());
      EXPECT_FALSE(control->post("/v1/jobs/rack", body).has_value());
    }
  }
}

// Bytes that are no request at all, and connections that say nothing.
void flood_connections(int port, const std::atomic<bool>& ends) {
  while (!ends.load()) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      std::string bytes(4096, '\0');
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<char>(i * 37);
      }
      (void)!::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ::close(socket);
  }
}

// A worker that joins as it should and then sends notifications that mean nothing.
class LawlessWorker {
 public:
  LawlessWorker(const Hub& hub, const std::string& job, const JobSettings& settings) {
    const auto control = control_of(hub);
    transport::DeviceOptions options;
    options.name = "rank 0";
    options.run = run_of(job, kNonce);
    device_ = std::move(*transport::Device::open(options));
    const auto map = map_chunks(settings, {1});
    region_ = std::move(*device_->allocate(WorkerMemory(*map, settings).bytes));
    JoinRequest request;
    request.job = job;
    request.nonce = kNonce;
    request.memory = region_->handle();
    request.home = region_->handle();
    request.cores = {1};
    request.settings = settings;
    const auto joined = control->post("/v1/jobs/join", to_json(request)).and_then(read_join_answer);
    EXPECT_TRUE(joined.has_value()) << joined.error().message;
    channel_ = std::move(*device_->connect(joined->address, transport::in(kPatience)));
    writer_.emplace(std::move(*transport::NotificationWriter::open(channel_, push_queue(0))));
    reader_.emplace(std::move(*transport::NotificationReader::open(channel_, pull_queue(0), 64)));
    WorkerRequest self;
    self.job = job;
    self.nonce = kNonce;
    bool ready = false;
    while (!ready) {
      const auto answer = control->post("/v1/jobs/connected", to_json(self)).and_then(read_connected_answer);
      EXPECT_TRUE(answer.has_value());
      ready = !answer || answer->ready;
    }
    EXPECT_TRUE(control->post("/v1/jobs/start", to_json(self)).has_value());
    device_->wait([&] { return *writer_->connected(); }, transport::in(kPatience));
  }

  void send(std::uint32_t number) { (void)writer_->notify(number); }
  bool is_thrown_out() {
    return device_->wait([&] { return channel_->failed(); }, transport::in(kPatience));
  }

 private:
  std::unique_ptr<transport::Device> device_;
  std::shared_ptr<transport::MemoryRegion> region_;
  std::shared_ptr<transport::Channel> channel_;
  std::optional<transport::NotificationWriter> writer_;
  std::optional<transport::NotificationReader> reader_;
};

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
    LawlessWorker worker(*hubs[0], job, settings);
    for (const std::uint32_t number : cases[index]) {
      worker.send(number);
    }
    EXPECT_TRUE(worker.is_thrown_out()) << job;
  }
  const RunOptions options = options_of(settings);
  EXPECT_EQ(run_replicas(options, hubs, "lawful")[0], run_alone(options));
}

TEST(HubTenantsTest, SevenJobsKeepTheirNumbersBesideAHostileOne) {
  const auto hubs = open_hubs(1, 1);
  const int port = std::stoi(hubs[0]->url().substr(hubs[0]->url().rfind(':') + 1));
  std::atomic<bool> ends{false};
  std::vector<std::thread> hostile;
  hostile.emplace_back([&] { flood_requests(*hubs[0], ends); });
  hostile.emplace_back([&] { flood_connections(port, ends); });
  hostile.emplace_back([&] {
    const JobSettings settings = settings_for(1, {100});
    for (int turn = 0; !ends.load(); ++turn) {
      LawlessWorker worker(*hubs[0], "hostile" + std::to_string(turn), settings);
      for (std::uint32_t number = 0; number < 200; ++number) {
        worker.send(number * 7919 % transport::NotificationWriter::kMaxNumber);
      }
    }
  });
  hostile.emplace_back([&] {  // dies in the middle of a push
    JobSettings settings = settings_for(1, {20'000, 30'000});
    for (int turn = 0; !ends.load(); ++turn) {
      ClientOptions options = worker_options(hubs, settings, 0);
      options.job = "dying" + std::to_string(turn);
      auto client = Client::join(options);
      ASSERT_TRUE(client.has_value()) << client.error().message;
      ASSERT_TRUE((*client)->start().has_value());
      EXPECT_TRUE((*client)->push(1).has_value());
      (*client)->abandon();
    }
  });
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
  ends.store(true);
  for (std::thread& each : hostile) {
    each.join();
  }
  ASSERT_TRUE(metrics.has_value()) << metrics.error().message;
  EXPECT_THAT(*metrics, HasSubstr("tesser_hub_requests_refused_total"));
  EXPECT_THAT(*metrics, HasSubstr("tesser_hub_gradient_bytes_total{job=\"tenant3\"}"));
}

}  // namespace
}  // namespace tesser::hub
