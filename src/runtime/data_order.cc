#include "runtime/data_order.h"

#include <numeric>
#include <utility>

#include "runtime/philox.h"

namespace tesser::runtime {

std::vector<std::uint32_t> shuffled_order(std::int64_t seed, std::int64_t epoch, std::int64_t samples) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0U);
  PhiloxBlock block{};
  std::uint64_t number = 0;
  for (std::size_t i = order.size(); i-- > 1; ++number) {
    if (number % 2 == 0) {
      block = philox_block(seed, static_cast<std::uint32_t>(epoch), kDataOrderStream, number / 2);
    }
    const std::size_t word = 2 * (number % 2);
    const std::uint64_t random = block[word] | (std::uint64_t{block[word + 1]} << 32);
    __extension__ using Wide = unsigned __int128;
    const auto j = static_cast<std::size_t>((static_cast<Wide>(random) * (i + 1)) >> 64);
    std::swap(order[i], order[j]);
  }
  return order;
}

}  // namespace tesser::runtime
