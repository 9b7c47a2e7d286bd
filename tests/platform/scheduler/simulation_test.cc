#include "platform/scheduler/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTrace =
    "app_id,submit_time,service,num_jobs,sleep_time,model_name\n"
    "0,0.0,800,8,0.0,Transformer\n"
    "1,10.0,600,6,10.0,Vgg\n"
    "2,10.0,600,6,0.0,Vgg\n"
    "3,20.0,5,1,10.0,Resnet\n";

TEST(Trace, ReadsWhatPhillyTracesHold) {
  const auto trace = read_trace(kTrace, "philly.csv");
  ASSERT_TRUE(trace.has_value());
  ASSERT_EQ(trace->size(), 4u);
  EXPECT_EQ((*trace)[1].accelerators, 6);
  EXPECT_EQ((*trace)[1].submitted, 10);
  EXPECT_EQ((*trace)[1].run_seconds, 100);
}

TEST(Trace, SaysLineAndColumnOfWhatItCannotRead) {
  const auto message = [](const std::string& text) { return read_trace(text, "t.csv").error().message; };
  EXPECT_THAT(message("a,b\n1,2\n"), HasSubstr("t.csv, line 1: there is no column app_id"));
  EXPECT_THAT(message("app_id,submit_time,num_jobs\n"), HasSubstr("neither a column service nor run_time"));
  EXPECT_THAT(message("app_id,submit_time,num_jobs,run_time\n1,2,3,4\n1,2,zero,4\n"),
              HasSubstr("t.csv, line 3: num_jobs is 'zero'"));
  EXPECT_THAT(message("app_id,submit_time,num_jobs,run_time\n1,2,3\n"), HasSubstr("line 2: 3 cells"));
  EXPECT_THAT(message("app_id,submit_time,num_jobs,run_time\n1,2,-3,4\n"), HasSubstr("num_jobs is '-3'"));
  EXPECT_THAT(message("app_id,submit_time,num_jobs,run_time\n1,nan,3,4\n"), HasSubstr("submit_time is 'nan'"));
}

SimulationSettings one_node(bool gang) {
  SimulationSettings settings;
  settings.nodes = 1;
  settings.accelerators_per_node = 8;
  settings.gang = gang;
  return settings;
}

TEST(Simulation, GangsHoldNothingWhileTheyWait) {
  const auto report = simulate(*read_trace(kTrace, ""), one_node(true));
  EXPECT_EQ(report.finished, 4u);
  EXPECT_EQ(report.idle_held_hours, 0);
  // Job 0 runs until 100, 1 until 200 with 3 beside it, 2 until 300.
  EXPECT_THAT(report.waits, ElementsAre(0, 80, 90, 190));
  EXPECT_EQ(report.makespan_seconds, 300);
  EXPECT_DOUBLE_EQ(report.used_hours, 2005.0 / 3600);
  EXPECT_DOUBLE_EQ(report.utilization, 2005.0 / (8 * 300));
  EXPECT_EQ(report.wait_percentile(0.5), 80);
  EXPECT_EQ(report.wait_percentile(0.99), 190);
}

TEST(Simulation, LearnersPlacedOneByOneHoldWhatTheyCannotUse) {
  const auto report = simulate(*read_trace(kTrace, ""), one_node(false));
  EXPECT_EQ(report.finished, 4u);
  // From 100 to 200 job 2 holds the two accelerators that job 1 leaves, so that job 3 waits until 200.
  EXPECT_DOUBLE_EQ(report.idle_held_hours, 200.0 / 3600);
  EXPECT_THAT(report.waits, ElementsAre(0, 90, 180, 190));
}

TEST(Simulation, JobsThatHoldEachOthersPlacesAreSeen) {
  // Two nodes' worth of learners that no node order can serve: each of two jobs gets a half. Learners of two
  // accelerators on nodes of three leave one over, which the next job's single learner takes.
  const char* trace =
      "app_id,submit_time,run_time,num_jobs\n"
      "0,0,100,5\n"
      "1,10,100,6\n"
      "2,10,100,6\n";
  SimulationSettings settings = one_node(false);
  settings.accelerators_per_node = 6;
  settings.patience_seconds = 0;
  const auto report = simulate(*read_trace(trace, ""), settings);
  EXPECT_EQ(report.finished + report.stuck, 3u);
  EXPECT_EQ(report.stuck, 0u);  // first come, first served: the first in the queue completes its gang in the end

  const auto gang = simulate(*read_trace(trace, ""), one_node(true));
  EXPECT_EQ(gang.idle_held_hours, 0);
}

TEST(Simulation, JobsLargerThanTheClusterAreLeftOut) {
  const auto report =
      simulate(*read_trace("app_id,submit_time,run_time,num_jobs\n0,0,10,9\n1,0,10,8\n", ""), one_node(true));
  EXPECT_EQ(report.never_fit, 1u);
  EXPECT_EQ(report.finished, 1u);
}

TEST(Simulation, PreemptedJobsLoseNoWork) {
  const char* trace =
      "app_id,submit_time,run_time,num_jobs,team\n"
      "0,0,100,8,a\n"
      "1,50,100,4,b\n";
  SimulationSettings settings = one_node(true);
  settings.teams = {{"a", {0, 0, {{"gpu", 4}}}}, {"b", {0, 0, {{"gpu", 4}}}}};
  settings.halt_seconds = 10;
  const auto report = simulate(*read_trace(trace, ""), settings);
  EXPECT_EQ(report.preemptions, 1u);
  EXPECT_EQ(report.finished, 2u);
  // b runs from 60 to 160; then a goes on with the 50 seconds that are left.
  EXPECT_EQ(report.makespan_seconds, 210);
  EXPECT_THAT(report.waits, ElementsAre(10, 110));
  EXPECT_DOUBLE_EQ(report.used_hours, 1200.0 / 3600);
}

TEST(Simulation, RepeatsToTheBit) {
  SyntheticTrace synthetic;
  synthetic.jobs = 400;
  synthetic.accelerators = 128;
  const auto trace = make_trace(synthetic);
  SimulationSettings settings;
  settings.nodes = 16;
  for (const bool gang : {true, false}) {
    settings.gang = gang;
    const auto first = simulate(trace, settings);
    const auto again = simulate(trace, settings);
    EXPECT_EQ(first.waits, again.waits);
    EXPECT_EQ(first.idle_held_hours, again.idle_held_hours);
    EXPECT_EQ(first.finished + first.never_fit + first.stuck, 400u);
  }
}

}  // namespace
}  // namespace tesser::platform
