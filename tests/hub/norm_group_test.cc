#include "hub/norm_group.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Told {
  std::vector<double> totals;
  std::vector<std::string> broken;
};

Result<void> join(NormGroup& group, std::size_t number, std::size_t jobs, Told& told) {
  return group.join(
      number, jobs, [&](double total) { told.totals.push_back(total); },
      [&](const std::string& reason) { told.broken.push_back(reason); });
}

TEST(NormGroupTest, AllAreToldTheTotalOfEachStep) {
  NormGroup group(3);
  std::vector<Told> told(3);
  for (std::size_t job = 0; job < 3; ++job) {
    ASSERT_TRUE(join(group, job, 3, told[job]).has_value());
  }
  group.give(2, 4);
  group.give(0, 1);
  EXPECT_THAT(told[0].totals, IsEmpty());
  group.give(1, 2);
  group.give(0, 10);
  group.give(1, 20);
  group.give(2, 40);
  for (const Told& each : told) {
    EXPECT_THAT(each.totals, ElementsAre(7, 70));
    EXPECT_THAT(each.broken, IsEmpty());
  }
}

TEST(NormGroupTest, NobodyWaitsForAJobThatHasEnded) {
  NormGroup group(2);
  std::vector<Told> told(2);
  ASSERT_TRUE(join(group, 0, 2, told[0]).has_value());
  ASSERT_TRUE(join(group, 1, 2, told[1]).has_value());
  group.give(0, 1);
  group.leave(1);
  EXPECT_THAT(told[0].broken, ElementsAre(HasSubstr("job 1")));
  EXPECT_THAT(told[1].broken, IsEmpty());
  group.give(0, 1);
  EXPECT_EQ(told[0].broken.size(), 2U);
}

TEST(NormGroupTest, AnotherJobOfTheSameNumberOrOfAnotherGroupIsRefused) {
  NormGroup group(2);
  Told told;
  ASSERT_TRUE(join(group, 0, 2, told).has_value());
  EXPECT_FALSE(join(group, 0, 2, told).has_value());
  EXPECT_FALSE(join(group, 1, 3, told).has_value());
  EXPECT_FALSE(join(group, 2, 2, told).has_value());
}

}  // namespace
}  // namespace tesser::hub
