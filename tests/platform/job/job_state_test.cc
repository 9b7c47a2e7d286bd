#include "platform/job/job_state.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

std::vector<JobState> all_states() {
  std::vector<JobState> states;
  for (int i = 0; i <= static_cast<int>(JobState::kResumed); ++i) {
    states.push_back(static_cast<JobState>(i));
  }
  return states;
}

TEST(JobState, NamesReadBack) {
  for (const JobState state : all_states()) {
    EXPECT_EQ(job_state_named(name_of(state)), state);
  }
  EXPECT_EQ(job_state_named("RUNNING"), std::nullopt);
  for (const Wanted wanted : {Wanted::kRun, Wanted::kHalt, Wanted::kDelete, Wanted::kYield}) {
    EXPECT_EQ(wanted_named(name_of(wanted)), wanted);
  }
}

TEST(JobState, NothingLeavesAFinalState) {
  for (const JobState to : all_states()) {
    EXPECT_FALSE(may_follow(JobState::kCompleted, to)) << name_of(to);
    EXPECT_FALSE(may_follow(JobState::kFailed, to)) << name_of(to);
  }
}

TEST(JobState, EveryStateThatIsNotFinalMayFailAndNoneFollowsItself) {
  for (const JobState from : all_states()) {
    EXPECT_FALSE(may_follow(from, from)) << name_of(from);
    EXPECT_EQ(may_follow(from, JobState::kFailed), !is_final(from)) << name_of(from);
    EXPECT_EQ(may_follow(from, JobState::kHalted), !is_final(from) && from != JobState::kHalted) << name_of(from);
  }
}

TEST(JobState, AJobGoesThroughAllStagesAndSkipsNone) {
  const std::vector<JobState> way = {JobState::kQueued,      JobState::kPending,    JobState::kDeploying,
                                     JobState::kDownloading, JobState::kProcessing, JobState::kStoring,
                                     JobState::kCompleted};
  for (std::size_t i = 0; i + 1 < way.size(); ++i) {
    EXPECT_TRUE(may_follow(way[i], way[i + 1])) << name_of(way[i]);
    for (std::size_t j = i + 2; j < way.size(); ++j) {
      EXPECT_FALSE(may_follow(way[i], way[j])) << name_of(way[i]) << " to " << name_of(way[j]);
    }
  }
  EXPECT_TRUE(may_follow(JobState::kProcessing, JobState::kDeploying));
  for (const JobState holding :
       {JobState::kPending, JobState::kDeploying, JobState::kDownloading, JobState::kProcessing}) {
    EXPECT_TRUE(may_follow(holding, JobState::kQueued)) << name_of(holding);  // its places are gone, or needed
  }
  EXPECT_TRUE(may_follow(JobState::kHalted, JobState::kResumed));
  EXPECT_TRUE(may_follow(JobState::kResumed, JobState::kPending));
  EXPECT_FALSE(may_follow(JobState::kHalted, JobState::kPending));
  EXPECT_FALSE(may_follow(JobState::kStoring, JobState::kDeploying));
}

TEST(JobState, PlacesAreHeldFromPendingToTheEnd) {
  for (const JobState state : all_states()) {
    EXPECT_LE(waits_for_places(state) + holds_places(state) + is_final(state), 1) << name_of(state);
  }
  EXPECT_TRUE(holds_places(JobState::kStoring));
  EXPECT_FALSE(holds_places(JobState::kHalted));
}

TEST(JobState, AWayTakesOneStepAfterTheOther) {
  EXPECT_EQ(way_to(JobState::kPending, JobState::kProcessing),
            (std::vector<JobState>{JobState::kDeploying, JobState::kDownloading, JobState::kProcessing}));
  EXPECT_EQ(way_to(JobState::kProcessing, JobState::kDeploying), std::vector<JobState>{JobState::kDeploying});
  for (const JobState from : all_states()) {
    for (const JobState to : all_states()) {
      const std::vector<JobState> way = way_to(from, to);
      ASSERT_EQ(way.back(), to);
      JobState at = from;
      for (const JobState next : way) {
        EXPECT_TRUE(may_follow(at, next) || way.size() == 1) << name_of(from) << " to " << name_of(to);
        at = next;
      }
    }
  }
}

}  // namespace
}  // namespace tesser::platform
