#include "transport/strided.h"

#include <gtest/gtest.h>

namespace tesser::transport {
namespace {

TEST(Strided, AWholeTensorIsOneRun) {
  const Strided whole = rectangle(8, DType::kFloat32, {2, 3, 4}, {0, 0, 0}, {2, 3, 4});
  EXPECT_TRUE(whole.axes.empty());
  EXPECT_EQ(whole.offset, 8U);
  EXPECT_EQ(whole.bytes(), 96U);
}

TEST(Strided, WholeInnerAxesJoinTheRun) {
  const Strided rows = rectangle(0, DType::kFloat32, {5, 3, 4}, {1, 0, 0}, {2, 3, 4});
  EXPECT_TRUE(rows.axes.empty());
  EXPECT_EQ(rows.offset, 48U);
  EXPECT_EQ(rows.run_bytes, 96U);
  const Strided columns = rectangle(0, DType::kFloat32, {5, 3, 4}, {0, 1, 0}, {5, 1, 4});
  EXPECT_EQ(columns.run_bytes, 16U);
  ASSERT_EQ(columns.axes.size(), 1U);
  EXPECT_EQ(columns.axes[0].count, 5U);
  EXPECT_EQ(columns.axes[0].pitch, 48U);
}

// Each byte of a rectangle, element by element, against the walk.
TEST(Strided, RunPairsVisitEveryElementInRowMajorOrder) {
  const Shape first{4, 5, 6, 3};
  const Shape second{7, 4, 9, 5};
  const Shape extent{3, 2, 6, 2};
  const Shape begin_first{1, 2, 0, 1};
  const Shape begin_second{0, 1, 2, 3};
  const Strided a = rectangle(10, DType::kInt16, first, begin_first, extent);
  const Strided b = rectangle(20, DType::kInt16, second, begin_second, extent);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> walked;
  RunPairs runs(a, b);
  while (const auto run = runs.next()) {
    for (std::uint64_t i = 0; i < run->bytes; i += 2) {
      walked.emplace_back(run->first + i, run->second + i);
    }
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> expected;
  const auto place = [](const Shape& shape, const Shape& begin, std::int64_t i, std::int64_t j, std::int64_t k,
                        std::int64_t l) {
    return 2 * (((((begin[0] + i) * shape[1]) + begin[1] + j) * shape[2] + begin[2] + k) * shape[3] + begin[3] + l);
  };
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 2; ++j) {
      for (int k = 0; k < 6; ++k) {
        for (int l = 0; l < 2; ++l) {
          expected.emplace_back(10 + place(first, begin_first, i, j, k, l),
                                20 + place(second, begin_second, i, j, k, l));
        }
      }
    }
  }
  EXPECT_EQ(walked, expected);
}

TEST(Strided, EmptyRectanglesHaveNoBytes) {
  const Strided empty = rectangle(0, DType::kFloat32, {4, 4}, {0, 4}, {4, 0});
  EXPECT_EQ(empty.bytes(), 0U);
  RunPairs runs(empty, Strided::contiguous(0, 0));
  EXPECT_FALSE(runs.next());
}

TEST(Strided, HostileLayoutsAreRefused) {
  EXPECT_FALSE((Strided{~0ULL, 1, {}}).checked_end());
  EXPECT_FALSE((Strided{0, ~0ULL, {}}).checked_end());
  EXPECT_FALSE((Strided{0, 1, {{0, 1}}}).checked_end());
  EXPECT_FALSE((Strided{0, 1, {{1ULL << 32, 1ULL << 32}}}).checked_end());
  EXPECT_FALSE((Strided{0, 1ULL << 40, {{1ULL << 40, 0}}}).checked_end());
  EXPECT_FALSE((Strided{0, 1, std::vector<Strided::Axis>(9, {1, 1})}).checked_end());
  EXPECT_EQ((Strided{4, 2, {{3, 10}, {2, 4}}}).checked_end(), 4U + 2 + 20 + 4);
}

TEST(StridedDeathTest, ARectangleMustLieInItsTensor) {
  EXPECT_DEATH(rectangle(0, DType::kFloat32, {4, 4}, {0, 2}, {4, 3}), "in \\[4, 4\\]");
}

}  // namespace
}  // namespace tesser::transport
