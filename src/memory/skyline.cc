#include "memory/skyline.h"

#include <algorithm>

namespace tesser::memory {

Skyline::Skyline(std::span<const Block> blocks) {
  std::vector<std::int64_t> times;
  times.reserve(2 * blocks.size());
  for (const Block& block : blocks) {
    times.push_back(block.first_node);
    times.push_back(std::int64_t{block.last_node} + 1);
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const auto place = [&](std::int64_t time) {
    return static_cast<std::size_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  ranges_.reserve(blocks.size());
  for (const Block& block : blocks) {
    ranges_.emplace_back(place(block.first_node), place(std::int64_t{block.last_node} + 1));
  }
  times_ = std::max<std::size_t>(times.size(), 1);
  most_.assign(4 * times_, 0);
  whole_.assign(4 * times_, 0);
}

std::int64_t Skyline::highest(std::int32_t block) const {
  const auto [first, last] = ranges_[static_cast<std::size_t>(block)];
  return highest(1, 0, times_, first, last);
}

void Skyline::raise(std::int32_t block, std::int64_t height) {
  const auto [first, last] = ranges_[static_cast<std::size_t>(block)];
  raise(1, 0, times_, first, last, height);
}

std::int64_t Skyline::highest(std::size_t tree, std::size_t begin, std::size_t end, std::size_t first,
                              std::size_t last) const {
  if (last <= begin || end <= first) {
    return 0;
  }
  if (first <= begin && end <= last) {
    return most_[tree];
  }
  const std::size_t middle = begin + (end - begin) / 2;
  return std::max(
      {whole_[tree], highest(2 * tree, begin, middle, first, last), highest(2 * tree + 1, middle, end, first, last)});
}

void Skyline::raise(std::size_t tree, std::size_t begin, std::size_t end, std::size_t first, std::size_t last,
                    std::int64_t height) {
  if (last <= begin || end <= first) {
    return;
  }
  most_[tree] = std::max(most_[tree], height);
  if (first <= begin && end <= last) {
    whole_[tree] = std::max(whole_[tree], height);
    return;
  }
  const std::size_t middle = begin + (end - begin) / 2;
  raise(2 * tree, begin, middle, first, last, height);
  raise(2 * tree + 1, middle, end, first, last, height);
}

}  // namespace tesser::memory
