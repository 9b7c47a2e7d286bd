// A replica's step: its gradients go to a hub, which updates the weights, in place of the program's own updates.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "memory/liveness.h"

namespace tesser::runtime {

// What updates have in common that share all numbers: a parameter group of the hub.
struct UpdateRule {
  bool is_adam = false;  // tesser::adam, else tesser::sgd
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  bool decoupled_weight_decay = false;
  bool amsgrad = false;
  double weight_decay = 0;
  bool maximize = false;
  int schedule = graph::kNone;  // of the learning rate

  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};

struct UpdatedParameter {
  graph::ValueId parameter = graph::kNone;
  std::vector<graph::ValueId> state;  // momentum_buffer; exp_avg, exp_avg_sq, max_exp_avg_sq
  std::size_t rule = 0;
};

struct Updates {
  std::vector<UpdateRule> rules;
  std::vector<UpdatedParameter> parameters;  // in the order of the program's inputs
};

// Takes clipping by the global 2-norm out of a whole step, as the hub clips what it has averaged, and gives the limit;
// 0 where nothing is clipped. kInvalidInput for other clipping, which a hub cannot do.
Result<double> take_clipping(graph::Program& program);

// What the updates of a step without clipping are, or of a worker's part of one. kInvalidInput names what a hub cannot
// do: updates of anything but float32 state that this program has.
Result<Updates> find_updates(const graph::Program& program);

inline constexpr const char* kPushGradient = "tesser::push_gradient";
inline constexpr const char* kWaitForWeights = "tesser::wait_for_weights";
inline constexpr std::size_t kPushedNumber = 2;  // places among their arguments
inline constexpr std::size_t kWaitedNumber = 1;

// Of a prepared program (passes.h), in which updates stand behind every other reader of what they change: puts in place
// of each update
//   tesser::push_gradient(parameter, gradient, int number)
// and before the first node that reads a parameter, or makes the memory in which its gradient lies,
//   tesser::wait_for_weights(parameter, int number).
// `number` counts Updates::parameters. Both exist only between this pass and the kernels.
graph::Program push_gradients(graph::Program program, const Updates& updates);

// Of a program with pushed gradients: storages (memory/liveness.h) that are a gradient's and nothing more, which an
// executor lets lie where the hub reads them; their owners. A gradient that is pushed twice counts once.
std::vector<graph::ValueId> gradient_storages(const graph::Program& program, const memory::Liveness& liveness);

}  // namespace tesser::runtime
