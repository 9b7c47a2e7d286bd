// What a job asks of a hub: its tensors, how they are updated, and what happens when a worker is lost (docs/hub.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"

namespace tesser::hub {

// kAssign: the weights become the sum of what is given, neither averaged nor clipped: values of one worker for all.
enum class Algorithm : std::uint8_t { kSgd, kAdam, kAssign };

// What a schedule may change from one step to the next; numbers that the algorithm has not are ignored.
struct Hyperparameters {
  double learning_rate = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;

  friend bool operator==(const Hyperparameters&, const Hyperparameters&) = default;
};

// Parameters that are updated alike: a parameter group of torch.optim.
struct ParameterGroup {
  Algorithm algorithm = Algorithm::kSgd;
  bool has_momentum = false;            // SGD: whether there is a momentum buffer
  bool nesterov = false;                // SGD
  bool decoupled_weight_decay = false;  // Adam: AdamW
  bool amsgrad = false;                 // Adam
  bool maximize = false;

  // Tensors of optimizer state beside each parameter: momentum_buffer; exp_avg, exp_avg_sq, max_exp_avg_sq.
  int state_tensors() const;

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

// One parameter tensor.
struct Key {
  std::string name;  // as the model has it; unique
  std::int64_t elements = 0;
  std::int64_t group = 0;
  // Of an embedding, of whose gradient only the rows that a batch touched are given: elements of a row. 0: dense.
  std::int64_t row_elements = 0;
  bool in_norm = true;  // by which gradients are clipped; false where another job counts an equal part

  friend bool operator==(const Key&, const Key&) = default;
};

enum class UpdateTime : std::uint8_t {
  kAtStep,  // once every worker has committed the step: no weight changes while anybody still computes gradients
  kAtOnce,  // a chunk as soon as every worker's gradient of it is there; the caller pushes after a weight's last use
};

enum class OnLoss : std::uint8_t {
  kStop,      // the job fails, and everybody is told whose loss it was
  kContinue,  // with the workers left; averages are over those who contributed
  kWait,      // for the worker's return: it gets the weights and goes on at the step that was not finished
};

struct JobSettings {
  std::int64_t replicas = 1;  // at most kMostReplicas
  // Ranks are divided among racks, each with hubs of its own, in order and evenly.
  std::int64_t racks = 1;
  std::vector<ParameterGroup> groups;
  std::vector<Key> keys;
  bool average = true;   // else the sum of the replicas' gradients
  double clip_norm = 0;  // of the whole gradient, after averaging; 0: none
  // With clipping: how many jobs of this hub, which have the parts of one model, clip by the norm of all their
  // gradients, and which this one is. They name the same group and have the same nonce.
  std::string norm_group;
  std::int64_t norm_jobs = 1;
  std::int64_t norm_job = 0;
  DType wire = DType::kFloat32;  // of gradients as workers give them: float32, bfloat16 or float16
  UpdateTime update_time = UpdateTime::kAtStep;
  OnLoss on_loss = OnLoss::kStop;
  // All workers and hubs are on one machine. With several hubs the weights then are in the first hub's memory, which
  // all map; else each worker has weights of its own. With one hub, workers on its machine share its weights in any
  // case.
  bool one_machine = false;
  // Of float32 weights; a multiple of 64. The paper's 32 KiB are best where adapters receive some while others are
  // added; from one machine's memory, and over TCP, each costs more than that gains (docs/benchmarks.md).
  std::int64_t chunk_bytes = 256 * 1024;

  friend bool operator==(const JobSettings&, const JobSettings&) = default;
};

inline constexpr std::int64_t kMostReplicas = 64;
inline constexpr int kMostStateTensors = 3;  // of an optimizer, beside each parameter
inline constexpr std::int64_t kMostRacks = 16;

// kInvalidInput that names what is wrong.
Result<void> check(const JobSettings& settings);

std::string to_json(const JobSettings& settings);
Result<JobSettings> read_job_settings(const std::string& text);

// What differs, for people: "replicas: 2 here and 4 there"; empty when they are equal.
std::string difference(const JobSettings& here, const JobSettings& there);

}  // namespace tesser::hub
