#include "tdl/region.h"

#include <gtest/gtest.h>

namespace tesser::tdl {
namespace {

TEST(Region, CountsElementsAndTellsShapes) {
  EXPECT_EQ(volume({}), 1);
  EXPECT_EQ(volume({{2, 5}, {0, 4}}), 12);
  EXPECT_EQ(volume({{2, 5}, {4, 4}}), 0);
  EXPECT_EQ(volume({{5, 2}, {0, 4}}), 0);
  EXPECT_EQ(whole({3, 2}), (Region{{0, 3}, {0, 2}}));
  EXPECT_EQ(shape_of({{2, 5}, {3, 3}}), (Shape{3, 0}));
  EXPECT_EQ(region_text({{-1, 4}, {8, 16}}), "[-1:4, 8:16]");
  EXPECT_EQ(region_text({}), "[]");
  EXPECT_EQ(shifted({{0, 4}, {8, 16}}, {2, -8}), (Region{{2, 6}, {0, 8}}));
}

TEST(Region, IntersectsAndContains) {
  EXPECT_EQ(intersection({{0, 4}, {2, 9}}, {{3, 8}, {-1, 5}}), (Region{{3, 4}, {2, 5}}));
  EXPECT_EQ(volume(intersection({{0, 4}}, {{6, 8}})), 0);
  EXPECT_TRUE(contains({{0, 4}}, {{1, 4}}));
  EXPECT_FALSE(contains({{0, 4}}, {{1, 5}}));
  EXPECT_TRUE(contains({{0, 4}, {0, 1}}, {{7, 9}, {3, 3}})) << "nothing is everywhere";
}

TEST(Region, PartsAreEvenLargestFirstAndCoverTheWhole) {
  EXPECT_EQ(part_of({0, 10}, 4, 0), (Interval{0, 3}));
  EXPECT_EQ(part_of({0, 10}, 4, 1), (Interval{3, 6}));
  EXPECT_EQ(part_of({0, 10}, 4, 3), (Interval{8, 10}));
  EXPECT_TRUE(part_of({0, 2}, 4, 3).empty());
  EXPECT_EQ(part_of({5, 15}, 2, 1, 4), (Interval{13, 15})) << "blocks of four, the last one short";
  for (const std::int64_t parts : {1, 2, 3, 5, 8}) {
    for (const std::int64_t granularity : {1, 2, 3, 7}) {
      std::int64_t at = 3;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Interval interval = part_of({3, 16}, parts, part, granularity);
        EXPECT_EQ(interval.begin, at);
        EXPECT_GE(interval.end, interval.begin);
        at = interval.end;
      }
      EXPECT_EQ(at, 16);
    }
  }
}

}  // namespace
}  // namespace tesser::tdl
