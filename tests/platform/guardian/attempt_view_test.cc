#include "platform/guardian/attempt_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "base/file.h"

namespace tesser::platform {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class VerdictTest : public testing::Test {
 protected:
  VerdictTest() { std::filesystem::create_directories(volume_.attempt(1)); }

  void write_exit(int rank, int code, std::int64_t time, const std::string& reason = "", bool is_final = false) {
    LearnerExit exit;
    exit.is_final = is_final;
    exit.rank = rank;
    exit.code = code;
    exit.error_class = code == 0 ? "" : "U";
    exit.reason = reason;
    exit.started = 1;
    exit.time = time;
    ASSERT_TRUE(write_file_atomically(volume_.learner_exit(1, rank), to_json(exit)));
  }
  std::optional<Verdict> decide(bool has_gone, const std::vector<LearnerStatus>& statuses) {
    return verdict(volume_, look(volume_, 1, {"node1", "node2"}, has_gone, &statuses));
  }
  static LearnerStatus status(int rank, LearnerState state, const std::string& reason = "") {
    return {1, rank, state, "node" + std::to_string(rank + 1), reason};
  }
  const std::vector<LearnerStatus> both_run_{status(0, LearnerState::kRunning), status(1, LearnerState::kRunning)};

  const TemporaryDirectory directory_;
  const Volume volume_{directory_.path()};
};

TEST_F(VerdictTest, GoesOnWhileAllRunOrWait) {
  EXPECT_FALSE(decide(true, both_run_));
  EXPECT_FALSE(decide(false, {status(0, LearnerState::kWaiting), status(1, LearnerState::kRunning)}));
  write_exit(0, 0, 10);
  EXPECT_FALSE(decide(true, both_run_)) << "one that is done waits for the other";
}

TEST_F(VerdictTest, IsDoneWhenAllEndedWellWhateverTheEngineSays) {
  write_exit(0, 0, 10);
  write_exit(1, 0, 20);
  EXPECT_EQ(decide(true, {})->cause, EndCause::kDone);
  EXPECT_EQ(decide(true, {status(0, LearnerState::kEnded), status(1, LearnerState::kLost)})->cause, EndCause::kDone);
}

TEST_F(VerdictTest, TheFirstThatFailedIsToBlame) {
  write_exit(0, 1, 20, "the command ended with code 1");
  write_exit(1, 3, 10, "the command ended with code 3");
  const auto found = decide(true, both_run_);
  EXPECT_EQ(found->cause, EndCause::kRestart);
  EXPECT_EQ(found->reason.code, codes::kCommand);
  EXPECT_THAT(found->reason.text, AllOf(HasSubstr("learner 1 on node2"), HasSubstr("code 3")));
  EXPECT_EQ(decide(false, both_run_)->cause, EndCause::kRollback) << "before go.json it counts as no restart";
}

TEST_F(VerdictTest, WhatWouldEndLikewiseIsNotStartedAgain) {
  write_exit(0, 2, 10, "tesser train ended with code 2", true);
  for (const bool has_gone : {true, false}) {
    EXPECT_EQ(decide(has_gone, both_run_)->cause, EndCause::kFail);
  }
  EXPECT_EQ(decide(true, {both_run_[0], status(1, LearnerState::kLost)})->cause, EndCause::kRequeue);
}

TEST_F(VerdictTest, ADeadProcessIsARestartAndALostNodeGivesPlacesBack) {
  const auto died = decide(true, {both_run_[0], status(1, LearnerState::kEnded)});
  EXPECT_EQ(died->cause, EndCause::kRestart);
  EXPECT_EQ(died->reason.code, codes::kLearner);
  const auto memory = decide(true, {both_run_[0], status(1, LearnerState::kEnded, "OOMKilled")});
  EXPECT_EQ(memory->reason.code, codes::kMemory);
  const auto lost = decide(true, {both_run_[0], status(1, LearnerState::kLost, "no power")});
  EXPECT_EQ(lost->cause, EndCause::kRequeue);
  EXPECT_THAT(lost->reason.text, AllOf(HasSubstr("learner 1 on node2"), HasSubstr("no power")));
  EXPECT_EQ(decide(true, {both_run_[0]})->cause, EndCause::kRequeue) << "nobody knows of it any more";
}

TEST_F(VerdictTest, ALostNodeWeighsMoreThanTheFailuresItCauses) {
  write_exit(0, 1, 10, "connection reset");
  EXPECT_EQ(decide(true, {status(1, LearnerState::kLost)})->cause, EndCause::kRequeue);
}

TEST_F(VerdictTest, WhatTheProcessSaidLastIsInTheReason) {
  ASSERT_TRUE(write_file_atomically(volume_.learner_output(1, 1), "tesser learner: error: no space left\n"));
  const auto died = decide(true, {both_run_[0], status(1, LearnerState::kEnded)});
  EXPECT_THAT(died->reason.text, HasSubstr("no space left"));
}

TEST_F(VerdictTest, OtherAttemptsAreNoneOfIts) {
  LearnerStatus other = status(1, LearnerState::kLost);
  other.attempt = 2;
  EXPECT_FALSE(decide(true, {both_run_[0], both_run_[1], other}));
}

}  // namespace
}  // namespace tesser::platform
