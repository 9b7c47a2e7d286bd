#include "platform/client/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using testing::HasSubstr;

constexpr const char* kJob =
    R"({"id":"mnist-1","name":"mnist","description":"","team":"vision","user":"ann","state":"PROCESSING","code":"",)"
    R"("reason":"","wanted":"halt","priority":70,"place_in_queue":0,"attempt":2,"restarts":1,"restarts_most":3,)"
    R"("submitted":"2026-11-29T22:40:32.123456Z","started":null,"ended":null,"changed":"2026-11-29T22:41:00.000000Z",)"
    R"("each":{"millicpus":1500,"memory_bytes":1024,"accelerators":{"v100":2}},"learners_wanted":2,)"
    R"("learners":[{"rank":0,"node":"n1","state":"running"},{"rank":1,"node":"n2","state":"waiting"}],)"
    R"("progress":{"step":5,"steps":10,"seconds_left":2.5},"of_a_newer_server":[1,{"a":null}]})";

TEST(Answers, AJobIsRead) {
  const auto job = read_job(kJob);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->id, "mnist-1");
  EXPECT_EQ(job->state, JobState::kProcessing);
  EXPECT_EQ(job->wanted, Wanted::kHalt);
  EXPECT_EQ(job->attempt, 2);
  EXPECT_EQ(job->started, "");
  EXPECT_EQ(job->each.millicpus, 1500);
  EXPECT_EQ(job->each.accelerators.at("v100"), 2);
  ASSERT_EQ(job->learners.size(), 2U);
  EXPECT_EQ(job->learners[1].node, "n2");
  EXPECT_EQ(job->progress.step, 5);
  EXPECT_EQ(job->progress.seconds_left, 2.5);
  EXPECT_EQ(job->json, kJob);
}

TEST(Answers, WhatIsNotKnownYetIsNull) {
  const auto job = read_job(R"({"id":"a","state":"QUEUED","progress":null,"started":null})");
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_FALSE(job->progress.step.has_value());
  const auto some = read_job(R"({"id":"a","state":"QUEUED","progress":{"step":3,"steps":null,"seconds_left":null}})");
  EXPECT_EQ(some->progress.step, 3);
  EXPECT_FALSE(some->progress.steps.has_value());
}

TEST(Answers, OtherServersAreToldAsSuch) {
  for (const char* text : {"<html>", "{}", "[]", R"({"id":"a","state":"RUNNING"})", R"({"id":7})"}) {
    const auto job = read_job(text);
    ASSERT_FALSE(job.has_value()) << text;
    EXPECT_EQ(job.error().code, ErrorCode::kFailed);
  }
  EXPECT_THAT(read_jobs("{}").error().message, HasSubstr("no 'jobs'"));
}

TEST(Answers, PagesAreRead) {
  const auto lines = read_lines(
      R"({"lines":[{"learner":1,"attempt":1,"sequence":7,"time":"t","text":"a\tb"}],"cursor":"1:8:0","ended":true})");
  ASSERT_TRUE(lines.has_value());
  EXPECT_EQ(lines->lines.at(0).text, "a\tb");
  EXPECT_EQ(lines->lines.at(0).sequence, 7);
  EXPECT_TRUE(lines->ended);
  const auto metrics =
      read_metrics(R"({"metrics":[{"learner":0,"step":3,"time":"t","name":"loss","value":null},)"
                   R"({"learner":0,"step":3,"time":"t","name":"count","value":2}],"cursor":"c","ended":false})");
  ASSERT_TRUE(metrics.has_value());
  EXPECT_FALSE(metrics->metrics.at(0).value.has_value());
  EXPECT_EQ(metrics->metrics.at(1).value, 2.0);
  const auto quota = read_quota(
      R"({"teams":[{"team":"a","running":1,"waiting":0,"held":{"millicpus":5},"borrowed":{"millicpus":3},"quota":null}]})");
  EXPECT_FALSE(quota->at(0).quota.has_value());
  EXPECT_EQ(quota->at(0).borrowed.millicpus, 3);
  const auto nodes = read_nodes(R"({"nodes":[{"name":"n","is_ready":false,"not_ready":"gone","jobs":["a","b"]}]})");
  EXPECT_EQ(nodes->at(0).jobs.size(), 2U);
  EXPECT_FALSE(nodes->at(0).is_ready);
}

}  // namespace
}  // namespace tesser::platform
