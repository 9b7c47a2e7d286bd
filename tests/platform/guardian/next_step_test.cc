#include "platform/guardian/next_step.h"

#include <array>
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kNow = 1'000'000'000'000;
constexpr std::array kCauses = {EndCause::kDone,  EndCause::kRestart, EndCause::kRollback, EndCause::kRequeue,
                                EndCause::kYield, EndCause::kHalt,    EndCause::kDelete,   EndCause::kFail};
constexpr std::array kWishes = {Wanted::kRun, Wanted::kHalt, Wanted::kDelete, Wanted::kYield};

JournalSummary ended(EndCause cause, const std::string& reason = "why", const std::string& code = "S_CODE") {
  JournalSummary journal;
  journal.last.emplace();
  journal.last->end.emplace();
  journal.last->end->cause = cause;
  journal.last->end->code = code;
  journal.last->end->reason = reason;
  return journal;
}

class NextStepTest : public testing::Test {
 protected:
  NextStep decide(const JournalSummary& journal, Wanted wanted = Wanted::kRun, bool has_new_places = false) const {
    return next_step(journal, has_new_places, wanted, manifest_, kNow);
  }
  Manifest manifest_;
};

MATCHER_P(MovesTo, state, std::string(name_of(state))) {
  return arg.kind == NextStep::Kind::kMove && arg.state == state;
}

TEST_F(NextStepTest, TheFirstAttemptIsDeployedWithoutAReason) {
  const NextStep step = decide({});
  EXPECT_EQ(step.kind, NextStep::Kind::kDeploy);
  EXPECT_FALSE(step.rests);
  EXPECT_EQ(step.reason.text, "");
}

TEST_F(NextStepTest, AnAttemptThatFailedForGoodFailsTheJobWhateverIsWanted) {
  for (const Wanted wanted : kWishes) {
    const NextStep step = decide(ended(EndCause::kFail, "no such file", "U_DATA"), wanted);
    EXPECT_THAT(step, MovesTo(JobState::kFailed));
    EXPECT_EQ(step.reason.code, "U_DATA");
    EXPECT_EQ(step.reason.text, "no such file");
  }
}

TEST_F(NextStepTest, AHaltEndsInHaltedEvenWhereTheOwnerHasChangedTheirMind) {
  for (const EndCause cause : {EndCause::kHalt, EndCause::kDelete}) {
    for (const Wanted wanted : kWishes) {
      EXPECT_THAT(decide(ended(cause), wanted), MovesTo(JobState::kHalted));
    }
  }
}

TEST_F(NextStepTest, WhatIsDoneIsStoredAndThenCompleted) {
  JournalSummary journal = ended(EndCause::kDone);
  EXPECT_EQ(decide(journal).kind, NextStep::Kind::kStore);
  EXPECT_EQ(decide(journal, Wanted::kYield).kind, NextStep::Kind::kStore) << "its places are free soon anyway";
  EXPECT_THAT(decide(journal, Wanted::kHalt), MovesTo(JobState::kHalted));
  // A guardian that is started again for new places does not train once more what is done.
  EXPECT_EQ(decide(journal, Wanted::kRun, true).kind, NextStep::Kind::kStore);
  journal.has_stored = true;
  for (const Wanted wanted : kWishes) {
    EXPECT_THAT(decide(journal, wanted), MovesTo(JobState::kCompleted)) << "what is stored is not undone";
  }
}

TEST_F(NextStepTest, ARestartSaysWhichAndWhy) {
  manifest_.restarts = 3;
  JournalSummary journal = ended(EndCause::kRestart, "learner 1 died");
  journal.restarts = 2;
  const NextStep step = decide(journal);
  EXPECT_EQ(step.kind, NextStep::Kind::kDeploy);
  EXPECT_FALSE(step.rests);
  EXPECT_EQ(step.reason.text, "restart 2 of 3: learner 1 died");
  journal.restarts = 4;
  EXPECT_THAT(decide(journal), MovesTo(JobState::kFailed));
  EXPECT_EQ(decide(journal).reason.text, "learner 1 died (after 3 restarts, as many as the manifest allows)");
  EXPECT_THAT(decide(journal, Wanted::kYield), MovesTo(JobState::kFailed)) << "it would only wait to fail";
  EXPECT_THAT(decide(journal, Wanted::kHalt), MovesTo(JobState::kHalted));
  manifest_.restarts = 0;
  EXPECT_EQ(decide(journal).reason.text, "learner 1 died");
}

TEST_F(NextStepTest, ARollbackIsTriedAgainAfterARest) {
  const NextStep step = decide(ended(EndCause::kRollback, "the engine refuses"));
  EXPECT_EQ(step.kind, NextStep::Kind::kDeploy);
  EXPECT_TRUE(step.rests);
  EXPECT_EQ(step.reason.text, "starting again: the engine refuses");
}

TEST_F(NextStepTest, WhoseNodeIsGoneOrWhosePlacesAreNeededWaitsAgain) {
  const NextStep requeued = decide(ended(EndCause::kRequeue, "node a is there no more", codes::kNode));
  EXPECT_THAT(requeued, MovesTo(JobState::kQueued));
  EXPECT_EQ(requeued.reason.code, codes::kNode);
  for (const NextStep& yielded : {decide(ended(EndCause::kYield)), decide({}, Wanted::kYield),
                                  decide(ended(EndCause::kRequeue), Wanted::kYield)}) {
    EXPECT_THAT(yielded, MovesTo(JobState::kQueued));
    EXPECT_EQ(yielded.reason.code, codes::kPreempted);
  }
}

TEST_F(NextStepTest, NewPlacesForgetHowTheLastAttemptEnded) {
  for (const EndCause cause : kCauses) {
    const NextStep step = decide(ended(cause), Wanted::kRun, true);
    if (cause != EndCause::kDone) {
      EXPECT_EQ(step.kind, NextStep::Kind::kDeploy) << static_cast<int>(cause);
      EXPECT_EQ(step.reason.text, "");
    }
  }
}

TEST_F(NextStepTest, AJobThatDoesNotStartInTimeFailsWithWhatKeptIt) {
  manifest_.start_limit = std::chrono::seconds(60);
  JournalSummary journal = ended(EndCause::kRollback, "the engine refuses");
  journal.starting_since = kNow - 59'000'000;
  EXPECT_EQ(decide(journal).kind, NextStep::Kind::kDeploy);
  journal.starting_since = kNow - 60'000'000;
  EXPECT_THAT(decide(journal), MovesTo(JobState::kFailed));
  EXPECT_EQ(decide(journal).reason.code, codes::kStart);
  EXPECT_THAT(decide(journal).reason.text, AllOf(HasSubstr("start limit of 60 s"), HasSubstr("the engine refuses")));
}

// Over all combinations.
TEST_F(NextStepTest, AnOwnersWishIsNeverOvertakenByAnotherAttempt) {
  for (const EndCause cause : kCauses) {
    for (const Wanted wanted : {Wanted::kHalt, Wanted::kDelete}) {
      for (const bool has_new_places : {false, true}) {
        const NextStep step = decide(ended(cause), wanted, has_new_places);
        ASSERT_EQ(step.kind, NextStep::Kind::kMove);
        EXPECT_TRUE(step.state == JobState::kHalted || (cause == EndCause::kFail && step.state == JobState::kFailed))
            << name_of(step.state);
      }
    }
  }
}

}  // namespace
}  // namespace tesser::platform
