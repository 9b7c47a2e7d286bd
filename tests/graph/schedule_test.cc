#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "graph/program.h"

namespace tesser::graph {
namespace {

// Expected values were computed by torch.optim.lr_scheduler in PyTorch 2.13.
void expect_rates(const Schedule& schedule, const std::vector<std::pair<std::int64_t, double>>& rates) {
  for (const auto& [step, rate] : rates) {
    EXPECT_NEAR(schedule.at(step), rate, 1e-15 + 1e-13 * std::abs(rate)) << "step " << step;
  }
}

Schedule constant(double rate) {
  Schedule schedule;
  schedule.rate = rate;
  return schedule;
}

Schedule step_by_step(double rate, std::int64_t every, double factor) {
  Schedule schedule;
  schedule.kind = Schedule::Kind::kStep;
  schedule.rate = rate;
  schedule.every = every;
  schedule.factor = factor;
  return schedule;
}

Schedule linear(double rate, double start, double end, std::int64_t steps) {
  Schedule schedule;
  schedule.kind = Schedule::Kind::kLinear;
  schedule.rate = rate;
  schedule.start = start;
  schedule.end = end;
  schedule.steps = steps;
  return schedule;
}

Schedule one_cycle(std::int64_t steps, double rise) {
  Schedule schedule;
  schedule.kind = Schedule::Kind::kOneCycle;
  schedule.steps = steps;
  schedule.rise = rise;
  schedule.maximum = 0.1;
  schedule.initial = 0.004;
  schedule.final = 4e-7;
  return schedule;
}

TEST(ScheduleTest, Constant) { expect_rates(constant(0.1), {{0, 0.1}, {1'000'000'000'000, 0.1}}); }

TEST(ScheduleTest, Step) {
  const Schedule schedule = step_by_step(0.5, 3, 0.5);
  expect_rates(schedule, {{0, 0.5}, {2, 0.5}, {3, 0.25}, {5, 0.25}, {6, 0.125}});
}

TEST(ScheduleTest, Linear) {
  const Schedule schedule = linear(0.5, 0.25, 1, 4);
  expect_rates(schedule, {{0, 0.125}, {1, 0.21875}, {3, 0.40625}, {4, 0.5}, {100, 0.5}});
}

TEST(ScheduleTest, Cosine) {
  Schedule schedule;
  schedule.kind = Schedule::Kind::kCosine;
  schedule.rate = 0.1;
  schedule.steps = 10;
  schedule.minimum = 0.01;
  expect_rates(schedule, {{0, 0.1}, {5, 0.055}, {10, 0.01}, {99, 0.01}, {1, 0.0977975432332819}});
}

TEST(ScheduleTest, CosineWaveGoesUpAgainAsCosineAnnealingDoes) {
  Schedule schedule;
  schedule.kind = Schedule::Kind::kCosineWave;
  schedule.rate = 0.1;
  schedule.steps = 3;
  schedule.minimum = 0.001;
  expect_rates(schedule, {{0, 0.1}, {1, 0.07525}, {2, 0.02575}, {3, 0.001}, {4, 0.02575}, {5, 0.07525}, {6, 0.1}});
  schedule.steps = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(schedule.at(7), 0.1);
}

TEST(ScheduleTest, EndsWhereNoPartHasARate) {
  EXPECT_EQ(constant(1).ends_at(), std::nullopt);
  Schedule end;
  end.kind = Schedule::Kind::kEnd;
  EXPECT_EQ(end.ends_at(), 0);
  Schedule inner;
  inner.kind = Schedule::Kind::kSequence;
  inner.parts = {constant(1), end};
  inner.milestones = {5};
  EXPECT_EQ(inner.ends_at(), 5);
  Schedule outer = inner;
  outer.parts = {inner, constant(2)};
  outer.milestones = {5};
  EXPECT_EQ(outer.ends_at(), std::nullopt);  // the inner end is never reached
  outer.milestones = {6};
  EXPECT_EQ(outer.ends_at(), 5);
  outer.parts = {constant(2), inner};
  EXPECT_EQ(outer.ends_at(), 11);
}

TEST(ScheduleTest, OneCycle) {
  // OneCycleLR(max_lr=0.1, total_steps=10, pct_start=0.3): peak at step 2.
  Schedule schedule = one_cycle(10, 0.3);
  expect_rates(schedule, {{0, 0.0040000000000000036},
                          {1, 0.052000000000000005},
                          {2, 0.1},
                          {3, 0.09504846320134738},
                          {4, 0.0811745653949763},
                          {5, 0.06112620219362893},
                          {6, 0.03887419780637107},
                          {7, 0.0188258346050237},
                          {8, 0.004951936798652629},
                          {9, 4e-07},
                          {1000, 4e-7}});
  schedule.cosine_anneal = false;
  expect_rates(schedule, {{0, 0.004},
                          {1, 0.052000000000000005},
                          {2, 0.1},
                          {3, 0.08571434285714286},
                          {4, 0.07142868571428572},
                          {5, 0.05714302857142858},
                          {6, 0.042857371428571434},
                          {7, 0.028571714285714284},
                          {8, 0.014286057142857148},
                          {9, 3.999999999976245e-07}});
}

TEST(ScheduleTest, OneCycleWithoutRiseOrFall) {
  Schedule schedule = one_cycle(10, 0.1);
  EXPECT_EQ(schedule.at(0), 0.1);  // the peak lies at step 0
  schedule.rise = 1;
  EXPECT_EQ(schedule.at(9), 0.1);
  EXPECT_EQ(schedule.at(50), 0.1);
  schedule.steps = 1;
  EXPECT_TRUE(std::isfinite(schedule.at(0)));
}

TEST(ScheduleTest, Sequence) {
  Schedule schedule;
  schedule.kind = Schedule::Kind::kSequence;
  schedule.parts = {linear(1, 0, 1, 4), constant(7), step_by_step(1, 1, 0.5)};
  schedule.milestones = {4, 6};
  expect_rates(schedule, {{0, 0}, {3, 0.75}, {4, 7}, {5, 7}, {6, 1}, {7, 0.5}, {9, 0.125}});
}

}  // namespace
}  // namespace tesser::graph
