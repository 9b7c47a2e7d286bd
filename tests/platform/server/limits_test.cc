#include "platform/server/limits.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;

TEST(RateLimitsTest, SavesUpForTwoSecondsAndSaysHowLongToWait) {
  RateLimits limits;
  const RateLimits::Clock::time_point begin{std::chrono::hours(1)};
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(limits.take("ann", 10, begin)) << i;
  }
  const auto wait = limits.take("ann", 10, begin);
  ASSERT_TRUE(wait);
  EXPECT_EQ(*wait, milliseconds(100));
  EXPECT_FALSE(limits.take("bob", 10, begin));
  EXPECT_TRUE(limits.take("ann", 10, begin + milliseconds(99)));
  EXPECT_FALSE(limits.take("ann", 10, begin + milliseconds(250)));
  EXPECT_FALSE(limits.take("ann", 10, begin + milliseconds(250)));
  EXPECT_TRUE(limits.take("ann", 10, begin + milliseconds(250)));
  // Who rested for long has no more than those of two seconds.
  int taken = 0;
  while (!limits.take("ann", 10, begin + std::chrono::hours(1))) {
    ++taken;
  }
  EXPECT_EQ(taken, 20);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(limits.take("free", 0, begin));
  }
}

TEST(RateLimitsTest, ForgetsThoseThatSayNothing) {
  RateLimits limits;
  const RateLimits::Clock::time_point begin{std::chrono::hours(1)};
  while (!limits.take("kept", 10, begin + milliseconds(2500))) {
  }
  for (int i = 0; i < 30'000; ++i) {
    EXPECT_FALSE(limits.take("address " + std::to_string(i), 10, begin + milliseconds(i / 10)));
  }
  EXPECT_TRUE(limits.take("kept", 10, begin + milliseconds(2500)));
}

TEST(RequestPlacesTest, AreTheUsersAndEverybodys) {
  RequestPlaces places(5);
  std::vector<std::shared_ptr<const void>> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(places.take("ann", 3));
    EXPECT_NE(held.back(), nullptr);
  }
  EXPECT_EQ(places.take("ann", 3), nullptr);
  held.push_back(places.take("admin", 0));
  held.push_back(places.take("admin", 0));
  EXPECT_EQ(places.take("bob", 3), nullptr);  // all are taken
  held.erase(held.begin());
  EXPECT_NE(places.take("bob", 3), nullptr);
  held.clear();
  for (int i = 0; i < 5; ++i) {
    held.push_back(places.take("user " + std::to_string(i), 1));
    EXPECT_NE(held.back(), nullptr);
  }
}

}  // namespace
}  // namespace tesser::platform
