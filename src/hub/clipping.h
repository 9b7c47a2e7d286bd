// Clipping by the norm of the whole gradient: the cores of a job sum their chunks, and once the last has, the norm is
// known to all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tesser::hub {

// The total of the squares is that of chunks in their order, whoever summed them.
class Clipping {
 public:
  // `chunks`: of the job, at this hub or another. `cores`: of this hub.
  Clipping(std::size_t chunks, int cores) : squares_(chunks), cores_(cores) {}

  // The core that owns the chunk, before its core_done().
  void set_squares(std::uint32_t chunk, double squares) { squares_[chunk] = squares; }
  // A core has summed all of its chunks of the step. Of the last one `total` is called with the squares of this hub's
  // chunks; what it returns, or what is given to publish() later, is the total of all hubs.
  void core_done(std::int64_t step, const std::function<void(double)>& total) {
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == cores_) {
      done_.store(0, std::memory_order_relaxed);
      double sum = 0;
      for (double& squares : squares_) {
        sum += squares;
      }
      step_summed_ = step;
      total(sum);
    }
  }
  void publish(double total) {
    total_ = total;
    published_.store(step_summed_ + 1, std::memory_order_release);
  }
  // Whether the total of that step is known.
  bool is_known(std::int64_t step) const { return published_.load(std::memory_order_acquire) > step; }
  double total() const { return total_; }

 private:
  std::vector<double> squares_;  // by chunk; a chunk of another hub stays 0
  const int cores_;
  std::atomic<int> done_{0};
  std::int64_t step_summed_ = 0;
  double total_ = 0;
  std::atomic<std::int64_t> published_{0};
};

}  // namespace tesser::hub
