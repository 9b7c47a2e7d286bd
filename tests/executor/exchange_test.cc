#include "runtime/exchange.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::runtime {
namespace {

std::vector<std::pair<std::uint64_t, std::uint64_t>> axes(const Runs& runs) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> list;
  for (const Runs::Axis& axis : runs.axes) list.emplace_back(axis.count, axis.pitch);
  return list;
}

// A transposed view [6, 8] of a row-major [8, 6].
TEST(Exchange, PartsOfATransposedViewAreLongRuns) {
  const layout::Strides strides = {1, 6};
  const Runs columns = runs_of(DType::kFloat32, strides, {0, 2}, {6, 4}, {1, 0});
  EXPECT_EQ(columns.offset, 2 * 6 * 4u);
  EXPECT_EQ(columns.run_bytes, 6 * 4 * 4u);
  EXPECT_TRUE(columns.axes.empty());
  const Runs rows = runs_of(DType::kFloat32, strides, {3, 0}, {3, 8}, {1, 0});
  EXPECT_EQ(rows.offset, 3 * 4u);
  EXPECT_EQ(rows.run_bytes, 3 * 4u);
  EXPECT_EQ(axes(rows), (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{8, 24}}));
  // Row by row it would be single elements.
  EXPECT_EQ(runs_of(DType::kFloat32, strides, {0, 2}, {6, 4}, {}).run_bytes, 4u);
}

TEST(Exchange, ImagesTravelWithChannelsInnermost) {
  const layout::Strides strides = layout::channels_last({2, 8, 4, 4});
  const Runs channels = runs_of(DType::kFloat32, strides, {0, 4, 0, 0}, {2, 4, 4, 4}, {0, 2, 3, 1});
  EXPECT_EQ(channels.offset, 16u);
  EXPECT_EQ(channels.run_bytes, 16u);
  EXPECT_EQ(axes(channels), (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{32, 32}}));
}

}  // namespace
}  // namespace tesser::runtime
