// Replicas that exchange made-up gradients through hubs of this process, and what one process would compute.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hub/client.h"
#include "hub/hub.h"

namespace tesser::hub {

inline constexpr const char* kNonce = "0123456789abcdef";

struct RunOptions {
  JobSettings settings;
  int hubs = 1;
  int cores = 2;  // of each hub
  int steps = 4;
  bool through_network = false;
  // Numbers of a step, for every group.
  std::function<Hyperparameters(std::int64_t step, std::size_t group)> numbers;
  bool zero_weights = false;  // to begin with, instead of initial_value()
  // Whether a rank has a gradient of a tensor in a step.
  std::function<bool(std::int64_t rank, std::int64_t step, std::int64_t key)> has_gradient;
  // Whether a rank first gives another step's gradient of a tensor, or none, and withdraws it.
  std::function<bool(std::int64_t rank, std::int64_t step, std::int64_t key)> withdraws;
  // Of tensors given by rows: whether a rank's gradient has a row; of others it is zeros.
  std::function<bool(std::int64_t rank, std::int64_t step, std::int64_t row)> has_row;
};

// By key.
using Tensors = std::vector<std::vector<float>>;

// An element of a rank's gradient; a value that bfloat16 and float16 hold exactly where `coarse`.
float gradient_value(std::int64_t rank, std::int64_t step, std::int64_t key, std::int64_t element, bool coarse);
float initial_value(std::int64_t key, std::int64_t element);

// Settings with tensors of these sizes, all of group 0.
JobSettings settings_for(std::int64_t replicas, const std::vector<std::int64_t>& sizes, ParameterGroup group = {});

// Weights after the steps as each rank sees them; a failure of any is a failure of the test.
std::vector<Tensors> run_replicas(const RunOptions& options);
// The same through hubs that run, as a job of that name.
std::vector<Tensors> run_replicas(const RunOptions& options, const std::vector<std::unique_ptr<Hub>>& hubs,
                                  const std::string& job);
// Of one process that adds the replicas' gradients in their order.
Tensors run_alone(const RunOptions& options);

std::vector<std::unique_ptr<Hub>> open_hubs(int hubs, int cores, bool through_network = false);
// Options of one worker.
ClientOptions worker_options(const std::vector<std::unique_ptr<Hub>>& hubs, const JobSettings& settings,
                             std::int64_t rank);
// Writes the gradient of a step, pushes it and commits.
Result<void> take_step(Client& client, const RunOptions& options, std::int64_t rank);

}  // namespace tesser::hub
