// What happens when a worker or the hub is lost, and what is refused. Workers that die are processes of their own in
// the fault campaign (tests/python/hub); here they end their devices.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica_run.h"

namespace tesser::hub {
namespace {

using ::testing::HasSubstr;

Hyperparameters plain_numbers(std::int64_t, std::size_t) {
  Hyperparameters numbers;
  numbers.learning_rate = 0.1;
  return numbers;
}

// Workers of one job, each started on a thread of its own since they wait for one another.
std::vector<std::unique_ptr<Client>> start_all(const std::vector<std::unique_ptr<Hub>>& hubs,
                                               const JobSettings& settings) {
  std::vector<std::unique_ptr<Client>> clients(static_cast<std::size_t>(settings.replicas));
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < settings.replicas; ++rank) {
    threads.emplace_back([&, rank] {
      auto client = Client::join(worker_options(hubs, settings, rank));
      ASSERT_TRUE(client.has_value()) << client.error().message;
      const auto started = (*client)->start();
      ASSERT_TRUE(started.has_value()) << started.error().message;
      clients[static_cast<std::size_t>(rank)] = std::move(*client);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& client : clients) {
    if (client == nullptr) {
      throw std::runtime_error("a worker has not started");
    }
  }
  return clients;
}

RunOptions options_of(const JobSettings& settings) {
  RunOptions options;
  options.settings = settings;
  options.numbers = plain_numbers;
  return options;
}

TEST(HubFailureTest, AWrongNonceASecondRankAndOtherSettingsAreRefused) {
  const auto hubs = open_hubs(1, 1);
  const JobSettings settings = settings_for(2, {100});
  auto first = Client::join(worker_options(hubs, settings, 0));
  ASSERT_TRUE(first.has_value()) << first.error().message;

  ClientOptions stranger = worker_options(hubs, settings, 1);
  stranger.nonce = "fedcba9876543210";
  auto outcome = Client::join(stranger);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, HasSubstr("nonce"));
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidInput);

  outcome = Client::join(worker_options(hubs, settings, 0));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, HasSubstr("already has rank 0"));

  outcome = Client::join(worker_options(hubs, settings_for(2, {101}), 1));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, HasSubstr("tensor0"));
}

TEST(HubFailureTest, AJobOverItsMemoryIsRefusedWithTheFigures) {
  HubOptions options;
  options.processors = "0";
  options.job_memory = 1000;
  std::vector<std::unique_ptr<Hub>> hubs;
  hubs.push_back(std::move(*Hub::open(options)));
  const auto outcome = Client::join(worker_options(hubs, settings_for(1, {1000}), 0));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, HasSubstr("8256 bytes"));
  EXPECT_THAT(outcome.error().message, HasSubstr("1000"));
}

TEST(HubFailureTest, WhoDoesNotComeIsNamed) {
  const auto hubs = open_hubs(1, 1);
  ClientOptions options = worker_options(hubs, settings_for(3, {100}), 1);
  options.patience = std::chrono::milliseconds(500);
  auto client = Client::join(options);
  ASSERT_TRUE(client.has_value()) << client.error().message;
  const auto started = (*client)->start();
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().message, HasSubstr("ranks 0, 2"));
}

TEST(HubFailureTest, ALostWorkerStopsTheOthersByName) {
  const auto hubs = open_hubs(1, 2);
  const JobSettings settings = settings_for(3, {100, 20'000});
  auto clients = start_all(hubs, settings);
  const RunOptions options = options_of(settings);
  clients[1]->abandon();
  clients[1].reset();
  for (const std::size_t rank : {0, 2}) {
    const auto outcome = take_step(*clients[rank], options, static_cast<std::int64_t>(rank));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_THAT(outcome.error().message, HasSubstr("rank 1"));
  }
}

TEST(HubFailureTest, TheOthersGoOnWithoutALostWorker) {
  const auto hubs = open_hubs(1, 2);
  JobSettings settings = settings_for(3, {100, 20'000});
  settings.on_loss = OnLoss::kContinue;
  auto clients = start_all(hubs, settings);
  RunOptions options = options_of(settings);
  clients[1]->abandon();
  clients[1].reset();
  std::vector<std::thread> threads;
  for (const std::size_t rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      for (int step = 0; step < 3; ++step) {
        const auto outcome = take_step(*clients[rank], options, static_cast<std::int64_t>(rank));
        ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  // Averages of the two that are left, at every step: nobody had pushed before the loss.
  for (std::int64_t i = 0; i < 100; ++i) {
    float expected = 0;
    for (std::int64_t step = 0; step < 3; ++step) {
      expected -= 0.1F * (0.5F * (gradient_value(0, step, 0, i, false) + gradient_value(2, step, 0, i, false)));
    }
    EXPECT_NEAR(clients[0]->weights(0)[static_cast<std::size_t>(i)], expected, 1e-6);
  }
}

// A worker is lost in the middle of a step, comes back, and does that step again: the numbers are those of a run that
// lost nobody.
TEST(HubFailureTest, AWorkerThatReturnsGoesOnWhereTheJobIs) {
  for (const bool committed : {false, true}) {
    const auto hubs = open_hubs(1, 2);
    JobSettings settings = settings_for(3, {100, 20'000, 3}, {.algorithm = Algorithm::kAdam});
    settings.on_loss = OnLoss::kWait;
    auto clients = start_all(hubs, settings);
    RunOptions options = options_of(settings);
    options.steps = 4;
    std::vector<std::thread> threads;
    for (const std::size_t rank : {0, 2}) {
      threads.emplace_back([&, rank] {
        for (int step = 0; step < options.steps; ++step) {
          const auto outcome = take_step(*clients[rank], options, static_cast<std::int64_t>(rank));
          ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
        }
      });
    }
    auto outcome = take_step(*clients[1], options, 1);
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    // Of the second step it pushes a part, or all of it and commits.
    if (committed) {
      for (std::int64_t key = 0; key < 3; ++key) {
        const auto gradient = clients[1]->gradient(key);
        for (std::size_t i = 0; i < gradient.size() / 4; ++i) {
          reinterpret_cast<float*>(gradient.data())[i] = gradient_value(1, 1, key, static_cast<std::int64_t>(i), false);
        }
        ASSERT_TRUE(clients[1]->push(key).has_value());
      }
      ASSERT_TRUE(clients[1]->commit(std::vector{plain_numbers(1, 0)}).has_value());
    } else {
      ASSERT_TRUE(clients[1]->push(2).has_value());  // with the gradient of the step before: must not count
    }
    clients[1]->abandon();
    clients[1].reset();
    auto back = Client::join(worker_options(hubs, settings, 1));
    for (int attempt = 0; attempt < 200 && !back; ++attempt) {  // until its loss is known
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      back = Client::join(worker_options(hubs, settings, 1));
    }
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_TRUE((*back)->is_return());
    const auto started = (*back)->start();
    ASSERT_TRUE(started.has_value()) << started.error().message;
    EXPECT_EQ((*back)->step(), committed ? 2 : 1);
    while ((*back)->step() < options.steps) {
      outcome = take_step(**back, options, 1);
      ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    options.zero_weights = true;
    const Tensors expected = run_alone(options);
    for (std::size_t key = 0; key < expected.size(); ++key) {
      const auto seen = (*back)->weights(static_cast<std::int64_t>(key));
      ASSERT_EQ(std::vector<float>(seen.begin(), seen.end()), expected[key]) << "tensor " << key;
    }
  }
}

TEST(HubFailureTest, ALostHubIsNamed) {
  auto hubs = open_hubs(1, 1);
  const std::string url = hubs[0]->url();
  const JobSettings settings = settings_for(2, {100});
  auto clients = start_all(hubs, settings);
  hubs.clear();
  const auto outcome = take_step(*clients[0], options_of(settings), 0);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, HasSubstr(url));
}

TEST(HubFailureTest, ReplicasThatDisagreeOnTheLearningRateFail) {
  const auto hubs = open_hubs(1, 1);
  const JobSettings settings = settings_for(2, {100});
  auto clients = start_all(hubs, settings);
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      RunOptions options = options_of(settings);
      options.numbers = [rank](std::int64_t, std::size_t) {
        Hyperparameters numbers;
        numbers.learning_rate = rank == 0 ? 0.1 : 0.25;
        return numbers;
      };
      const auto outcome = take_step(*clients[static_cast<std::size_t>(rank)], options, rank);
      ASSERT_FALSE(outcome.has_value());
      EXPECT_THAT(outcome.error().message, HasSubstr("disagree at step 0"));
      EXPECT_THAT(outcome.error().message, HasSubstr("0.25"));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(HubFailureTest, WhoGoesOnAfterAnotherHasLeftIsTold) {
  const auto hubs = open_hubs(1, 1);
  const JobSettings settings = settings_for(2, {100});
  auto clients = start_all(hubs, settings);
  ASSERT_TRUE(clients[1]->leave().has_value());
  const auto outcome = take_step(*clients[0], options_of(settings), 0);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, HasSubstr("rank 1 has left after step 0"));
}

TEST(HubFailureTest, WhoHasGoneOnBeforeAnotherLeavesIsToldToo) {
  const auto hubs = open_hubs(1, 1);
  const JobSettings settings = settings_for(2, {100});
  auto clients = start_all(hubs, settings);
  std::thread going([&] {
    const auto outcome = take_step(*clients[0], options_of(settings), 0);  // commits, and waits for rank 1
    ASSERT_FALSE(outcome.has_value());
    EXPECT_THAT(outcome.error().message, HasSubstr("rank 0 goes on to step 1, but rank 1 has left after step 0"));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_TRUE(clients[1]->leave().has_value());
  going.join();
}

TEST(HubFailureTest, WhoWithdrawsWhatItHasNotGivenIsLost) {
  const auto hubs = open_hubs(1, 1);
  const JobSettings settings = settings_for(2, {100, 5});
  auto clients = start_all(hubs, settings);
  ASSERT_TRUE(clients[1]->push(0).has_value());
  const auto outcome = clients[1]->withdraw(std::vector<std::int64_t>{0, 1});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message, HasSubstr("it withdrew tensor 1, which it had not given in this step"));
}

TEST(HubFailureTest, AJobOfTheSameNameMayFollow) {
  const auto hubs = open_hubs(1, 1);
  const JobSettings settings = settings_for(2, {100});
  {
    auto clients = start_all(hubs, settings);
    clients[0]->abandon();
    clients[0].reset();
    ASSERT_FALSE(take_step(*clients[1], options_of(settings), 1).has_value());
  }
  EXPECT_EQ(start_all(hubs, settings).size(), 2U);
}

}  // namespace
}  // namespace tesser::hub
