// What the systems of ./x bench hub have in common: the tensors and their values, the processes, and how exchanges are
// counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <pthread.h>

#include "base/result.h"

namespace tesser::bench {

enum class Optimizer : std::uint8_t { kSgd, kAdam };  // SGD with momentum

inline constexpr double kLearningRate = 1e-4;
inline constexpr double kMomentum = 0.9;
inline constexpr double kBeta1 = 0.9;
inline constexpr double kBeta2 = 0.999;
inline constexpr double kEps = 1e-8;

// What one run of the program measures.
struct Exchange {
  Optimizer optimizer = Optimizer::kSgd;
  int workers = 0;
  std::int64_t chunk_bytes = 0;  // of tesser's systems
  bool huge_pages = true;        // likewise: where the system has them
  std::chrono::milliseconds time{};
  std::vector<std::int64_t> elements;  // of each tensor

  int state_tensors() const { return optimizer == Optimizer::kSgd ? 1 : 2; }
};

// Gradients are the same in every exchange, and another for each worker and element of a tensor. Weights begin at 0.
float gradient_value(int worker, std::int64_t element);
// Weight after so many exchanges, computed in double.
double expected_weight(const Exchange& exchange, std::int64_t element, std::int64_t exchanges);

// What the processes share.
struct Meeting {
  static constexpr int kMostWorkers = 64;

  pthread_barrier_t barrier;          // of the workers
  std::atomic<std::int64_t> next{0};  // exchanges until the leader's next decision; 0: the end
  char addresses[kMostWorkers][256] = {};

  void meet() { pthread_barrier_wait(&barrier); }
};

// One worker's side of a system.
class Worker {
 public:
  virtual ~Worker() = default;
  // Gives the gradients of all tensors away and has the new weights of all when it returns.
  virtual Result<void> exchange() = 0;
  virtual float weight(std::size_t tensor, std::int64_t element) const = 0;
};

// Makes a worker in its process; the meeting is there for what the workers must agree on before.
using OpenWorker = std::function<Result<std::unique_ptr<Worker>>(int rank, Meeting& meeting)>;
// The body of the server's process: calls `ready` once workers may come, and serves until `is_over` returns, which
// blocks until the workers have ended.
using Serve = std::function<Result<void>(Meeting& meeting, const std::function<void()>& ready,
                                         const std::function<void()>& is_over)>;

// Runs the server, unless it is null, and the workers in processes of their own, lets them exchange for the time, after
// warming up, verifies the weights, and prints {"seconds": [...]}: the time an exchange took in each batch of
// exchanges. A batch lasts some tens of milliseconds, or one exchange. Returns the exit code. Call it before any thread
// starts.
int measure(const Exchange& exchange, const Serve& serve, const OpenWorker& open);

}  // namespace tesser::bench
