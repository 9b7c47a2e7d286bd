#include "runtime/data_order.h"

#include <array>
#include <numeric>
#include <utility>

#include "kernels/philox.h"

namespace tesser::runtime {
namespace {

// The stream's place among those of the random operators, which count from 0.
constexpr std::int64_t kStream = 0xFFFFFFFF;

// 64-bit numbers, two a block of the generator.
class NumberStream {
 public:
  NumberStream(std::int64_t seed, std::int64_t epoch) : seed_(static_cast<std::uint64_t>(seed)), epoch_(epoch) {}

  std::uint64_t next() {
    if (position_ == words_.size()) {
      kernels::philox_words(words_.data(), block_, kBlocks, seed_, epoch_, kStream);
      block_ += kBlocks;
      position_ = 0;
    }
    const std::uint64_t low = words_[position_++];
    return low | (std::uint64_t{words_[position_++]} << 32);
  }

 private:
  static constexpr std::size_t kBlocks = 256;
  std::uint64_t seed_;
  std::int64_t epoch_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4 * kBlocks> words_{};
  std::size_t position_ = words_.size();
};

}  // namespace

std::vector<std::uint32_t> shuffled_order(std::int64_t seed, std::int64_t epoch, std::int64_t samples) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0U);
  NumberStream numbers(seed, epoch);
  for (std::size_t i = order.size(); i-- > 1;) {
    __extension__ using Wide = unsigned __int128;
    const auto j = static_cast<std::size_t>((static_cast<Wide>(numbers.next()) * (i + 1)) >> 64);
    std::swap(order[i], order[j]);
  }
  return order;
}

}  // namespace tesser::runtime
