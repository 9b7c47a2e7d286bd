#include "platform/guardian/journal.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "base/file.h"

namespace tesser::platform {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JournalTest : public testing::Test {
 protected:
  static JournalRecord of(RecordKind kind, int attempt = 0) {
    JournalRecord record;
    record.kind = kind;
    record.attempt = attempt;
    record.epoch = 3;
    return record;
  }
  static JournalRecord state(JobState state) {
    JournalRecord record = of(RecordKind::kState, 1);
    record.state = state;
    return record;
  }
  static JournalRecord end(int attempt, EndCause cause) {
    JournalRecord record = of(RecordKind::kEnd, attempt);
    record.cause = cause;
    return record;
  }
  std::unique_ptr<Journal> open() {
    auto journal = Journal::open(path_);
    EXPECT_TRUE(journal) << journal.error().message;
    return journal ? std::move(*journal) : nullptr;
  }
  void append_text(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "guardian" / "journal.jsonl";
};

TEST_F(JournalTest, RecordsComeBack) {
  JournalRecord deploy = of(RecordKind::kDeploy, 2);
  deploy.nodes = {"node1", "", "node \"3\""};
  JournalRecord failed = state(JobState::kFailed);
  failed.code = "U_COMMAND";
  failed.reason = "learner 1: \"no\n\"";
  JournalRecord reported = of(RecordKind::kReported);
  reported.up_to = 2;
  std::vector<std::string> written;
  {
    const auto journal = open();
    for (const JournalRecord& record : {deploy, failed, end(2, EndCause::kRequeue), of(RecordKind::kLease), reported}) {
      ASSERT_TRUE(journal->append(record));
      written.push_back(to_json(journal->records().back()));
    }
  }
  std::vector<std::string> read;
  for (const JournalRecord& record : open()->records()) {
    read.push_back(to_json(record));
  }
  EXPECT_EQ(read, written);
  EXPECT_THAT(read[0], HasSubstr("\"sequence\":1,"));
  EXPECT_THAT(read[1], HasSubstr("\"state\":\"FAILED\",\"code\":\"U_COMMAND\""));
}

TEST_F(JournalTest, ATornLastLineIsCutOffWhereverItWasTorn) {
  { ASSERT_TRUE(open()->append(of(RecordKind::kDeploy, 1))); }
  const auto whole = read_file(path_);
  { ASSERT_TRUE(open()->append(of(RecordKind::kDeployed, 1))); }
  const auto both = read_file(path_);
  for (std::size_t size = whole->size(); size < both->size(); ++size) {
    std::ofstream(path_) << both->substr(0, size);
    const auto journal = open();
    ASSERT_NE(journal, nullptr);
    ASSERT_EQ(journal->records().size(), 1U) << size;
    ASSERT_TRUE(journal->append(of(RecordKind::kGo, 1)));
    EXPECT_EQ(journal->records().back().sequence, 2U);
  }
  EXPECT_EQ(open()->records().size(), 2U);
}

TEST_F(JournalTest, DamageFurtherUpIsAnErrorWithItsLine) {
  {
    const auto journal = open();
    ASSERT_TRUE(journal->append(of(RecordKind::kDeploy, 1)));
    ASSERT_TRUE(journal->append(of(RecordKind::kDeployed, 1)));
  }
  std::string text = *read_file(path_);
  text[3] = '#';
  std::ofstream(path_) << text;
  const auto journal = Journal::open(path_);
  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().code, ErrorCode::kFailed);
  EXPECT_THAT(journal.error().message, HasSubstr("line 1"));
}

TEST_F(JournalTest, ALineThatIsMissingIsAnError) {
  {
    const auto journal = open();
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(journal->append(of(RecordKind::kLease)));
    }
  }
  std::string text = *read_file(path_);
  const std::size_t first = text.find('\n') + 1;
  text.erase(first, text.find('\n', first) + 1 - first);
  append_text("");
  std::ofstream(path_) << text << "{}\n";
  EXPECT_FALSE(Journal::open(path_));
}

TEST_F(JournalTest, OneGuardianAtATime) {
  auto journal = open();
  const auto second = Journal::open(path_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kNotFound);
  // Of a guardian that was killed, nothing stays.
  journal.reset();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = Journal::open(path_);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_NE(open(), nullptr);
}

TEST_F(JournalTest, AFullDiskLeavesNothingHalfWritten) {
  const auto journal = open();
  ASSERT_TRUE(journal->append(of(RecordKind::kLease)));
  const auto before = std::filesystem::file_size(path_);
  const pid_t child = ::fork();
  if (child == 0) {
    // In a process of its own, since the limit holds for all files.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{before + 20, before + 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto outcome = journal->append(of(RecordKind::kDeploy, 1));
    ::_exit(!outcome && std::filesystem::file_size(path_) == before ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(journal->append(of(RecordKind::kDeploy, 1)));
}

class SummaryTest : public JournalTest {
 protected:
  JournalSummary after(std::vector<JournalRecord> records) {
    for (std::size_t i = 0; i < records.size(); ++i) {
      records[i].sequence = i + 1;
      records[i].time = static_cast<std::int64_t>(i + 1) * 1'000'000;
    }
    return summary_of(records);
  }
};

TEST_F(SummaryTest, AnAttemptIsAliveFromDeployedToItsEnd) {
  EXPECT_FALSE(after({}).last);
  const auto begun = after({of(RecordKind::kDeploy, 1)});
  EXPECT_FALSE(begun.last->is_alive());
  EXPECT_THAT(begun.not_removed, ElementsAre(1));
  const auto alive = after({of(RecordKind::kDeploy, 1), of(RecordKind::kDeployed, 1)});
  EXPECT_TRUE(alive.last->is_alive());
  EXPECT_FALSE(alive.last->has_gone);
  const auto ended = after({of(RecordKind::kDeploy, 1), of(RecordKind::kDeployed, 1), end(1, EndCause::kRollback)});
  EXPECT_FALSE(ended.last->is_alive());
  EXPECT_FALSE(ended.last->is_removed);
  EXPECT_EQ(ended.restarts, 0);
}

TEST_F(SummaryTest, RestartsAreCountedAfterGoAndAnewAfterAHalt) {
  const std::vector<JournalRecord> one{of(RecordKind::kDeploy, 1), of(RecordKind::kDeployed, 1), of(RecordKind::kGo, 1),
                                       end(1, EndCause::kRestart), of(RecordKind::kRemoved, 1)};
  EXPECT_EQ(after(one).restarts, 1);
  EXPECT_TRUE(after(one).not_removed.empty());
  auto lost_before_go = one;
  lost_before_go.push_back(of(RecordKind::kDeploy, 2));
  lost_before_go.push_back(end(2, EndCause::kRequeue));
  EXPECT_EQ(after(lost_before_go).restarts, 1);
  auto lost_after_go = one;
  lost_after_go.push_back(of(RecordKind::kDeploy, 2));
  lost_after_go.push_back(of(RecordKind::kGo, 2));
  lost_after_go.push_back(end(2, EndCause::kRequeue));
  EXPECT_EQ(after(lost_after_go).restarts, 2);
  auto yielded = one;
  yielded.push_back(of(RecordKind::kDeploy, 2));
  yielded.push_back(of(RecordKind::kGo, 2));
  yielded.push_back(end(2, EndCause::kYield));
  yielded.push_back(state(JobState::kQueued));
  EXPECT_EQ(after(yielded).restarts, 1);
  auto halted = one;
  halted.push_back(state(JobState::kHalted));
  EXPECT_EQ(after(halted).restarts, 0);
}

TEST_F(SummaryTest, ProcessingTimeIsFromGoToEndOverAllAttempts) {
  const auto summary = after({of(RecordKind::kDeploy, 1), of(RecordKind::kGo, 1), of(RecordKind::kLease),
                              end(1, EndCause::kRestart), of(RecordKind::kDeploy, 2), of(RecordKind::kGo, 2)});
  EXPECT_EQ(summary.processed_microseconds, 2'000'000);
  EXPECT_EQ(summary.processing_since, 6'000'000);
}

TEST_F(SummaryTest, StatesAfterTheLastReportedAreSentAgain) {
  JournalRecord reported = of(RecordKind::kReported);
  reported.up_to = 1;
  const auto summary =
      after({state(JobState::kDeploying), state(JobState::kDownloading), reported, state(JobState::kProcessing)});
  ASSERT_EQ(summary.unreported.size(), 2U);
  EXPECT_EQ(summary.unreported[0].state, JobState::kDownloading);
  EXPECT_EQ(summary.unreported[1].state, JobState::kProcessing);
  EXPECT_EQ(summary.state, JobState::kProcessing);
  EXPECT_FALSE(summary.starting_since);
}

TEST_F(SummaryTest, TheStartLimitRunsOverRollbacks) {
  const auto summary = after({state(JobState::kDeploying), of(RecordKind::kDeploy, 1), end(1, EndCause::kRollback),
                              of(RecordKind::kRemoved, 1), of(RecordKind::kDeploy, 2)});
  EXPECT_EQ(summary.starting_since, 1'000'000);
}

}  // namespace
}  // namespace tesser::platform
