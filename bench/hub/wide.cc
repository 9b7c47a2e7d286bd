#include "hub/wide.h"

#include <algorithm>
#include <barrier>
#include <climits>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "optimizer/update.h"

namespace tesser::bench {
namespace {

// A count that processes wait for.
struct SharedCount {
  std::atomic<std::uint32_t> value{0};
  std::atomic<std::uint32_t> sleepers{0};

  void add() {
    value.fetch_add(1);
    if (sleepers.load() != 0) {
      ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }
  // Counts may wrap around.
  bool has_reached(std::uint32_t target) const { return static_cast<std::int32_t>(value.load() - target) >= 0; }
  void wait_for(std::uint32_t target) {
    while (!has_reached(target)) {
      ++sleepers;
      const std::uint32_t seen = value.load();
      if (static_cast<std::int32_t>(seen - target) < 0) {
        ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, nullptr, nullptr, 0);
      }
      --sleepers;
    }
  }
};

struct Key {
  SharedCount arrived;  // workers' gradients, of all exchanges
  SharedCount updated;  // exchanges
};

// Shared by all processes: a receive buffer for each worker, and the weights.
struct ServerMemory {
  Key* keys = nullptr;
  std::vector<float*> received;
  float* weights = nullptr;
  std::vector<std::int64_t> begin;  // of each key
  std::int64_t elements = 0;        // of all
};

Result<void*> shared_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return failed("no shared memory for the wide server");
  }
  return memory;
}

Result<ServerMemory> allocate(const Exchange& exchange) {
  ServerMemory memory;
  for (const std::int64_t elements : exchange.elements) {
    memory.begin.push_back(memory.elements);
    memory.elements += (elements + 15) / 16 * 16;
  }
  const std::size_t bytes = static_cast<std::size_t>(memory.elements) * sizeof(float);
  TESSER_ASSIGN_OR_RETURN(void* keys, shared_memory(exchange.elements.size() * sizeof(Key)));
  memory.keys = static_cast<Key*>(keys);  // zeros are counts of 0
  for (int worker = 0; worker < exchange.workers; ++worker) {
    TESSER_ASSIGN_OR_RETURN(void* received, shared_memory(bytes));
    memory.received.push_back(static_cast<float*>(received));
  }
  TESSER_ASSIGN_OR_RETURN(void* weights, shared_memory(bytes));
  memory.weights = static_cast<float*>(weights);
  return memory;
}

__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) void add(float* sum, const float* values,
                                                                                      std::int64_t elements) {
  for (std::int64_t index = 0; index < elements; ++index) {
    sum[index] += values[index];
  }
}

// All threads of the server, one key after the other.
class Server {
 public:
  Server(const Exchange& exchange, ServerMemory& memory, int threads)
      : exchange_(exchange),
        memory_(memory),
        threads_(threads),
        barrier_(threads),
        sum_(static_cast<std::size_t>(memory.elements)),
        first_(static_cast<std::size_t>(memory.elements)),
        second_(exchange.optimizer == Optimizer::kAdam ? static_cast<std::size_t>(memory.elements) : 0) {}

  [[noreturn]] void run(int thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(thread, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);  // where it is refused the thread runs anywhere
    for (std::uint32_t step = 0;; ++step) {
      for (std::size_t key = 0; key < exchange_.elements.size(); ++key) {
        serve(thread, key, step);
      }
    }
  }

 private:
  void serve(int thread, std::size_t key, std::uint32_t step) {
    if (thread == 0) {
      memory_.keys[key].arrived.wait_for((step + 1) * static_cast<std::uint32_t>(exchange_.workers));
    }
    barrier_.arrive_and_wait();
    const std::int64_t elements = exchange_.elements[key];
    const std::int64_t begin = memory_.begin[key] + elements * thread / threads_;
    const std::int64_t end = memory_.begin[key] + elements * (thread + 1) / threads_;
    std::memcpy(sum_.data() + begin, memory_.received[0] + begin,
                static_cast<std::size_t>(end - begin) * sizeof(float));
    for (std::size_t worker = 1; worker < memory_.received.size(); ++worker) {
      barrier_.arrive_and_wait();
      add(sum_.data() + begin, memory_.received[worker] + begin, end - begin);
    }
    barrier_.arrive_and_wait();
    update(begin, end, step);
    barrier_.arrive_and_wait();
    if (thread == 0) {
      memory_.keys[key].updated.add();
    }
  }

  void update(std::int64_t begin, std::int64_t end, std::uint32_t step) {
    const auto scale = static_cast<float>(1.0 / exchange_.workers);
    if (exchange_.optimizer == Optimizer::kSgd) {
      optimizer::sgd_update(memory_.weights, sum_.data(), first_.data(), begin, end, {.momentum = kMomentum},
                            kLearningRate, step, scale);
    } else {
      optimizer::adam_update(memory_.weights, sum_.data(), first_.data(), second_.data(), nullptr, begin, end,
                             {.beta1 = kBeta1, .beta2 = kBeta2, .eps = kEps}, kLearningRate, step, scale);
    }
  }

  const Exchange& exchange_;
  ServerMemory& memory_;
  const int threads_;
  std::barrier<> barrier_;
  std::vector<float> sum_;
  std::vector<float> first_;
  std::vector<float> second_;
};

class WideWorker final : public Worker {
 public:
  WideWorker(const Exchange& exchange, ServerMemory& memory, int rank)
      : exchange_(exchange),
        memory_(memory),
        received_(memory.received[static_cast<std::size_t>(rank)]),
        gradients_(static_cast<std::size_t>(memory.elements)),
        weights_(static_cast<std::size_t>(memory.elements)) {
    for (std::size_t key = 0; key < exchange.elements.size(); ++key) {
      for (std::int64_t element = 0; element < exchange.elements[key]; ++element) {
        gradients_[static_cast<std::size_t>(memory.begin[key] + element)] = gradient_value(rank, element);
      }
    }
  }

  Result<void> exchange() override {
    for (std::size_t key = 0; key < exchange_.elements.size(); ++key) {
      std::memcpy(received_ + memory_.begin[key], gradients_.data() + memory_.begin[key], bytes(key));
      memory_.keys[key].arrived.add();
    }
    ++done_;
    for (std::size_t key = 0; key < exchange_.elements.size(); ++key) {
      memory_.keys[key].updated.wait_for(done_);
      std::memcpy(weights_.data() + memory_.begin[key], memory_.weights + memory_.begin[key], bytes(key));
    }
    return {};
  }

  float weight(std::size_t tensor, std::int64_t element) const override {
    return weights_[static_cast<std::size_t>(memory_.begin[tensor] + element)];
  }

 private:
  std::size_t bytes(std::size_t key) const { return static_cast<std::size_t>(exchange_.elements[key]) * sizeof(float); }

  const Exchange& exchange_;
  ServerMemory& memory_;
  float* const received_;
  std::vector<float> gradients_;
  std::vector<float> weights_;
  std::uint32_t done_ = 0;
};

}  // namespace

int measure_wide(const Exchange& exchange) {
  Result<ServerMemory> memory = allocate(exchange);
  if (!memory) {
    std::fprintf(stderr, "%s\n", memory.error().message.c_str());
    return 1;
  }
  const Serve serve = [&](Meeting&, const std::function<void()>& ready,
                          const std::function<void()>& is_over) -> Result<void> {
    const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    Server server(exchange, *memory, threads);
    for (int thread = 0; thread < threads; ++thread) {
      std::thread([&server, thread] { server.run(thread); }).detach();
    }
    ready();
    is_over();
    ::_exit(0);  // its threads wait for gradients that do not come
  };
  return measure(exchange, serve, [&](int rank, Meeting&) -> Result<std::unique_ptr<Worker>> {
    return std::make_unique<WideWorker>(exchange, *memory, rank);
  });
}

}  // namespace tesser::bench
