#include "platform/server/placing.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = SchedulingStep::Kind;

class PlacingTest : public ::testing::Test {
 protected:
  PlacingTest() {
    question_.time = 1'000'000'000;
    question_.engine.has_answered = true;
    for (const char* name : {"a", "b"}) {
      Node& node = question_.engine.nodes.emplace_back();
      node.name = name;
      node.capacity = {2000, 0, {{"v100", 1}}};
    }
  }

  JobRecord& job(const std::string& id, const std::string& team, int learners) {
    JobRecord& job = records_[id];
    job.id = id;
    job.team = team;
    job.learners = learners;
    job.submitted = ++time_;
    return job;
  }
  JobRecord& running(const std::string& id, const std::string& team, const Placement& nodes) {
    JobRecord& made = job(id, team, static_cast<int>(nodes.size()));
    made.state = JobState::kProcessing;
    made.placement = nodes;
    made.placed = time_;
    return made;
  }
  Placing find() {
    LiveJobs jobs(settings_.aging);
    for (const auto& [id, record] : records_) {
      jobs.hear({id, record});
    }
    Placing placing = find_places(jobs, question_, settings_);
    for (const SchedulingStep& step : placing.steps) {
      EXPECT_TRUE(placing.waiting.count(step.job) == 0) << step.job;
    }
    return placing;
  }

  std::map<std::string, JobRecord> records_;
  PlacingQuestion question_;
  SchedulerSettings settings_;
  std::int64_t time_ = 0;
};

TEST_F(PlacingTest, WhoTakesPlacesBackWaitsUntilTheyAreGivenBack) {
  question_.quotas["owners"] = {4000, 0, {}};
  running("guest", "guests", {"a", "a", "b", "b"}).is_borrowed = true;
  job("owner", "owners", 2);
  Placing placing = find();
  ASSERT_EQ(placing.steps.size(), 1U);
  EXPECT_EQ(placing.steps[0].kind, Kind::kPreempt);
  EXPECT_EQ(placing.steps[0].job, "guest");
  EXPECT_EQ(placing.steps[0].reason, "team owners needs the places that it had lent");
  EXPECT_THAT(placing.waiting.at("owner").reason, HasSubstr("as soon as others have given them back"));
  records_["guest"].preempted = placing.steps[0].reason;
  EXPECT_THAT(find().steps, IsEmpty());  // and the guest is not asked twice
  records_["guest"].state = JobState::kQueued;
  records_["guest"].placement.clear();
  records_["guest"].preempted.clear();
  question_.ending = {"guest"};
  placing = find();
  ASSERT_EQ(placing.steps.size(), 1U);
  EXPECT_EQ(placing.steps[0].job, "owner");
  EXPECT_EQ(placing.steps[0].kind, Kind::kPlace);
  EXPECT_FALSE(placing.steps[0].is_borrowed);
  EXPECT_EQ(placing.waiting.at("guest").place, 1);
}

TEST_F(PlacingTest, WhoIsLeavingHoldsItsPlacesUntilItHasLeft) {
  running("halts", "x", {"a", "a"}).wanted = Wanted::kHalt;
  job("next", "x", 4);
  EXPECT_THAT(find().steps, IsEmpty());
  job("small", "x", 2);
  // What the first has places for already is nobody else's.
  EXPECT_THAT(find().steps, IsEmpty());
}

TEST_F(PlacingTest, AJobThatIsStoringItsResultsIsNotAskedToGo) {
  question_.quotas["owners"] = {4000, 0, {}};
  JobRecord& guest = running("guest", "guests", {"a", "a", "b", "b"});
  guest.is_borrowed = true;
  guest.state = JobState::kStoring;
  job("owner", "owners", 2);
  EXPECT_THAT(find().steps, IsEmpty());
}

TEST_F(PlacingTest, PlacesInTheQueueAreOfAllThatWait) {
  settings_.depth = 2;
  for (int i = 0; i < 5; ++i) {
    job("j" + std::to_string(i), i == 4 ? "y" : "x", 3);
  }
  const Placing placing = find();
  ASSERT_EQ(placing.steps.size(), 1U);
  EXPECT_EQ(placing.steps[0].job, "j0");
  std::vector<std::string> order;
  for (const QueuedJob& each : placing.queue) {
    order.push_back(each.id);
  }
  EXPECT_THAT(order, ElementsAre("j1", "j2", "j3", "j4"));
  EXPECT_EQ(placing.waiting.at("j4").place, 4);
  EXPECT_EQ(placing.waiting.at("j3").reason, "2 jobs are before it in the queue");
  EXPECT_THAT(placing.waiting.at("j4").reason, HasSubstr("a job of team x comes first"));
}

TEST_F(PlacingTest, WithoutTheEngineEverybodyWaitsForIt) {
  job("j", "x", 1);
  question_.engine.error = "squeue does not answer";
  const Placing placing = find();
  EXPECT_EQ(placing.trouble, "squeue does not answer");
  EXPECT_EQ(placing.waiting.at("j").reason, "squeue does not answer");
  question_.engine.error.clear();
  question_.system_places = true;
  EXPECT_EQ(find().steps.front().nodes, Placement{""});
}

TEST(LiveJobsTest, TellsWhatMattersToOthers) {
  LiveJobs jobs(600);
  JobRecord job;
  job.id = "j";
  job.team = "x";
  EXPECT_TRUE(jobs.hear({"j", job}));
  EXPECT_EQ(jobs.queue().size(), 1U);
  EXPECT_EQ(jobs.team_queues().at("x").size(), 1U);
  job.state = JobState::kPending;
  EXPECT_TRUE(jobs.hear({"j", job}));
  EXPECT_TRUE(jobs.queue().empty() && jobs.team_queues().empty());
  job.state = JobState::kProcessing;
  EXPECT_FALSE(jobs.hear({"j", job}));  // holds what it held
  job.preempted = "others";
  EXPECT_TRUE(jobs.hear({"j", job}));
  EXPECT_EQ(jobs.active().count("j"), 1U);
  job.state = JobState::kCompleted;
  EXPECT_TRUE(jobs.hear({"j", job}));
  EXPECT_EQ(jobs.find("j"), nullptr);
  job.wanted = Wanted::kDelete;
  EXPECT_TRUE(jobs.hear({"j", job}));
  EXPECT_EQ(jobs.active().count("j"), 1U);
  jobs.hear({"j", std::nullopt});
  EXPECT_EQ(jobs.find("j"), nullptr);
}

}  // namespace
}  // namespace tesser::platform
