#include "platform/learner/metrics_thinner.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

TEST(MetricsThinner, KeepsAllWhereThereIsRoom) {
  MetricsThinner thinner(10);
  for (int step = 1; step <= 10; ++step) {
    thinner.add({0, step, step * 1000, "loss", 1.0 / step});
  }
  const auto metrics = thinner.metrics();
  ASSERT_EQ(metrics.size(), 10U);
  EXPECT_EQ(metrics[3].step, 4);
  EXPECT_EQ(metrics[3].time, 4000);
  EXPECT_EQ(metrics[3].value, 0.25);
}

TEST(MetricsThinner, KeepsEndsAndExtremesOfAMillionSteps) {
  MetricsThinner thinner(100);
  constexpr int kSteps = 1'000'000;
  for (int step = 0; step < kSteps; ++step) {
    const double value = step == 333'333 ? 50 : step == 666'667 ? -50 : std::sin(step);
    thinner.add({3, step, step, "loss", value});
  }
  const auto metrics = thinner.metrics();
  EXPECT_LE(metrics.size(), 500U);
  EXPECT_GE(metrics.size(), 100U);
  EXPECT_EQ(metrics.front().step, 0);
  EXPECT_EQ(metrics.back().step, kSteps - 1);
  int extremes = 0;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    EXPECT_EQ(metrics[i].learner, 3);
    EXPECT_TRUE(i == 0 || metrics[i].step > metrics[i - 1].step);
    extremes += (metrics[i].step == 333'333 && metrics[i].value == 50) ||
                (metrics[i].step == 666'667 && metrics[i].value == -50);
  }
  EXPECT_EQ(extremes, 2);
}

TEST(MetricsThinner, AValueThatIsNotFiniteStays) {
  MetricsThinner thinner(4);
  for (int step = 0; step < 1000; ++step) {
    thinner.add({0, step, step, "loss", step == 500 ? std::numeric_limits<double>::quiet_NaN() : 1});
  }
  int broken = 0;
  for (const Metric& metric : thinner.metrics()) {
    broken += !std::isfinite(metric.value) && metric.step == 500;
  }
  EXPECT_EQ(broken, 1);
}

TEST(MetricsThinner, StepsMayGoBack) {
  MetricsThinner thinner(100);
  for (const int step : {1, 2, 3, 2, 3, 4}) {
    thinner.add({0, step, 0, "loss", 0.5});
  }
  std::vector<std::int64_t> steps;
  for (const Metric& metric : thinner.metrics()) {
    steps.push_back(metric.step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 2, 3, 4}));
}

TEST(MetricsThinner, ManyCurvesShareTheRoom) {
  MetricsThinner thinner(1000);
  for (int name = 0; name < 2000; ++name) {
    for (int step = 0; step < 200; ++step) {
      thinner.add({0, step, step, "m" + std::to_string(name), double(step)});
    }
  }
  EXPECT_LE(thinner.metrics().size(), 5 * MetricsThinner::kMostBuckets);
  EXPECT_GE(thinner.metrics().size(), MetricsThinner::kMostCurves * 25);
}

}  // namespace
}  // namespace tesser::platform
