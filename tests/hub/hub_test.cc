// Replicas through a hub against one process that sees all gradients: equal to the bit, whatever the number of
// replicas, cores, hubs, the size of chunks, and the path.
#include "hub/hub.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica_run.h"

namespace tesser::hub {
namespace {

// One element, uneven ends of chunks, several chunks.
const std::vector<std::int64_t> kSizes = {1, 5, 8192, 8193, 40'000, 15, 16, 17};

const ParameterGroup kSgd{};
const ParameterGroup kMomentum{.has_momentum = true};
const ParameterGroup kNesterov{.has_momentum = true, .nesterov = true};
const ParameterGroup kAdam{.algorithm = Algorithm::kAdam};
const ParameterGroup kAdamW{.algorithm = Algorithm::kAdam, .decoupled_weight_decay = true};
const ParameterGroup kAmsgrad{.algorithm = Algorithm::kAdam, .amsgrad = true, .maximize = true};

// A schedule: the rate falls, and there is weight decay.
Hyperparameters numbers_of(std::int64_t step, std::size_t group, const ParameterGroup& settings) {
  Hyperparameters numbers;
  numbers.learning_rate = 0.1 / static_cast<double>(step + 1 + static_cast<std::int64_t>(group));
  numbers.momentum = settings.has_momentum ? 0.9 : 0;
  numbers.weight_decay = 0.01;
  return numbers;
}

RunOptions run_of(JobSettings settings) {
  RunOptions options;
  options.settings = std::move(settings);
  options.numbers = [groups = options.settings.groups](std::int64_t step, std::size_t group) {
    return numbers_of(step, group, groups[group]);
  };
  return options;
}

void expect_equal_to_one_process(const RunOptions& options) {
  const Tensors expected = run_alone(options);
  const std::vector<Tensors> seen = run_replicas(options);
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    ASSERT_EQ(seen[rank].size(), expected.size()) << "rank " << rank;
    for (std::size_t key = 0; key < expected.size(); ++key) {
      ASSERT_EQ(seen[rank][key], expected[key]) << "rank " << rank << ", tensor " << key;
    }
  }
}

struct Case {
  const char* name;
  ParameterGroup group;
  std::int64_t replicas;
};

class OptimizersAndReplicas : public ::testing::TestWithParam<Case> {};

TEST_P(OptimizersAndReplicas, EqualOneProcess) {
  expect_equal_to_one_process(run_of(settings_for(GetParam().replicas, kSizes, GetParam().group)));
}

INSTANTIATE_TEST_SUITE_P(HubTest, OptimizersAndReplicas,
                         ::testing::Values(Case{"SgdAlone", kSgd, 1}, Case{"SgdOf2", kSgd, 2},
                                           Case{"MomentumOf3", kMomentum, 3}, Case{"NesterovOf4", kNesterov, 4},
                                           Case{"AdamOf2", kAdam, 2}, Case{"AdamWOf5", kAdamW, 5},
                                           Case{"AmsgradOf8", kAmsgrad, 8}),
                         [](const auto& info) { return info.param.name; });

TEST(HubTest, GroupsHaveTheirOwnOptimizersAndRates) {
  JobSettings settings = settings_for(2, kSizes, kAdamW);
  settings.groups.push_back(kMomentum);
  settings.keys[2].group = 1;
  settings.keys[5].group = 1;
  expect_equal_to_one_process(run_of(settings));
}

TEST(HubTest, SumsWithoutAverage) {
  JobSettings settings = settings_for(3, kSizes, kMomentum);
  settings.average = false;
  expect_equal_to_one_process(run_of(settings));
}

TEST(HubTest, SizesOfChunksDoNotChangeNumbers) {
  for (const std::int64_t bytes : {64, 4096, 1 << 20}) {
    JobSettings settings = settings_for(2, kSizes, kAdam);
    settings.chunk_bytes = bytes;
    expect_equal_to_one_process(run_of(settings));
  }
}

TEST(HubTest, GradientsInBFloat16AndFloat16AreAddedInFloat32) {
  for (const DType wire : {DType::kBFloat16, DType::kFloat16}) {
    JobSettings settings = settings_for(3, kSizes, kMomentum);
    settings.wire = wire;
    expect_equal_to_one_process(run_of(settings));
  }
}

TEST(HubTest, WeightsThatChangeAtOnce) {
  JobSettings settings = settings_for(3, kSizes, kAdam);
  settings.update_time = UpdateTime::kAtOnce;
  expect_equal_to_one_process(run_of(settings));
}

TEST(HubTest, ClipsByTheNormOfTheWholeGradient) {
  JobSettings settings = settings_for(3, kSizes, kMomentum);
  settings.clip_norm = 1.5;
  RunOptions options = run_of(settings);
  const Tensors expected = run_alone(options);
  for (const int hubs : {1, 3}) {
    options.hubs = hubs;
    for (const Tensors& seen : run_replicas(options)) {
      for (std::size_t key = 0; key < expected.size(); ++key) {
        for (std::size_t i = 0; i < expected[key].size(); ++i) {
          // The squares are added in another order.
          ASSERT_NEAR(seen[key][i], expected[key][i], 2e-6) << "tensor " << key << ", element " << i;
        }
      }
    }
  }
}

TEST(HubTest, WithdrawnGradientsChangeNothing) {
  const auto withdraws = [](std::int64_t rank, std::int64_t step, std::int64_t key) {
    return (rank + step + key) % 3 != 2;
  };
  for (const bool through_network : {false, true}) {
    for (const DType wire : {DType::kFloat32, DType::kBFloat16}) {
      RunOptions options = run_of(settings_for(4, kSizes, kAdam));
      options.settings.keys[2].row_elements = 64;
      options.settings.wire = wire;
      options.through_network = through_network;
      options.withdraws = withdraws;
      options.has_gradient = [](std::int64_t rank, std::int64_t step, std::int64_t key) {
        return key != 5 || (rank + step) % 2 == 0;
      };
      options.has_row = [](std::int64_t rank, std::int64_t step, std::int64_t row) {
        return (rank + step + row) % 3 == 0;
      };
      expect_equal_to_one_process(options);
      options.hubs = 2;
      expect_equal_to_one_process(options);
    }
  }
}

TEST(HubTest, AssignedValuesAreTheSumOfWhatIsGiven) {
  for (const DType wire : {DType::kFloat32, DType::kFloat16}) {
    for (const double clip_norm : {0.0, 1e-3}) {
      // Averaging and clipping are for the others.
      JobSettings settings = settings_for(3, kSizes, kMomentum);
      settings.wire = wire;
      settings.clip_norm = clip_norm;
      settings.groups.push_back({.algorithm = Algorithm::kAssign});
      settings.keys[3].group = settings.keys[4].group = 1;
      RunOptions options = run_of(settings);
      options.has_gradient = [](std::int64_t rank, std::int64_t step, std::int64_t key) {
        return key == 3 ? rank == 1 : key != 4 || (rank != 2 && step != 3);
      };
      const Tensors expected = run_alone(options);
      for (const Tensors& seen : run_replicas(options)) {
        EXPECT_EQ(seen[3], expected[3]);
        EXPECT_EQ(seen[4], expected[4]);
        for (std::size_t i = 0; i < expected[2].size(); ++i) {
          ASSERT_NEAR(seen[2][i], expected[2][i], 2e-6);
        }
      }
    }
  }
}

TEST(HubTest, TensorsWithoutGradient) {
  RunOptions options = run_of(settings_for(3, kSizes, kAdamW));
  options.has_gradient = [](std::int64_t rank, std::int64_t step, std::int64_t key) {
    return key == 4 ? false : key == 2 ? (rank + step) % 2 == 0 : key != 3 || step != 1;
  };
  expect_equal_to_one_process(options);
}

TEST(HubTest, RowsOfEmbeddingsEqualTheWholeGradient) {
  for (const ParameterGroup& group : {kSgd, kMomentum, kAdamW}) {
    for (const bool through_network : {false, true}) {
      RunOptions options = run_of(settings_for(3, {24 * 2000, 100, 24, 9000}, group));
      options.settings.keys[0].row_elements = 24;    // several chunks, of which some are touched by nobody
      options.settings.keys[2].row_elements = 24;    // one row
      options.settings.keys[3].row_elements = 9000;  // rows longer than a chunk
      if (group == kSgd) {
        options.numbers = [](std::int64_t, std::size_t) {
          Hyperparameters numbers;
          numbers.learning_rate = 0.1;
          return numbers;
        };
      }
      options.has_row = [](std::int64_t rank, std::int64_t step, std::int64_t row) {
        return row < 500 && (row * 7 + rank * 3 + step) % 5 == 0;
      };
      options.through_network = through_network;
      expect_equal_to_one_process(options);
    }
  }
  RunOptions options = run_of(settings_for(2, {24 * 2000}, kAdam));
  options.settings.keys[0].row_elements = 24;
  options.settings.wire = DType::kBFloat16;
  options.has_row = [](std::int64_t rank, std::int64_t, std::int64_t row) { return row % 3 == rank; };
  expect_equal_to_one_process(options);
}

TEST(HubTest, RowsThatCannotBeAreRefused) {
  const auto hubs = open_hubs(1, 1);
  JobSettings settings = settings_for(1, {40});
  settings.keys[0].row_elements = 4;
  auto client = Client::join(worker_options(hubs, settings, 0));
  ASSERT_TRUE(client.has_value()) << client.error().message;
  ASSERT_TRUE((*client)->start().has_value());
  const std::vector<float> values(8);
  const auto bytes = std::as_bytes(std::span(values));
  for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{3, 3}, {4, 3}, {-1, 2}, {1, 10}, {1}}) {
    const auto outcome = (*client)->push_rows(0, rows, bytes);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_THAT(outcome.error().message, ::testing::HasSubstr("'tensor0'"));
  }
  EXPECT_TRUE((*client)->push_rows(0, std::vector<std::int64_t>{1, 9}, bytes).has_value());
}

TEST(HubTest, ThroughTheNetwork) {
  RunOptions options = run_of(settings_for(3, kSizes, kAdam));
  options.through_network = true;
  expect_equal_to_one_process(options);
  options.settings.update_time = UpdateTime::kAtOnce;
  options.settings.wire = DType::kBFloat16;
  expect_equal_to_one_process(options);
}

TEST(HubTest, SeveralHubsShareTheWeightsOfOneMachine) {
  RunOptions options = run_of(settings_for(2, kSizes, kMomentum));
  options.hubs = 3;
  options.cores = 1;
  options.settings.one_machine = true;
  expect_equal_to_one_process(options);
}

TEST(HubTest, SeveralHubsEachWriteTheirChunksIntoEveryWorker) {
  RunOptions options = run_of(settings_for(2, kSizes, kMomentum));
  options.hubs = 2;
  expect_equal_to_one_process(options);
  options.through_network = true;
  expect_equal_to_one_process(options);
}

// A job that begins with the weights, state and numbers of updates that another ended with goes on as that would have.
TEST(HubTest, AJobGoesOnFromTheStateOfAnother) {
  for (const ParameterGroup& group : {kMomentum, kAmsgrad}) {
    for (const int hub_count : {1, 2}) {
      const auto hubs = open_hubs(hub_count, 2);
      const JobSettings settings = settings_for(1, kSizes, group);
      const auto keys = static_cast<std::int64_t>(kSizes.size());
      const auto take_two_steps = [&](Client& client) {
        for (std::int64_t step = 0; step < 2; ++step) {
          for (std::int64_t key = 0; key < keys; ++key) {
            auto* gradient = reinterpret_cast<float*>(client.gradient(key).data());
            for (std::int64_t i = 0; i < kSizes[static_cast<std::size_t>(key)]; ++i) {
              gradient[i] = gradient_value(0, step, key, i, false);
            }
            ASSERT_TRUE(client.push(key).has_value());
          }
          ASSERT_TRUE(client.commit(std::vector{numbers_of(step, 0, group)}).has_value());
          ASSERT_TRUE(client.wait_all().has_value());
        }
      };
      auto first = std::move(*Client::join(worker_options(hubs, settings, 0)));
      ASSERT_TRUE(first->start().has_value());
      take_two_steps(*first);

      ClientOptions options = worker_options(hubs, settings, 0);
      options.job = "another job";
      auto second = std::move(*Client::join(options));
      for (std::int64_t key = 0; key < keys; ++key) {
        second->set_initial(key, first->weights(key));
        for (int tensor = 0; tensor < group.state_tensors(); ++tensor) {
          std::vector<float> values(first->weights(key).size());
          ASSERT_TRUE(first->read_state(key, tensor, values).has_value());
          ASSERT_TRUE(second->set_initial_state(key, tensor, values).has_value());
        }
        EXPECT_EQ(first->read_updates(key).value(), 2);
        second->set_initial_updates(key, 2);
      }
      ASSERT_TRUE(second->start().has_value());
      take_two_steps(*first);
      take_two_steps(*second);
      for (std::int64_t key = 0; key < keys; ++key) {
        const auto expected = first->weights(key);
        const auto seen = second->weights(key);
        EXPECT_TRUE(std::equal(seen.begin(), seen.end(), expected.begin())) << "tensor " << key;
        EXPECT_EQ(second->read_updates(key).value(), 4);
      }
      EXPECT_EQ(second->state(0).value(), "running");
      ASSERT_TRUE(second->leave().has_value());
      EXPECT_EQ(second->state(0).value(), "ended");
    }
  }
}

TEST(HubTest, HubsOfRacksExchangeSums) {
  for (const std::int64_t racks : {2, 3}) {
    for (const bool through_network : {false, true}) {
      RunOptions options = run_of(settings_for(2 * racks, kSizes, kAdam));
      options.settings.racks = racks;
      options.hubs = static_cast<int>(racks);
      options.through_network = through_network;
      // Sums of racks, then their sum: another order than that of the ranks.
      const Tensors expected = run_alone(options);
      for (const Tensors& seen : run_replicas(options)) {
        for (std::size_t key = 0; key < expected.size(); ++key) {
          for (std::size_t i = 0; i < expected[key].size(); ++i) {
            ASSERT_NEAR(seen[key][i], expected[key][i], 1e-5) << "tensor " << key << ", element " << i;
          }
        }
      }
    }
  }
}

TEST(HubTest, RacksWithSeveralHubsRepeatToTheBit) {
  RunOptions options = run_of(settings_for(4, kSizes, kMomentum));
  options.settings.racks = 2;
  options.settings.wire = DType::kBFloat16;
  options.hubs = 4;
  options.cores = 1;
  options.has_gradient = [](std::int64_t rank, std::int64_t step, std::int64_t key) {
    return key == 4 ? false : key == 2 ? rank < 2 : key != 3 || step != 1;
  };
  const std::vector<Tensors> first = run_replicas(options);
  EXPECT_EQ(first, run_replicas(options));
  EXPECT_EQ(first[0], first[3]);
}

TEST(HubTest, OptimizerStateComesFromAllRacks) {
  RunOptions options = run_of(settings_for(2, {50'000}, kAdam));
  options.settings.racks = 2;
  const auto hubs = open_hubs(2, 2);
  std::vector<std::vector<float>> states(2);
  std::vector<std::thread> workers;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      auto client = Client::join(worker_options(hubs, options.settings, rank));
      ASSERT_TRUE(client.has_value()) << client.error().message;
      ASSERT_TRUE((*client)->start().has_value());
      ASSERT_TRUE(take_step(**client, options, rank).has_value());
      auto& state = states[static_cast<std::size_t>(rank)];
      state.resize(50'000);
      const auto outcome = (*client)->read_state(0, 0, state);
      ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
      const auto updates = (*client)->read_updates(0);
      ASSERT_TRUE(updates.has_value()) << updates.error().message;
      EXPECT_EQ(*updates, 1);
      ASSERT_TRUE((*client)->leave().has_value());
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  EXPECT_EQ(states[0], states[1]);
  for (std::size_t i = 0; i < states[0].size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    const float mean = 0.5F * (gradient_value(0, 0, 0, element, false) + gradient_value(1, 0, 0, element, false));
    // Weight decay adds a hundredth of weights that are zeros here.
    ASSERT_NEAR(states[0][i], 0.1F * mean, 1e-6) << i;
  }
}

TEST(HubTest, RunsRepeatToTheBit) {
  RunOptions options = run_of(settings_for(4, kSizes, kAdamW));
  options.settings.clip_norm = 2;
  EXPECT_EQ(run_replicas(options), run_replicas(options));
}

}  // namespace
}  // namespace tesser::hub
