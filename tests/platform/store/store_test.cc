#include "platform/store/store.h"

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/store/schema.h"
#include "reopened_store.h"

namespace tesser::platform {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StoreTest : public ReopenedStoreTest {
 protected:
  JobRecord submit(const std::string& id, const std::string& key = "", const std::string& digest = "d") {
    NewJob job;
    job.id = id;
    job.name = "name of " + id;
    job.user = "ann";
    job.team = "blue";
    job.learners = 2;
    job.each = {2500, 1 << 30, {{"V100", 1}}};
    job.idempotency_key = key;
    job.request_digest = digest;
    job.time = ++time_;
    auto made = store_->submit(job, "token of " + id);
    EXPECT_TRUE(made) << made.error().message;
    return made->job;
  }
  // As guardians do: places, a lease, and this way of states.
  std::int64_t run(const std::string& id, const std::vector<JobState>& way) {
    EXPECT_TRUE(place(id, {"a", "b"}));
    const auto lease = store_->take_lease(id, "host:1");
    EXPECT_TRUE(lease);
    for (const JobState state : way) {
      const auto told = say(id, lease->epoch, state);
      EXPECT_TRUE(told) << told.error().message;
    }
    return lease->epoch;
  }
  bool place(const std::string& id, const Placement& nodes, bool is_borrowed = false) {
    SchedulingStep step;
    step.job = id;
    step.nodes = nodes;
    step.is_borrowed = is_borrowed;
    return store_->carry_out({step}, ++time_)->empty();
  }
  std::string preempt(const std::string& id, const std::string& reason) {
    SchedulingStep step;
    step.kind = SchedulingStep::Kind::kPreempt;
    step.job = id;
    step.reason = reason;
    const auto left = store_->carry_out({step}, ++time_);
    return left->empty() ? "" : left->front();
  }
  Result<JobRecord> say(const std::string& id, std::int64_t epoch, JobState state) {
    return store_->report(id, {{state, "", "because", 1, epoch, ++time_}, ++sequence_});
  }
  std::vector<std::string> states(const std::string& id) {
    std::vector<std::string> names;
    const auto history = store_->history(id);
    for (const StateChange& change : *history) {
      names.emplace_back(name_of(change.state));
    }
    return names;
  }

  std::int64_t time_ = 1000;
  std::int64_t sequence_ = 0;
};

TEST_F(StoreTest, WhatWasStoredIsThereAfterAnotherOpen) {
  const JobRecord made = submit("j1");
  run("j1", {JobState::kDeploying, JobState::kDownloading, JobState::kProcessing});
  const JobRecord before = *store_->job("j1");
  reopen();
  const JobRecord after = *store_->job("j1");
  EXPECT_EQ(after.number, 1);
  EXPECT_EQ(after.state, JobState::kProcessing);
  EXPECT_EQ(after.each, made.each);
  EXPECT_EQ(after.placement, (Placement{"a", "b"}));
  EXPECT_EQ(after.holder, "host:1");
  EXPECT_EQ(after.epoch, before.epoch);
  EXPECT_EQ(after.started, before.changed);
  EXPECT_EQ(after.reason, "because");
  EXPECT_THAT(states("j1"), ElementsAre("QUEUED", "PENDING", "DEPLOYING", "DOWNLOADING", "PROCESSING"));
  EXPECT_EQ(store_->job("j2").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store_->history("j2").error().code, ErrorCode::kNotFound);
}

TEST_F(StoreTest, TheSameKeyGivesTheSameJob) {
  const JobRecord first = submit("j1", "key");
  EXPECT_EQ(submit("j2", "key").id, "j1");
  EXPECT_EQ(store_->job("j2").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(submit("j3").id, "j3");
  EXPECT_EQ((*store_->submitted_with("ann", "key", "d"))->id, "j1");
  EXPECT_FALSE(store_->submitted_with("bob", "key", "d")->has_value());
  EXPECT_THAT(store_->submitted_with("ann", "key", "other").error().message, HasSubstr("another submission, job j1"));
  EXPECT_EQ(first.wanted, Wanted::kRun);
}

TEST_F(StoreTest, NothingLeavesAFinalStateAndNoStageIsSkipped) {
  submit("j1");
  EXPECT_EQ(store_->change("j1", {JobState::kProcessing, "", "", 0, 0, 1}).error().code, ErrorCode::kInvalidInput);
  const std::int64_t epoch = run("j1", {JobState::kDeploying, JobState::kDownloading, JobState::kProcessing,
                                        JobState::kStoring, JobState::kCompleted});
  const auto late = say("j1", epoch, JobState::kFailed);
  EXPECT_EQ(late.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(store_->change("j1", {JobState::kFailed, "S", "", 0, 0, 1}).error().message, HasSubstr("final"));
  EXPECT_THAT(store_->want("j1", Wanted::kHalt).error().message, HasSubstr("final"));
  EXPECT_FALSE(store_->resume("j1", 1, 1));
  EXPECT_TRUE(store_->job("j1")->placement.empty());
  EXPECT_EQ(store_->history("j1")->size(), 7U);
  EXPECT_TRUE(store_->live_jobs()->empty());
  EXPECT_TRUE(store_->want("j1", Wanted::kDelete));
  EXPECT_EQ(store_->live_jobs()->size(), 1U);
}

TEST_F(StoreTest, AnOlderEpochIsRefusedAndARepeatedSequenceChangesNothing) {
  submit("j1");
  EXPECT_EQ(store_->take_lease("j1", "x").error().code, ErrorCode::kInvalidInput);  // no places yet
  const std::int64_t first = run("j1", {JobState::kDeploying});
  const std::int64_t second = store_->take_lease("j1", "host:2")->epoch;
  EXPECT_EQ(second, first + 1);
  EXPECT_THAT(say("j1", first, JobState::kDownloading).error().message, HasSubstr("another guardian"));
  EXPECT_EQ(states("j1").back(), "DEPLOYING");
  const GuardianReport report{{JobState::kDownloading, "", "", 1, second, ++time_}, ++sequence_};
  EXPECT_TRUE(store_->report("j1", report));
  EXPECT_TRUE(store_->report("j1", report));  // its answer was lost
  EXPECT_EQ(states("j1").size(), 4U);
  // A job that goes back into the queue has no guardian any more.
  EXPECT_TRUE(say("j1", second, JobState::kProcessing));
  EXPECT_TRUE(say("j1", second, JobState::kQueued));
  EXPECT_EQ(store_->job("j1")->holder, "");
  EXPECT_EQ(store_->job("j1")->restarts, 1);
  EXPECT_TRUE(store_->job("j1")->placement.empty());
  EXPECT_EQ(say("j1", second, JobState::kPending).error().code, ErrorCode::kInvalidInput);
  EXPECT_TRUE(place("j1", {"c", "c"}));
  EXPECT_EQ(say("j1", second, JobState::kDeploying).error().code, ErrorCode::kInvalidInput);
}

TEST_F(StoreTest, HaltedJobsResumeWithAnotherNumberOfLearners) {
  submit("j1");
  EXPECT_TRUE(store_->want("j1", Wanted::kHalt));
  EXPECT_FALSE(place("j1", {"a", "b"}));  // not wanted
  EXPECT_TRUE(store_->change("j1", {JobState::kHalted, "", "halted by its owner", 0, 0, 5000}));
  EXPECT_EQ(store_->job("j1")->ended, 5000);
  EXPECT_FALSE(store_->want("j1", Wanted::kRun));
  const JobRecord resumed = *store_->resume("j1", 5, 6000);
  EXPECT_EQ(resumed.state, JobState::kResumed);
  EXPECT_EQ(resumed.wanted, Wanted::kRun);
  EXPECT_EQ(resumed.learners, 5);
  EXPECT_EQ(resumed.queued, 6000);
  EXPECT_EQ(resumed.ended, 0);
  EXPECT_EQ(store_->live_jobs()->size(), 1U);
}

TEST_F(StoreTest, APreemptedJobWaitsAgainAndGivesEverythingBackInOneChange) {
  submit("j1");
  EXPECT_THAT(preempt("j1", "x"), HasSubstr("QUEUED and cannot be preempted"));
  EXPECT_TRUE(place("j1", {"a", "b"}, true));
  EXPECT_TRUE(store_->job("j1")->is_borrowed);
  EXPECT_EQ(store_->job("j1")->placed, time_);
  const std::int64_t epoch = store_->take_lease("j1", "host:1")->epoch;
  for (const JobState state : {JobState::kDeploying, JobState::kDownloading, JobState::kProcessing}) {
    EXPECT_TRUE(say("j1", epoch, state));
  }
  EXPECT_EQ(preempt("j1", "team red needs the places that it had lent"), "");
  EXPECT_THAT(preempt("j1", "again"), HasSubstr("already"));
  EXPECT_EQ(wanted_of_guardian(*store_->job("j1")), Wanted::kYield);
  EXPECT_EQ(store_->job("j1")->wanted, Wanted::kRun);
  std::vector<JobRecord> heard;
  store_->watch([&](const JobChange& change) { heard.push_back(*change.job); });
  EXPECT_TRUE(store_->report(
      "j1", {{JobState::kQueued, "S_PREEMPTED", "its places are needed", 1, epoch, ++time_}, ++sequence_}));
  ASSERT_EQ(heard.size(), 1U);
  const JobRecord job = *store_->job("j1");
  for (const JobRecord& each : {job, heard.front()}) {
    EXPECT_EQ(each.state, JobState::kQueued);
    EXPECT_FALSE(each.is_borrowed);
    EXPECT_EQ(each.preempted, "");
    EXPECT_EQ(each.placed, 0);
    EXPECT_TRUE(each.placement.empty());
    EXPECT_EQ(each.reason, "team red needs the places that it had lent");
    EXPECT_EQ(each.restarts, 0);
    EXPECT_EQ(wanted_of_guardian(each), Wanted::kRun);
  }
}

TEST_F(StoreTest, WhatTheOwnerWantsComesBeforeAPreemption) {
  for (const std::string id : {"halted", "deleted", "done"}) {
    submit(id);
    const std::int64_t epoch = run(id, {JobState::kDeploying, JobState::kDownloading, JobState::kProcessing});
    EXPECT_EQ(preempt(id, "others"), "");
    if (id == "done") {
      EXPECT_TRUE(say(id, epoch, JobState::kStoring));
      EXPECT_TRUE(say(id, epoch, JobState::kCompleted));
    } else {
      EXPECT_TRUE(store_->want(id, id == "halted" ? Wanted::kHalt : Wanted::kDelete));
      EXPECT_EQ(wanted_of_guardian(*store_->job(id)), store_->job(id)->wanted);
      EXPECT_TRUE(say(id, epoch, JobState::kHalted));
    }
    EXPECT_EQ(store_->job(id)->preempted, "");
    EXPECT_EQ(store_->job(id)->reason, "because");
  }
  EXPECT_EQ(store_->resume("halted", 2, 1)->state, JobState::kResumed);
}

TEST_F(StoreTest, StepsOfARoundAreOneTransactionAndThoseThatAreTooLateAreLeft) {
  submit("j1");
  submit("j2");
  EXPECT_TRUE(store_->want("j2", Wanted::kHalt));
  std::vector<std::string> heard;
  store_->watch([&](const JobChange& change) { heard.push_back(change.id); });
  std::vector<SchedulingStep> steps(3);
  steps[0].job = "j2";
  steps[1].job = "j1";
  steps[1].nodes = {"a", "b"};
  steps[2].kind = SchedulingStep::Kind::kLend;
  steps[2].job = "j1";
  EXPECT_THAT(*store_->carry_out(steps, 7), ElementsAre("job j2 is not wanted to run"));
  EXPECT_THAT(heard, ElementsAre("j1", "j1"));
  EXPECT_TRUE(store_->job("j1")->is_borrowed);
  EXPECT_EQ(store_->placed_jobs()->size(), 1U);
  EXPECT_EQ(store_->count_waiting_by_team()->at("blue"), 1);
  steps = {steps[2]};
  steps[0].kind = SchedulingStep::Kind::kOwn;
  EXPECT_TRUE(store_->carry_out(steps, 8)->empty());
  EXPECT_FALSE(store_->job("j1")->is_borrowed);
  EXPECT_TRUE(store_->remove("j2"));
  EXPECT_EQ(heard.back(), "j2");
}

TEST_F(StoreTest, QuotasAndDrainingNodesAreKept) {
  const Resources quota{4000, 1 << 30, {{"v100", 2}}};
  EXPECT_EQ(store_->set_quota("blue", quota).error().code, ErrorCode::kNotFound);
  for (const std::string team : {"blue", "red", "grey"}) {
    ASSERT_TRUE(store_->tenants().add_team(team, 1, false));
  }
  EXPECT_TRUE(store_->set_quota("grey", quota));
  EXPECT_TRUE(store_->tenants().remove_team("grey"));
  EXPECT_TRUE(store_->set_quota("blue", Resources{1, 0, {}}));
  EXPECT_TRUE(store_->set_quota("blue", quota));
  EXPECT_TRUE(store_->set_quota("red", quota));
  EXPECT_TRUE(store_->set_quota("red", std::nullopt));
  EXPECT_TRUE(store_->set_draining("a", true));
  EXPECT_TRUE(store_->set_draining("a", true));
  EXPECT_TRUE(store_->set_draining("b", true));
  EXPECT_TRUE(store_->set_draining("b", false));
  reopen();
  EXPECT_EQ(*store_->quotas(), (std::map<std::string, Resources>{{"blue", quota}}));
  EXPECT_EQ(*store_->draining_nodes(), std::set<std::string>{"a"});
}

TEST_F(StoreTest, ListsArePagedNewestFirst) {
  for (int i = 1; i <= 5; ++i) {
    submit("j" + std::to_string(i));
  }
  run("j2", {});
  const auto ids = [&](const JobFilter& filter) {
    std::vector<std::string> found;
    const auto jobs = store_->jobs(filter);
    for (const JobRecord& job : *jobs) {
      found.push_back(job.id);
    }
    return found;
  };
  EXPECT_THAT(ids({{}, "", "", 0, 2}), ElementsAre("j5", "j4"));
  EXPECT_THAT(ids({{}, "", "", 4, 10}), ElementsAre("j3", "j2", "j1"));
  EXPECT_THAT(ids({{JobState::kPending}, "blue", "", 0, 10}), ElementsAre("j2"));
  EXPECT_THAT(ids({{JobState::kPending, JobState::kQueued}, "", "", 4, 10}), ElementsAre("j3", "j2", "j1"));
  EXPECT_TRUE(ids({{}, "red", "", 0, 10}).empty());
  EXPECT_THAT(ids({{}, "", "J4", 0, 10}), ElementsAre("j4"));
  EXPECT_TRUE(ids({{}, "", "j%", 0, 10}).empty());
  EXPECT_EQ(store_->count_by_state()->size(), 2U);
}

TEST_F(StoreTest, AnOlderFileIsBroughtUpToDateWithAllItHolds) {
  store_.reset();
  std::filesystem::remove(file());
  {
    SQLite::Database raw(file().string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    raw.exec(std::string(schema_steps().front()));
    raw.exec("PRAGMA application_id = " + std::to_string(kStoreApplication));
    raw.exec("PRAGMA user_version = 1");
    raw.exec(
        "INSERT INTO jobs (id, name, description, user, team, priority, learners, resources, state, submitted, "
        "queued, changed) VALUES ('old', 'n', '', 'u', 't', 50, 1, '{}', 'QUEUED', 1, 1, 1), ('runs', 'n', '', 'u', "
        "'t', 50, 1, '{}', 'PROCESSING', 1, 1, 5)");
  }
  reopen();
  EXPECT_EQ(store_->job("old")->name, "n");
  EXPECT_EQ(store_->tenants().teams()->front().name, "t");  // as its job says
  EXPECT_EQ(store_->job("old")->placed, 0);
  EXPECT_EQ(store_->job("runs")->placed, 5);
  EXPECT_FALSE(store_->job("runs")->is_borrowed);
  EXPECT_TRUE(store_->quotas()->empty());
  submit("new");
  EXPECT_EQ(store_->job("new")->number, 3);
}

TEST_F(StoreTest, ManyThreadsAtOnce) {
  std::vector<std::string> heard;  // by one thread at a time
  store_->watch([&](const JobChange& change) { heard.push_back(change.id); });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      for (int j = 0; j < 10; ++j) {
        NewJob job;
        job.id = "j" + std::to_string(i) + "-" + std::to_string(j);
        job.idempotency_key = "key" + std::to_string(j);  // the same of all threads
        EXPECT_TRUE(store_->submit(job, "t" + job.id));
        EXPECT_TRUE(store_->jobs({}));
      }
    });
  }
  for (std::thread& each : threads) {
    each.join();
  }
  EXPECT_EQ(store_->jobs({})->size(), 10U);
  EXPECT_EQ(heard.size(), 10U);
}

}  // namespace
}  // namespace tesser::platform
