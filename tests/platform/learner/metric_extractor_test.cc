#include "platform/learner/metric_extractor.h"

#include <chrono>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using Values = std::vector<std::pair<std::string, double>>;

std::optional<FoundMetrics> find(const MetricExtractor& extractor, const std::string& line) {
  auto made = make_line_extractor(extractor);
  EXPECT_TRUE(made) << made.error().message;
  return made ? (*made)->find(line) : std::nullopt;
}

TEST(RegexExtractor, NamedGroups) {
  const MetricExtractor extractor{
      "regex", R"(step (?<step>\d+)/(?P<steps>\d+): loss=(?<loss>[-+0-9.e]+)(?: acc=(?<accuracy>[\d.]+))?)", ""};
  const auto found = find(extractor, "[gpu] step 12/100: loss=2.5e-1 acc=0.5 and more");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 12);
  EXPECT_EQ(found->steps, 100);
  EXPECT_EQ(found->values, (Values{{"accuracy", 0.5}, {"loss", 0.25}}));
  EXPECT_EQ(find(extractor, "step 1/2: loss=1")->values, (Values{{"loss", 1}}));
  EXPECT_FALSE(find(extractor, "nothing of that"));
  EXPECT_TRUE(find(extractor, "step 1/2: loss=e")->values.empty());
}

TEST(RegexExtractor, BracketsAndEscapesAreLeftAlone) {
  EXPECT_EQ(find({"regex", R"([(?<]\(?<x>(?<x>\d))", ""}, "<(<x>7")->values, (Values{{"x", 7}}));
}

TEST(RegexExtractor, SaysWhatIsWrong) {
  for (const char* pattern : {"(?<loss>[0-9", "loss (\\d+)", "(?<step>\\d+)", "(?<=x)(?<y>\\d)", "(?<x>a){1001}"}) {
    const auto made = make_line_extractor({"regex", pattern, ""});
    ASSERT_FALSE(made) << pattern;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidInput);
    EXPECT_NE(made.error().message.find(pattern), std::string::npos);
  }
}

// A pattern on which engines that try every way need longer than anybody waits.
TEST(RegexExtractor, TakesLinearTime) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(find({"regex", "(?<x>(a+)+)$", ""}, std::string(60'000, 'a') + "!"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(JsonExtractor, NumbersOfObjects) {
  const auto found =
      find({"json", "", ""}, R"(  {"step": 3, "steps": 9, "time": 1.5, "loss": 0.5, "ok": true, "name": "x",
      "eval": {"top1": 1, "deep": {"er": 2}}, "list": [1], "null": null})");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 3);
  EXPECT_EQ(found->steps, 9);
  EXPECT_EQ(found->time, 1'500'000);
  EXPECT_EQ(found->values, (Values{{"loss", 0.5}, {"eval/top1", 1}, {"eval/deep/er", 2}}));
  EXPECT_FALSE(find({"json", "", ""}, "plain"));
  EXPECT_FALSE(find({"json", "", ""}, "{\"loss\": "));
  EXPECT_FALSE(find({"json", "", ""}, "[1]"));
  EXPECT_FALSE(find({"json", "", ""}, std::string(60'000, '{')));
  EXPECT_EQ(find({"json", "", ""}, R"({"step": 1.5, "loss": 1})")->step, std::nullopt);
  EXPECT_EQ(find({"json", "", ""}, R"({"step": -1, "time": -1, "loss": 1})")->step, std::nullopt);
}

TEST(TesserExtractor, EventsOfARun) {
  const MetricExtractor tesser{"tesser", "", ""};
  const auto start = find(tesser, R"({"event":"start","program":"p","step":20,"until_step":100})");
  ASSERT_TRUE(start);
  EXPECT_EQ(start->step, 20);
  EXPECT_EQ(start->steps, 100);
  EXPECT_TRUE(start->values.empty());
  const auto step = find(tesser, R"({"event":"step","step":21,"epoch":1,"loss":null,"metrics":{"accuracy":0.5},)"
                                 R"("learning_rate":[0.1,0.2],"seconds":0.25})");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step, 21);
  ASSERT_EQ(step->values.size(), 4U);
  EXPECT_TRUE(std::isnan(step->values[0].second));
  EXPECT_EQ(Values(step->values.begin() + 1, step->values.end()),
            (Values{{"accuracy", 0.5}, {"learning_rate", 0.1}, {"seconds", 0.25}}));
  EXPECT_EQ(find(tesser, R"({"event":"evaluation","step":21,"results":{"loss":2.0}})")->values,
            (Values{{"evaluation/loss", 2}}));
  EXPECT_FALSE(find(tesser, R"({"event":"note","message":"step"})"));
  EXPECT_FALSE(find(tesser, R"({"event":3})"));
  EXPECT_FALSE(find(tesser, "\"event\""));
}

}  // namespace
}  // namespace tesser::platform
