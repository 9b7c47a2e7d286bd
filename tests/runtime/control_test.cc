// The line between coordinator and worker, over real connections.

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/control_http.h"
#include "runtime/control_messages.h"
#include "runtime/worker_link.h"

namespace tesser::runtime {
namespace {

using ::testing::ElementsAre;

constexpr std::chrono::milliseconds kPatience{1000};

std::string url(const control::ControlServer& server) { return "http://127.0.0.1:" + std::to_string(server.port()); }

std::unique_ptr<control::ControlServer> open(control::ControlServer::Answer answer) {
  auto server = control::ControlServer::open("127.0.0.1:0", "secret", 4, std::move(answer));
  EXPECT_TRUE(server.has_value());
  return std::move(*server);
}

TEST(ControlTest, MessagesComeBackAsTheyWere) {
  WorkerTask task;
  task.workers = 3;
  task.program = "/a \"b\"/c";
  task.batch = {{"x", DType::kInt64, {4, 2}}};
  task.next = {2, 7};
  task.seed = -5;
  task.shards = {{"s", {"w", "v"}}};
  task.shuffle = false;
  const auto read = read_task(to_json(task));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(task));
  EXPECT_EQ(read->batch[0].shape, (Shape{4, 2}));
  EXPECT_EQ(read->seed, -5);

  WorkerReport report;
  report.worker = 2;
  report.paths = {"", "TCP"};
  report.memory = WorkerMemory{1, 2, 3, 4, 5, 6};
  report.steps = {{7, 0.1, {1e-9}, 0.5, 0.25, 0.125, 9}};
  report.written = {{8, 0.5, {{"file", 10, 0xffffffff}}}};
  report.evaluations = {{8, {"loss"}, {0.1}, 3, 48, 1, 0.5}};
  report.failure = WorkerFailure{"line\n\"two\"", 2, {0, 1}};
  report.operators = {{"aten::mm", 3, 0.25, 64}};
  const auto again = read_report(to_json(report));
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(to_json(*again), to_json(report));
  EXPECT_EQ(again->written[0].shards[0].checksum, 0xffffffffU);
  EXPECT_EQ(again->failure->message, "line\n\"two\"");
  EXPECT_THAT(again->failure->lost_peers, ElementsAre(0, 1));
}

TEST(ControlTest, AnEvaluationHasAResultForEachName) {
  WorkerReport report;
  report.evaluations = {{8, {"loss", "accuracy"}, {0.1}, 3, 48, 1, 0.5}};
  EXPECT_FALSE(read_report(to_json(report)).has_value());
}

TEST(ControlTest, AWorkerRunsAsFarAsItMay) {
  std::mutex mutex;
  std::vector<std::int64_t> steps;
  ReportAnswer permission;
  const auto server = open([&](const std::string&, const std::string& body) -> Result<std::string> {
    const std::lock_guard guard(mutex);
    const auto report = read_report(body);
    for (const WorkerStep& step : report->steps) {
      steps.push_back(step.step);
      permission.until_step = std::min<std::int64_t>(step.step + 2, 10);
      permission.final = step.step >= 8;
    }
    if (report->ended) {
      permission.abort = true;
    }
    return to_json(permission);
  });
  permission.until_step = 1;
  WorkerLink link(std::move(*control::ControlClient::open(url(*server), "secret", kPatience)), 0);
  std::int64_t done = 0;
  while (link.wait_for_permission(done) == Permission::kRun) {
    link.report_step({++done, 0.5, {}, 0, 0, 0, 0});
  }
  link.end({});
  EXPECT_TRUE(link.is_cancelled());
  const std::lock_guard guard(mutex);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST(ControlTest, HeartbeatsComeWithoutNews) {
  std::atomic<int> reports = 0;
  const auto server = open([&](const std::string&, const std::string&) -> Result<std::string> {
    ++reports;
    return to_json(ReportAnswer{});
  });
  {
    const WorkerLink link(std::move(*control::ControlClient::open(url(*server), "secret", kPatience)), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1800));
  }
  EXPECT_GE(reports, 2);
}

}  // namespace
}  // namespace tesser::runtime
