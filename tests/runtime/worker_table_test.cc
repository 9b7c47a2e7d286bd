// What a coordinator makes of its workers' reports, without processes.

#include "runtime/worker_table.h"

#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<std::optional<std::string>> kAlive(2);

class WorkerTableTest : public ::testing::Test {
 protected:
  WorkerTableTest() : table_(std::vector<WorkerTask>(2, evaluating()), std::vector<WorkerPrograms>(2)) {
    for (int worker = 0; worker < 2; ++worker) {
      EXPECT_TRUE(table_.answer("/join", to_json(joining(worker))).has_value());
    }
  }

  static WorkerTask evaluating() {
    WorkerTask task;
    task.workers = 2;
    task.evaluation_data = "check";
    return task;
  }
  static Joining joining(int worker) { return {worker, "host", 100 + worker, "127.0.0.1:1/" + std::to_string(worker)}; }
  static WorkerReport done(int worker, std::int64_t step, double loss) {
    WorkerReport report;
    report.worker = worker;
    WorkerStep made;
    made.step = step;
    made.loss = loss;
    made.metrics = {0.5};
    made.seconds = 1.0 + worker;
    made.waiting_seconds = 0.25;
    made.sent_bytes = 10;
    report.steps = {made};
    return report;
  }
  static WorkerReport heartbeat(int worker) {
    WorkerReport report;
    report.worker = worker;
    return report;
  }
  static WorkerReport failed(int worker, const std::string& message, std::vector<std::int64_t> lost) {
    WorkerReport report;
    report.worker = worker;
    report.failure = WorkerFailure{message, 1, std::move(lost)};
    return report;
  }
  ReportAnswer report(const WorkerReport& report) {
    const auto text = table_.answer("/report", to_json(report));
    EXPECT_TRUE(text.has_value()) << text.error().message;
    return *read_answer(*text);
  }

  WorkerTable table_;
};

TEST_F(WorkerTableTest, EvaluationsCountOnceAllHaveMadeThem) {
  const auto evaluated = [](int worker, std::int64_t step, double loss) {
    WorkerReport report;
    report.worker = worker;
    report.evaluations = {{step, {"loss"}, {loss}, 3, 48, 0, 1.0 + worker}};
    return report;
  };
  report(evaluated(0, 5, 0.5));
  report(evaluated(0, 5, 0.5));  // the answer was lost
  EXPECT_THAT(*table_.take_evaluations(), IsEmpty());
  report(evaluated(1, 5, 0.5));
  const auto made = table_.take_evaluations();
  ASSERT_THAT(*made, SizeIs(1));
  EXPECT_EQ(made->front().step, 5);
  EXPECT_EQ(made->front().seconds, 2.0);
  report(evaluated(0, 10, 0.5));
  report(evaluated(1, 10, 0.25));
  EXPECT_FALSE(table_.take_evaluations().has_value());
}

TEST_F(WorkerTableTest, StepsAreMergedOnceAllHaveDoneThem) {
  report(done(0, 1, 2.5));
  report(done(0, 2, 2.25));
  EXPECT_THAT(*table_.take_steps(), IsEmpty());
  report(done(1, 1, 2.5));
  report(done(1, 1, 2.5));  // the answer was lost
  const auto steps = table_.take_steps();
  ASSERT_THAT(*steps, SizeIs(1));
  EXPECT_EQ(steps->front().step, 1);
  EXPECT_EQ(steps->front().loss, 2.5);
  EXPECT_EQ(steps->front().seconds, 2.0);
  report(done(1, 2, 2.25));
  EXPECT_THAT(*table_.take_steps(), SizeIs(1));
  EXPECT_EQ(table_.summaries()[1].compute_seconds, 2 * 1.75);
  EXPECT_EQ(table_.summaries()[1].sent_bytes, 20);
}

TEST(WorkerTableOfReplicas, LossesAreAveragedOverReplicasAndWorkersNamedByThem) {
  WorkerTask task;
  task.workers = 2;
  task.replicas = 2;
  WorkerTable table(std::vector<WorkerTask>(4, task), std::vector<WorkerPrograms>(4));
  const double losses[] = {1.0, 1.0, 4.0, 4.0};
  for (int worker = 0; worker < 4; ++worker) {
    WorkerReport report;
    report.worker = worker;
    report.steps = {{1, losses[worker], {losses[worker]}, 1.0 + worker, 0, 0, 0}};
    EXPECT_THAT(*table.take_steps(), IsEmpty());
    ASSERT_TRUE(table.answer("/report", to_json(report)).has_value());
  }
  const std::vector<WorkerStep> steps = *table.take_steps();
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].loss, 2.5);
  EXPECT_EQ(steps[0].metrics, std::vector<double>{2.5});
  EXPECT_EQ(steps[0].seconds, 4.0);
  EXPECT_EQ(table.name_of(2), "replica 1, worker 0");
  EXPECT_EQ(table.summaries()[3].replica, 1);
  EXPECT_EQ(table.summaries()[3].worker, 1);

  for (int worker = 0; worker < 4; ++worker) {
    WorkerReport report;
    report.worker = worker;
    report.steps = {{2, worker == 3 ? 5.0 : 4.0, {}, 1, 0, 0, 0}};
    ASSERT_TRUE(table.answer("/report", to_json(report)).has_value());
  }
  EXPECT_THAT(table.take_steps().error().message, HasSubstr("replica 1, worker 1 has loss 5 at step 2"));
}

TEST_F(WorkerTableTest, WorkersMustAgreeOnTheLoss) {
  report(done(0, 1, std::nan("")));
  report(done(1, 1, std::nan("")));
  EXPECT_TRUE(table_.take_steps().has_value());
  report(done(0, 2, 1.0));
  report(done(1, 2, std::nextafter(1.0, 2.0)));
  const auto steps = table_.take_steps();
  ASSERT_FALSE(steps.has_value());
  EXPECT_THAT(steps.error().message, HasSubstr("worker 1 has loss"));
}

TEST_F(WorkerTableTest, AnswersSayHowFarToRun) {
  EXPECT_EQ(report(heartbeat(0)).until_step, 0);
  table_.allow(7, true);
  const ReportAnswer answer = report(heartbeat(0));
  EXPECT_EQ(answer.until_step, 7);
  EXPECT_TRUE(answer.final);
  EXPECT_FALSE(answer.abort);
  table_.abort();
  EXPECT_TRUE(report(heartbeat(0)).abort);
}

TEST_F(WorkerTableTest, RequestsThatCannotBeAreRefused) {
  EXPECT_THAT(table_.answer("/join", to_json(Joining{2, "host", 1, "a"})).error().message,
              HasSubstr("workers 0 to 1, not 2"));
  EXPECT_THAT(table_.answer("/join", to_json(Joining{1, "other", 5, "a"})).error().message,
              HasSubstr("worker 1 (process 101 on host) is there already"));
  EXPECT_FALSE(table_.answer("/else", "{}").has_value());
  EXPECT_FALSE(table_.answer("/report", "{}").has_value());
  EXPECT_FALSE(table_.answer("/report", "no JSON").has_value());
  EXPECT_FALSE(table_.answer("/task", "{\"worker\":-1}").has_value());
}

TEST_F(WorkerTableTest, TheOneThatDiedIsBlamedAndNotTheOneThatNoticed) {
  EXPECT_FALSE(table_.trouble(kAlive).has_value());
  report(failed(0, "worker 1's process is gone", {1}));
  EXPECT_FALSE(table_.trouble(kAlive).has_value()) << "the cause is waited for";
  const auto trouble = table_.trouble({std::nullopt, "was killed by signal 9 (Killed)"});
  ASSERT_TRUE(trouble.has_value());
  EXPECT_EQ(trouble->worker, 1);
  EXPECT_EQ(trouble->message, "worker 1 (process 101 on host) was killed by signal 9 (Killed)");
}

TEST_F(WorkerTableTest, TheOneThatFailedByItselfIsBlamed) {
  report(failed(0, "worker 1 has closed", {1}));
  report(failed(1, "no space left", {}));
  const auto trouble = table_.trouble(kAlive);
  ASSERT_TRUE(trouble.has_value());
  EXPECT_EQ(trouble->message, "worker 1 (process 101 on host) failed: no space left");
}

TEST_F(WorkerTableTest, TheFirstToFailIsBlamed) {
  report(failed(1, "no space left", {}));
  report(failed(0, "worker 1 has ended its side of a transfer", {}));
  EXPECT_EQ(table_.trouble(kAlive)->worker, 1);
  EXPECT_EQ(table_.trouble({"was killed by signal 9 (Killed)", std::nullopt})->worker, 1);
}

TEST_F(WorkerTableTest, OneThatIsGoneIsBlamedBeforeOnesThatFailed) {
  report(failed(0, "worker 1 has ended its side of a transfer", {}));
  EXPECT_EQ(table_.trouble({std::nullopt, "was killed by signal 9 (Killed)"})->worker, 1);
}

TEST_F(WorkerTableTest, ALostPeerIsNamedWhenNothingElseIsSeen) {
  report(failed(0, "the link is down", {1}));
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  report(heartbeat(1));
  const auto trouble = table_.trouble(kAlive);
  ASSERT_TRUE(trouble.has_value());
  EXPECT_EQ(trouble->worker, 1);
  EXPECT_EQ(trouble->message,
            "worker 0 (process 100 on host) has lost worker 1 (process 101 on host): the link is down");
}

TEST_F(WorkerTableTest, SilenceIsNoticed) {
  for (int i = 0; i < 32; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    report(heartbeat(0));
  }
  const auto trouble = table_.trouble(kAlive);
  ASSERT_TRUE(trouble.has_value());
  EXPECT_EQ(trouble->worker, 1);
  EXPECT_THAT(trouble->message, HasSubstr("worker 1 (process 101 on host) has not been heard of for 3."));
}

}  // namespace
}  // namespace tesser::runtime
