#include "replica_run.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optimizer/update.h"

namespace tesser::hub {
namespace {

std::uint16_t narrow(float value, DType wire) {
  if (wire == DType::kBFloat16) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);  // exact for coarse values
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value == 0) {
    return static_cast<std::uint16_t>(bits >> 16);
  }
  const std::uint32_t exponent = (bits >> 23 & 0xff) - 112;
  return static_cast<std::uint16_t>(bits >> 16 & 0x8000) | static_cast<std::uint16_t>(exponent << 10) |
         static_cast<std::uint16_t>(bits >> 13 & 0x3ff);
}

// Pushes the rows that there are.
Result<void> push_rows(Client& client, const RunOptions& options, std::int64_t rank, std::int64_t key) {
  const Key& which = options.settings.keys[static_cast<std::size_t>(key)];
  std::vector<std::int64_t> rows;
  std::string values;
  for (std::int64_t row = 0; row < which.elements / which.row_elements; ++row) {
    if (!options.has_row(rank, client.step(), row)) {
      continue;
    }
    rows.push_back(row);
    for (std::int64_t i = row * which.row_elements; i < (row + 1) * which.row_elements; ++i) {
      const float value = gradient_value(rank, client.step(), key, i, options.settings.wire != DType::kFloat32);
      const std::uint16_t narrowed = narrow(value, options.settings.wire);
      values += options.settings.wire == DType::kFloat32
                    ? std::string(reinterpret_cast<const char*>(&value), sizeof(value))
                    : std::string(reinterpret_cast<const char*>(&narrowed), sizeof(narrowed));
    }
  }
  return client.push_rows(key, rows, std::as_bytes(std::span(values)));
}

void write_gradient(Client& client, const RunOptions& options, std::int64_t rank, std::int64_t key,
                    std::int64_t later = 0) {
  const DType wire = options.settings.wire;
  const std::span<std::byte> gradient = client.gradient(key);
  const std::int64_t elements = options.settings.keys[static_cast<std::size_t>(key)].elements;
  for (std::int64_t i = 0; i < elements; ++i) {
    const float value = gradient_value(rank, client.step() + later, key, i, wire != DType::kFloat32);
    if (wire == DType::kFloat32) {
      std::memcpy(gradient.data() + i * 4, &value, 4);
    } else {
      const std::uint16_t narrowed = narrow(value, wire);
      std::memcpy(gradient.data() + i * 2, &narrowed, 2);
    }
  }
}

// What comes to nothing.
Result<void> give_and_withdraw(Client& client, const RunOptions& options, std::int64_t rank) {
  std::vector<std::int64_t> withdrawn;
  for (std::int64_t key = 0; key < static_cast<std::int64_t>(options.settings.keys.size()); ++key) {
    if (!options.withdraws(rank, client.step(), key)) {
      continue;
    }
    withdrawn.push_back(key);
    if (key % 4 == 3) {
      TESSER_RETURN_IF_ERROR(client.push_none(key));
    } else if (options.settings.keys[static_cast<std::size_t>(key)].row_elements != 0) {
      TESSER_RETURN_IF_ERROR(push_rows(client, options, rank, key));
    } else {
      write_gradient(client, options, rank, key, 1);
      TESSER_RETURN_IF_ERROR(client.push(key));
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a core may begin to add
  return client.withdraw(withdrawn);
}

}  // namespace

float gradient_value(std::int64_t rank, std::int64_t step, std::int64_t key, std::int64_t element, bool coarse) {
  const std::uint64_t mixed =
      static_cast<std::uint64_t>(rank * 1'000'003 + step * 7919 + key * 104729 + element * 31) * 0x9e3779b97f4a7c15ULL;
  if (coarse) {
    return static_cast<float>(static_cast<std::int64_t>(mixed >> 60) - 8) / 16;  // 4 bits
  }
  return static_cast<float>(static_cast<std::int64_t>(mixed >> 40) - (1 << 23)) * 0x1p-24F;
}

float initial_value(std::int64_t key, std::int64_t element) { return gradient_value(99, 99, key, element, false); }

JobSettings settings_for(std::int64_t replicas, const std::vector<std::int64_t>& sizes, ParameterGroup group) {
  JobSettings settings;
  settings.replicas = replicas;
  settings.groups = {group};
  settings.chunk_bytes = 32 * 1024;  // several of most tensors
  for (std::size_t key = 0; key < sizes.size(); ++key) {
    settings.keys.push_back({"tensor" + std::to_string(key), sizes[key], 0});
  }
  return settings;
}

std::vector<std::unique_ptr<Hub>> open_hubs(int hubs, int cores, bool through_network) {
  std::vector<std::unique_ptr<Hub>> opened;
  for (int hub = 0; hub < hubs; ++hub) {
    HubOptions options;
    options.processors = cores == 1 ? "0" : "0-" + std::to_string(cores - 1);
    options.through_network = through_network;
    auto outcome = Hub::open(options);
    if (!outcome) {
      throw std::runtime_error(outcome.error().message);
    }
    opened.push_back(std::move(*outcome));
  }
  return opened;
}

ClientOptions worker_options(const std::vector<std::unique_ptr<Hub>>& hubs, const JobSettings& settings,
                             std::int64_t rank) {
  ClientOptions options;
  for (const auto& hub : hubs) {
    options.hubs.push_back(hub->url());
  }
  options.job = "job";
  options.nonce = kNonce;
  options.rank = rank;
  options.settings = settings;
  options.patience = std::chrono::seconds(30);
  return options;
}

Result<void> take_step(Client& client, const RunOptions& options, std::int64_t rank) {
  const std::int64_t step = client.step();
  std::vector<Hyperparameters> numbers;
  for (std::size_t group = 0; group < options.settings.groups.size(); ++group) {
    numbers.push_back(options.numbers(step, group));
  }
  const bool at_once = options.settings.update_time == UpdateTime::kAtOnce;
  const auto has_gradient = [&](std::int64_t key) {
    return !options.has_gradient || options.has_gradient(rank, step, key);
  };
  if (at_once) {
    for (std::size_t key = 0; key < options.settings.keys.size(); ++key) {
      TESSER_RETURN_IF_ERROR(client.wait(static_cast<std::int64_t>(key)));
      // Numbers of the gradient are those of the step before the commit.
      write_gradient(client, options, rank, static_cast<std::int64_t>(key));
    }
    TESSER_RETURN_IF_ERROR(client.commit(numbers));
  }
  for (int time = 0; options.withdraws && time < 3; ++time) {
    TESSER_RETURN_IF_ERROR(give_and_withdraw(client, options, rank));
  }
  for (auto key = static_cast<std::int64_t>(options.settings.keys.size()) - 1; key >= 0; --key) {
    if (!has_gradient(key)) {
      TESSER_RETURN_IF_ERROR(client.push_none(key));
      continue;
    }
    if (options.settings.keys[static_cast<std::size_t>(key)].row_elements != 0) {
      TESSER_RETURN_IF_ERROR(push_rows(client, options, rank, key));
      continue;
    }
    if (!at_once) {
      write_gradient(client, options, rank, key);
    }
    TESSER_RETURN_IF_ERROR(client.push(key));
  }
  if (!at_once) {
    TESSER_RETURN_IF_ERROR(client.commit(numbers));
    TESSER_RETURN_IF_ERROR(client.wait_all());
  }
  return {};
}

std::vector<Tensors> run_replicas(const RunOptions& options) {
  return run_replicas(options, open_hubs(options.hubs, options.cores, options.through_network), "job");
}

std::vector<Tensors> run_replicas(const RunOptions& options, const std::vector<std::unique_ptr<Hub>>& hubs,
                                  const std::string& job) {
  std::vector<Tensors> seen(static_cast<std::size_t>(options.settings.replicas));
  std::vector<std::thread> workers;
  for (std::int64_t rank = 0; rank < options.settings.replicas; ++rank) {
    workers.emplace_back([&, rank] {
      ClientOptions worker = worker_options(hubs, options.settings, rank);
      worker.through_network = options.through_network;
      worker.job = job;
      auto client = Client::join(std::move(worker));
      ASSERT_TRUE(client.has_value()) << client.error().message;
      if (const char* path = std::getenv("TESSER_HUB_TEST_PATH"); path != nullptr && options.through_network) {
        for (const std::string& each : (*client)->paths()) {
          EXPECT_THAT(each, ::testing::HasSubstr(path));
        }
      }
      for (std::size_t key = 0; key < options.settings.keys.size(); ++key) {
        std::vector<float> initial;
        for (std::int64_t i = 0; i < options.settings.keys[key].elements; ++i) {
          initial.push_back(initial_value(static_cast<std::int64_t>(key), i));
        }
        (*client)->set_initial(static_cast<std::int64_t>(key), initial);
      }
      const auto started = (*client)->start();
      ASSERT_TRUE(started.has_value()) << started.error().message;
      for (int step = 0; step < options.steps; ++step) {
        const auto outcome = take_step(**client, options, rank);
        ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
      }
      const auto outcome = (*client)->wait_all();
      ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
      for (std::size_t key = 0; key < options.settings.keys.size(); ++key) {
        const auto weights = (*client)->weights(static_cast<std::int64_t>(key));
        seen[static_cast<std::size_t>(rank)].emplace_back(weights.begin(), weights.end());
      }
      const auto left = (*client)->leave();
      EXPECT_TRUE(left.has_value()) << left.error().message;
    });
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  return seen;
}

Tensors run_alone(const RunOptions& options) {
  const JobSettings& settings = options.settings;
  const bool coarse = settings.wire != DType::kFloat32;
  Tensors weights;
  std::vector<std::array<std::vector<float>, 3>> states(settings.keys.size());
  std::vector<std::int64_t> updates(settings.keys.size());
  for (std::size_t key = 0; key < settings.keys.size(); ++key) {
    weights.emplace_back();
    for (std::int64_t i = 0; i < settings.keys[key].elements; ++i) {
      weights.back().push_back(options.zero_weights ? 0.0F : initial_value(static_cast<std::int64_t>(key), i));
    }
    for (auto& state : states[key]) {
      state.resize(weights.back().size());
    }
  }
  for (std::int64_t step = 0; step < options.steps; ++step) {
    Tensors sums(settings.keys.size());
    double squares = 0;
    for (std::size_t key = 0; key < settings.keys.size(); ++key) {
      for (std::int64_t rank = 0; rank < settings.replicas; ++rank) {
        if (options.has_gradient && !options.has_gradient(rank, step, static_cast<std::int64_t>(key))) {
          continue;
        }
        const bool first = sums[key].empty();
        sums[key].resize(weights[key].size());
        for (std::size_t i = 0; i < sums[key].size(); ++i) {
          const std::int64_t row = settings.keys[key].row_elements;
          const bool is_there = row == 0 || options.has_row(rank, step, static_cast<std::int64_t>(i) / row);
          const float value = is_there ? gradient_value(rank, step, static_cast<std::int64_t>(key),
                                                        static_cast<std::int64_t>(i), coarse)
                                       : 0.0F;
          sums[key][i] = first ? value : sums[key][i] + value;
        }
      }
      const auto group = static_cast<std::size_t>(settings.keys[key].group);
      for (const float each :
           settings.groups[group].algorithm == Algorithm::kAssign ? std::vector<float>() : sums[key]) {
        squares += static_cast<double>(each) * each;
      }
    }
    const double average = settings.average ? 1.0 / static_cast<double>(settings.replicas) : 1.0;
    double factor = 1;
    if (settings.clip_norm > 0) {
      factor = std::min(1.0, settings.clip_norm / (std::sqrt(squares) * average + 1e-6));
    }
    const auto scale = static_cast<float>(average * factor);
    for (std::size_t key = 0; key < settings.keys.size(); ++key) {
      if (sums[key].empty()) {
        continue;
      }
      const auto group_number = static_cast<std::size_t>(settings.keys[key].group);
      const ParameterGroup& group = settings.groups[group_number];
      const Hyperparameters numbers = options.numbers(step, group_number);
      const std::int64_t elements = settings.keys[key].elements;
      if (group.algorithm == Algorithm::kAssign) {
        weights[key] = sums[key];
      } else if (group.algorithm == Algorithm::kSgd) {
        optimizer::sgd_update(
            weights[key].data(), sums[key].data(), group.has_momentum ? states[key][0].data() : nullptr, 0, elements,
            {numbers.momentum, numbers.dampening, numbers.weight_decay, group.nesterov, group.maximize},
            numbers.learning_rate, updates[key], scale);
      } else {
        optimizer::adam_update(weights[key].data(), sums[key].data(), states[key][0].data(), states[key][1].data(),
                               group.amsgrad ? states[key][2].data() : nullptr, 0, elements,
                               {numbers.beta1, numbers.beta2, numbers.eps, numbers.weight_decay,
                                group.decoupled_weight_decay, group.maximize},
                               numbers.learning_rate, updates[key], scale);
      }
      ++updates[key];
    }
  }
  return weights;
}

}  // namespace tesser::hub
