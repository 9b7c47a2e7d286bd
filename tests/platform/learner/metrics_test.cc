#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "base/file.h"
#include "platform/learner/event_file.h"
#include "platform/learner/metric_files.h"
#include "platform/learner/metrics_reader.h"
#include "platform/learner/metrics_writer.h"

namespace tesser::platform {
namespace {

class MetricsTest : public testing::Test {
 protected:
  MetricsWriter writer(int learner = 0, std::int64_t bytes = 1 << 20) {
    return std::move(MetricsWriter::open(volume_.metrics(learner), bytes).value());
  }
  std::string file(int learner = 0) { return read_file(volume_.metrics(learner)).value(); }
  static FoundMetrics found(std::optional<std::int64_t> step, std::vector<std::pair<std::string, double>> values) {
    return {step, {}, {}, std::move(values)};
  }

  TemporaryDirectory directory_;
  Volume volume_{directory_.path()};
};

TEST(MetricLine, ReadsWhatItWrites) {
  for (const MetricLine& line : {MetricLine{12, 1'795'732'832'123'456, "loss", 0.1, "0", 7},
                                 MetricLine{0, 1, "a \"b\" \\ \n é", -1e-300, "1:x/y", 1ULL << 40}}) {
    std::string text;
    append_metric_line(text, line);
    ASSERT_EQ(text.back(), '\n');
    text.pop_back();
    const auto read = parse_metric_line(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(read->step, line.step);
    EXPECT_EQ(read->time, line.time);
    EXPECT_EQ(read->name, line.name);
    EXPECT_EQ(read->value, line.value);
    EXPECT_EQ(read->source, line.source);
    EXPECT_EQ(read->position, line.position);
    for (std::size_t length = 0; length < text.size(); ++length) {
      EXPECT_FALSE(parse_metric_line(text.substr(0, length)));
    }
  }
  for (const char* name : {"\"a\xff\"", "\"a\x01\"", "\"\\ud800\"", "x", "\"x"}) {
    EXPECT_FALSE(parse_metric_line("{\"step\":1,\"time\":1,\"name\":" + std::string(name) +
                                   ",\"value\":1.0,\"source\":\"0\",\"position\":1}"));
  }
  std::string text;
  append_metric_line(text, {1, 1, "x", HUGE_VAL, "0", 1});
  EXPECT_NE(text.find("\"value\":null"), std::string::npos);
  text.pop_back();
  EXPECT_TRUE(std::isnan(parse_metric_line(text)->value));
}

// A source that is read again after a writer's death anywhere in the file gives the same file.
TEST_F(MetricsTest, EachOnceWhereverTheWriterDied) {
  const auto feed = [&](MetricsWriter& to) {
    for (std::uint64_t record = 1; record <= 5; ++record) {
      to.add("0", record, found(static_cast<std::int64_t>(record), {{"loss", 0.5}, {"accuracy", 1}, {"x", 2}}), 7);
      to.add("1", record * 10, found(std::nullopt, {{"rate", static_cast<double>(record)}}), 8);
    }
    ASSERT_TRUE(to.flush());
  };
  {
    MetricsWriter first = writer();
    feed(first);
  }
  const std::string whole = file();
  EXPECT_NE(whole.find("{\"step\":5,\"time\":8,\"name\":\"rate\",\"value\":5.0,\"source\":\"1\",\"position\":50}"),
            std::string::npos);
  for (std::size_t length = 0; length <= whole.size(); length += 5) {
    std::ofstream(volume_.metrics(0), std::ios::trunc) << whole.substr(0, length);
    MetricsWriter again = writer();
    feed(again);
    ASSERT_EQ(file(), whole) << length;
  }
}

TEST_F(MetricsTest, StopsAtItsLimit) {
  MetricsWriter to = writer(0, 1000);
  for (std::uint64_t record = 1; record < 100; ++record) {
    to.add("0", record, found(1, {{"loss", 1}}), 1);
  }
  EXPECT_TRUE(to.is_full());
  ASSERT_TRUE(to.flush());
  EXPECT_LE(file().size(), 1000U);
  EXPECT_GE(file().size(), 900U);
}

TEST_F(MetricsTest, CursorsLoseNothing) {
  MetricsWriter zero = writer(0);
  MetricsWriter one = writer(1);
  MetricsReader all(volume_, std::nullopt);
  MetricsReader losses(volume_, 1, "loss");
  EXPECT_TRUE(all.read("", 10)->metrics.empty());
  std::string cursor;
  std::string cursor_of_losses;
  int seen = 0;
  int seen_losses = 0;
  for (std::uint64_t record = 1; record <= 200; ++record) {
    zero.add("0", record, found(std::nullopt, {{"a", 1}}), 1);
    one.add("0", record, found(std::nullopt, {{"loss", 1}, {"b", 2}}), 1);
    ASSERT_TRUE(zero.flush() && one.flush());
    if (record % 7 == 0) {
      const auto page = all.read(cursor, 5);
      seen += static_cast<int>(page->metrics.size());
      cursor = page->cursor;
      const auto loss = losses.read(cursor_of_losses, 3);
      seen_losses += static_cast<int>(loss->metrics.size());
      cursor_of_losses = loss->cursor;
    }
  }
  while (all.has_more(cursor)) {
    const auto page = all.read(cursor, 50);
    seen += static_cast<int>(page->metrics.size());
    cursor = page->cursor;
  }
  while (losses.has_more(cursor_of_losses)) {
    const auto page = losses.read(cursor_of_losses, 50);
    for (const Metric& each : page->metrics) {
      EXPECT_EQ(each.learner, 1);
      EXPECT_EQ(each.name, "loss");
      EXPECT_EQ(each.step, ++seen_losses);
    }
    cursor_of_losses = page->cursor;
  }
  EXPECT_EQ(seen, 600);
  EXPECT_EQ(seen_losses, 200);
  for (const char* wrong : {"x", "0", "0:", "0:-1", "-1:0", "0:1:2", ":"}) {
    EXPECT_FALSE(all.read(wrong, 1)) << wrong;
  }
  EXPECT_TRUE(all.read("0:17", 1000));  // within a line: from the next one on
}

TEST_F(MetricsTest, FilesOfLinesAndOfEvents) {
  const std::filesystem::path root = directory_.path() / "results";
  std::filesystem::create_directories(root / "tb" / "run");
  MetricFiles files({root});
  ASSERT_TRUE(files.add(0, {"json", "", "metrics.jsonl"}));
  ASSERT_TRUE(files.add(1, {"tensorboard", "", "tb"}));
  EXPECT_FALSE(files.add(2, {"json", "", "../secret"}));
  EXPECT_FALSE(files.add(2, {"json", "", "/etc/passwd"}));
  int told = 0;
  const auto look = [&](MetricsWriter& to) {
    const auto notes = files.read(to, [&](const FoundMetrics&, std::int64_t) { ++told; });
    EXPECT_TRUE(to.flush());
    return notes;
  };
  MetricsWriter to = writer();
  EXPECT_TRUE(look(to).empty());
  const std::filesystem::path events = root / "tb" / "run" / "events.out.tfevents.1.host";
  std::string bytes;
  append_tf_record(bytes, version_event_bytes(1));
  append_tf_record(bytes, event_bytes({1.5, 3, {{"loss", 0.25}}}));
  std::ofstream(events, std::ios::app) << bytes.substr(0, bytes.size() - 2);
  std::ofstream(root / "metrics.jsonl", std::ios::app) << "{\"step\": 1, \"x\": 2}\nnone\n{\"step\": 2, \"x\":";
  EXPECT_TRUE(look(to).empty());
  EXPECT_EQ(told, 1);
  std::ofstream(events, std::ios::app) << bytes.substr(bytes.size() - 2);
  std::ofstream(root / "metrics.jsonl", std::ios::app) << " 3}\n";
  EXPECT_TRUE(look(to).empty());
  EXPECT_EQ(told, 3);
  EXPECT_NE(file().find("\"name\":\"x\",\"value\":2.0,\"source\":\"0:metrics.jsonl\",\"position\":20}\n"),
            std::string::npos);
  EXPECT_NE(file().find("\"step\":3,\"time\":1500000,\"name\":\"loss\",\"value\":0.25,\"source\":\"1:tb/run/"),
            std::string::npos);
  {  // another collector goes on, and a file that was written anew is read anew
    MetricFiles other({root});
    ASSERT_TRUE(other.add(0, {"json", "", "metrics.jsonl"}));
    ASSERT_TRUE(other.add(1, {"tensorboard", "", "tb"}));
    const std::string before = file();
    const auto ignore = [](const FoundMetrics&, std::int64_t) {};
    other.read(to, ignore);
    ASSERT_TRUE(to.flush());
    EXPECT_EQ(file(), before);
    std::ofstream(root / "metrics.jsonl", std::ios::trunc) << "{\"y\": 1}\n";
    other.read(to, ignore);
    ASSERT_TRUE(to.flush());
    EXPECT_NE(file().find("\"name\":\"y\""), std::string::npos);
  }
  std::ofstream(events, std::ios::app) << std::string(40, 'x');
  EXPECT_EQ(look(to).size(), 1U);
  EXPECT_TRUE(look(to).empty()) << "said twice";
}

TEST_F(MetricsTest, Progress) {
  std::filesystem::create_directories(volume_.all_metrics());
  EXPECT_EQ(read_progress(volume_).error().code, ErrorCode::kNotFound);
  ProgressWriter progress(volume_, 2);
  ASSERT_TRUE(progress.write(true));
  EXPECT_FALSE(read_progress(volume_));
  FoundMetrics begin = found(10, {});
  begin.steps = 110;
  progress.saw(begin, 1'000'000);
  for (int second = 1; second <= 10; ++second) {
    progress.saw(found(10 + 5 * second, {}), 1'000'000 + second * 1'000'000);
  }
  ASSERT_TRUE(progress.write(true));
  auto read = read_progress(volume_);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->attempt, 2);
  EXPECT_EQ(read->step, 60);
  EXPECT_EQ(read->steps, 110);
  EXPECT_DOUBLE_EQ(*read->seconds_left, 10);
  ProgressWriter next(volume_, 3);  // a restart from step 20
  next.saw(found(20, {}), 20'000'000);
  ASSERT_TRUE(next.write(true));
  read = read_progress(volume_);
  EXPECT_EQ(read->attempt, 3);
  EXPECT_EQ(read->step, 20);
  EXPECT_EQ(read->steps, 110);
  EXPECT_EQ(read->seconds_left, std::nullopt);
}

TEST_F(MetricsTest, LastFiguresAsPrometheusText) {
  MetricsWriter zero = writer(0);
  MetricsWriter one = writer(1);
  for (int step = 1; step <= 3; ++step) {
    zero.add("0", static_cast<std::uint64_t>(step), found(step, {{"loss", 1.0 / step}, {"b\"\\", HUGE_VAL}}),
             step * 1'000'000);
  }
  one.add("0", 1, found(5, {{"loss", 8}}), 9'000'000);
  ASSERT_TRUE(zero.flush() && one.flush());
  auto figures = last_figures("job-1", volume_);
  ASSERT_TRUE(figures);
  figures->progress = Progress{1, 3, 10, 2.5, 0};
  const std::string text = prometheus_text({*figures, {"job-2", {}, {}}});
  for (const char* line : {"tesser_metric{job=\"job-1\",learner=\"0\",name=\"loss\"} 0.3333333333333333\n",
                           "tesser_metric{job=\"job-1\",learner=\"0\",name=\"b\\\"\\\\\"} NaN\n",
                           "tesser_metric_step{job=\"job-1\",learner=\"1\",name=\"loss\"} 5\n",
                           "tesser_job_step{job=\"job-1\"} 3\n", "tesser_job_steps{job=\"job-1\"} 10\n",
                           "tesser_job_seconds_left{job=\"job-1\"} 2.5\n", "# TYPE tesser_metric gauge\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

}  // namespace
}  // namespace tesser::platform
