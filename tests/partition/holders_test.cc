#include "partition/holders.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::partition {
namespace {

using tdl::Region;
using testing::ElementsAre;

const Region kNothing = {{0, 0}, {0, 0}};

Distances distances(std::vector<int> parts) {
  std::vector<Level> levels;
  for (const int part : parts) levels.push_back({part, ""});
  return Distances(levels);
}

// "1 [0:2, 0:4]" for each piece.
std::vector<std::string> texts(const std::vector<Piece>& pieces) {
  std::vector<std::string> lines;
  for (const Piece& piece : pieces) {
    lines.push_back(std::to_string(piece.worker) + " " + tdl::region_text(piece.region));
  }
  return lines;
}

TEST(Holders, WorkersOfOneInnerGroupAreNearer) {
  const Distances of_six = distances({2, 3});
  EXPECT_EQ(of_six.workers(), 6);
  EXPECT_EQ(of_six.nearness(0, 3), 0);
  EXPECT_EQ(of_six.nearness(0, 2), 1);
  EXPECT_EQ(of_six.nearness(4, 4), 2);
  EXPECT_EQ(distances({}).workers(), 1);
}

TEST(Holders, ARegionIsMadeOfWhatEachOwnerHasOfIt) {
  const std::vector<Region> quarters = {{{0, 3}, {0, 4}}, {{3, 6}, {0, 4}}, {{6, 8}, {0, 4}}, {{8, 10}, {0, 4}}};
  EXPECT_THAT(texts(cover({{2, 9}, {1, 3}}, quarters, 1, distances({4}))),
              ElementsAre("0 [2:3, 1:3]", "1 [3:6, 1:3]", "2 [6:8, 1:3]", "3 [8:9, 1:3]"));
  // The rows of a worker and the halo around them.
  EXPECT_THAT(texts(cover({{5, 9}, {0, 4}}, quarters, 2, distances({4}))),
              ElementsAre("1 [5:6, 0:4]", "2 [6:8, 0:4]", "3 [8:9, 0:4]"));
  EXPECT_TRUE(cover({{5, 5}, {0, 4}}, quarters, 2, distances({4})).empty());
}

TEST(Holders, TheNearestOfEqualCopiesGives) {
  // Rows are cut at the outer level; both workers of a group have the same.
  const std::vector<Region> rows = {{{0, 5}}, {{0, 5}}, {{5, 10}}, {{5, 10}}};
  EXPECT_THAT(texts(cover({{5, 10}}, rows, 3, distances({2, 2}))), ElementsAre("3 [5:10]"));
  // Rows are cut at the inner level: each group has all of them.
  const std::vector<Region> inner = {{{0, 5}}, {{5, 10}}, {{0, 5}}, {{5, 10}}};
  for (const int taker : {2, 3}) {
    EXPECT_THAT(texts(cover({{0, 10}}, inner, taker, distances({2, 2}))), ElementsAre("2 [0:5]", "3 [5:10]"));
  }
}

TEST(Holders, EquallyNearCopiesShareTheWork) {
  // Workers 0 to 3 have a copy each, 4 to 7 nothing.
  std::vector<Region> held(8, Region{{0, 0}});
  for (std::size_t worker = 0; worker < 4; ++worker) held[worker] = {{0, 16}};
  std::set<int> givers;
  for (int taker = 4; taker < 8; ++taker) {
    const std::vector<Piece> pieces = cover({{0, 16}}, held, taker, distances({2, 4}));
    ASSERT_EQ(pieces.size(), 1u);
    givers.insert(pieces[0].worker);
  }
  EXPECT_THAT(givers, ElementsAre(0, 1, 2, 3));
}

TEST(Holders, AScalarIsOneElement) {
  const Region nothing = {{0, 0}};  // as gather() marks a worker without the scalar
  EXPECT_THAT(texts(cover({}, {nothing, {}}, 0, distances({2}))), ElementsAre("1 []"));
}

// Rows cut at the outer level, two owners of each half; four parts to add.
TEST(Holders, OwnersOfALargeSumOfManyPartsAddAShareEach) {
  const std::vector<Level> levels = {{2, ""}, {2, ""}};
  const std::vector<Cut> cuts = {{0, 1}, {}};
  const std::vector<Region> halves = {
      {{0, 90}, {0, 100}}, {{0, 90}, {0, 100}}, {{90, 180}, {0, 100}}, {{90, 180}, {0, 100}}};
  const std::vector<Region> shares = {
      {{0, 90}, {0, 50}}, {{0, 90}, {50, 100}}, {{90, 180}, {0, 50}}, {{90, 180}, {50, 100}}};
  EXPECT_EQ(shares_of(halves, cuts, levels, 4), shares);
  EXPECT_EQ(shares_of(halves, cuts, levels, 2), halves);  // two parts: a share and its exchange move as much
  const std::vector<Region> small = {
      {{0, 10}, {0, 100}}, {{0, 10}, {0, 100}}, {{10, 20}, {0, 100}}, {{10, 20}, {0, 100}}};
  EXPECT_EQ(shares_of(small, cuts, levels, 4), small);
  const std::vector<Cut> all_cut = {{0, 1}, {1, 1}};
  EXPECT_EQ(shares_of(shares, all_cut, levels, 4), shares);  // nobody else owns them
}

TEST(HoldersDeathTest, WhatNobodyHasIsAFault) {
  const std::vector<Region> held = {{{0, 3}, {0, 4}}, kNothing};
  EXPECT_DEATH(cover({{0, 4}, {0, 4}}, held, 1, distances({2})), "cover \\[0:4, 0:4\\] once");
}

}  // namespace
}  // namespace tesser::partition
