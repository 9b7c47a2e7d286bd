#include "platform/learner/collector.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "base/file.h"
#include "platform/learner/log_reader.h"

namespace tesser::platform {
namespace {

class CollectorTest : public testing::Test {
 protected:
  CollectorTest() { std::filesystem::create_directories(volume_.log(0)); }

  CollectorOptions options(int attempt, std::int64_t log_bytes = 1 << 30) {
    return {volume_, 0, attempt, log_bytes, {{"regex", "loss (?<loss>[0-9.]+)", ""}}};
  }
  Collector collector(int attempt, std::int64_t log_bytes = 1 << 30) {
    return std::move(Collector::open(options(attempt, log_bytes)).value());
  }
  void output(int attempt, const std::string& bytes) {
    std::ofstream(volume_.raw_log(0, attempt), std::ios::app | std::ios::binary) << bytes;
  }
  std::vector<LogLine> lines() {
    LogReader reader(volume_, 0);
    return std::move(reader.read({}, 1'000'000)->lines);
  }
  std::vector<std::string> texts() {
    std::vector<std::string> texts;
    for (const LogLine& line : lines()) {
      texts.push_back(line.text);
    }
    return texts;
  }

  TemporaryDirectory directory_;
  Volume volume_{directory_.path()};
};

TEST_F(CollectorTest, LinesAsTheyComeAndTheRestAtTheEnd) {
  Collector one = collector(1);
  EXPECT_FALSE(*one.collect(false));
  output(1, "a\nb");
  EXPECT_TRUE(*one.collect(false));
  EXPECT_EQ(texts(), std::vector<std::string>{"a"});
  EXPECT_FALSE(*one.collect(false));
  output(1, "c\nloss 0.5\nd");
  ASSERT_TRUE(one.collect(true));
  ASSERT_TRUE(one.finish());
  EXPECT_EQ(texts(), (std::vector<std::string>{"a", "bc", "loss 0.5", "d"}));
  EXPECT_EQ(one.lines(), 4U);
  EXPECT_FALSE(std::filesystem::exists(volume_.raw_log(0, 1)));
  EXPECT_EQ(MetricsReader(volume_, 0).read("", 10)->metrics.size(), 1U);
}

// Whenever a collector is replaced by another, each line and each metric is there once.
TEST_F(CollectorTest, AnyNumberOfDeaths) {
  std::mt19937 random(5);
  std::vector<std::string> all;
  std::string waiting;
  std::optional<Collector> one;
  for (int attempt = 1; attempt <= 4; ++attempt) {
    one.reset();
    for (int round = 0; round < 60; ++round) {
      if (!one || random() % 3 == 0) {
        one.reset();
        one.emplace(collector(attempt));
      }
      for (int line = static_cast<int>(random() % 20); line > 0; --line) {
        all.push_back("loss " + std::to_string(all.size()));
        waiting += all.back() + "\n";
      }
      const std::size_t now = random() % (waiting.size() + 1);
      output(attempt, waiting.substr(0, now));
      waiting.erase(0, now);
      ASSERT_TRUE(one->collect(false));
    }
    output(attempt, waiting);  // seen by the next attempt's collector only
    waiting.clear();
  }
  ASSERT_TRUE(one->collect(true));
  ASSERT_TRUE(one->finish());
  EXPECT_EQ(texts(), all);
  const auto metrics = MetricsReader(volume_, 0).read("", 1'000'000)->metrics;
  ASSERT_EQ(metrics.size(), all.size());
  for (std::size_t index = 0; index < all.size(); ++index) {
    EXPECT_EQ(metrics[index].value, static_cast<double>(index));
    EXPECT_EQ(metrics[index].step, static_cast<std::int64_t>(index) + 1);
  }
  const std::vector<LogLine> seen = lines();
  for (std::size_t index = 0; index < seen.size(); ++index) {
    EXPECT_EQ(seen[index].sequence, index + 1);
  }
  EXPECT_EQ(seen.back().attempt, 4);
}

// The log cut at every byte is what a killed collector may leave: the next one restores it.
TEST_F(CollectorTest, ALogCutAnywhereIsRestored) {
  const std::string bytes = "loss 1\nb\xff\n\n\rloss 2\rc\nrest";
  output(1, bytes);
  Collector first = collector(1);
  ASSERT_TRUE(first.collect(true));
  const std::vector<std::string> expected = texts();
  EXPECT_EQ(expected, (std::vector<std::string>{"loss 1", "b\\xff", "", "loss 2", "c", "rest"}));
  const std::filesystem::path segment = log_segments(volume_.log(0))->front().path;
  const std::string log = read_file(segment).value();
  const std::string metrics = read_file(volume_.metrics(0)).value();
  { Collector gone = std::move(first); }
  for (std::size_t length = 0; length <= log.size(); ++length) {
    std::ofstream(segment, std::ios::trunc) << log.substr(0, length);
    // Metrics are written after the lines they come from.
    std::string kept;
    for (std::size_t at = 0; at < metrics.size(); at = metrics.find('\n', at) + 1) {
      const auto line = parse_metric_line(std::string_view(metrics).substr(at, metrics.find('\n', at) - at));
      if (static_cast<std::size_t>(std::count(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(length), '\n')) >=
          line->position) {
        kept += metrics.substr(at, metrics.find('\n', at) + 1 - at);
      }
    }
    std::ofstream(volume_.metrics(0), std::ios::trunc) << kept;
    {
      Collector again = collector(1);
      ASSERT_TRUE(again.collect(true));
    }
    ASSERT_EQ(texts(), expected) << length;
    ASSERT_EQ(MetricsReader(volume_, 0).read("", 10)->metrics.size(), 2U) << length;
  }
}

TEST_F(CollectorTest, LongLinesInPieces) {
  const std::string line(3 * kLongestLine + 10, 'y');
  output(1, line + "\nnext\n");
  Collector one = collector(1);
  ASSERT_TRUE(one.collect(true));
  const std::vector<LogLine> seen = lines();
  ASSERT_EQ(seen.size(), 5U);
  EXPECT_EQ(seen[0].text + seen[1].text + seen[2].text + seen[3].text, line);
  EXPECT_TRUE(seen[0].is_cut && seen[1].is_cut && seen[2].is_cut);
  EXPECT_FALSE(seen[3].is_cut);
}

std::uintmax_t blocks_in(const std::filesystem::path& directory) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    struct stat status {};
    ::stat(entry.path().c_str(), &status);
    bytes += static_cast<std::uintmax_t>(status.st_blocks) * 512;
  }
  return bytes;
}

// 12 MB of output under a limit of 1 MiB: neither log nor raw output takes more room than that, and what is kept is
// the end.
TEST_F(CollectorTest, AFloodTakesBoundedRoom) {
  constexpr std::int64_t kMost = 1 << 20;
  Collector one = collector(1, kMost);
  std::string block;
  int next = 0;
  std::uintmax_t most = 0;
  for (int round = 0; round < 24; ++round) {
    block.clear();
    while (block.size() < 500'000) {
      block += "flood " + std::to_string(next++) + "\n";
    }
    output(1, block);
    ASSERT_TRUE(one.collect(false));
    most = std::max(most, blocks_in(volume_.log(0)));
  }
  ASSERT_TRUE(one.collect(true));
  EXPECT_LT(most, 4U * kMost);
  EXPECT_EQ(lines().back().text.substr(0, 6), lines().back().is_note ? "tesser" : "flood ");
  bool has_last = false;
  for (const LogLine& line : lines()) {
    has_last = has_last || line.text == "flood " + std::to_string(next - 1);
  }
  EXPECT_TRUE(has_last);
}

TEST_F(CollectorTest, OutputThatComesTooFastIsPassedOverWithANote) {
  constexpr std::int64_t kMost = 1 << 20;
  Collector one = collector(1, kMost);
  std::string block;
  const std::string rest(300, '.');  // what is left must not be rotated away with the note
  for (int line = 0; block.size() < 5'000'000; ++line) {
    block += "flood " + std::to_string(line) + rest + "\n";
  }
  output(1, block);
  ASSERT_TRUE(one.collect(true));
  bool has_note = false;
  int before = -1;
  for (const LogLine& line : lines()) {
    if (line.is_note) {
      has_note = has_note || line.text.find("passed over") != std::string::npos;
    } else {
      const int number = std::stoi(line.text.substr(6));
      EXPECT_TRUE(before < 0 || number == before + 1);
      before = number;
    }
  }
  EXPECT_TRUE(has_note);
  EXPECT_TRUE(block.ends_with("flood " + std::to_string(before) + rest + "\n"));
}

TEST_F(CollectorTest, WhatADeadLearnerLeftIsCollected) {
  output(1, "a\n");
  output(2, "loss 3\nb");
  Manifest manifest;
  manifest.metrics = options(1).metrics;
  const auto last = collect_remaining(volume_, manifest, 0, std::chrono::milliseconds(100));
  ASSERT_TRUE(last) << last.error().message;
  EXPECT_EQ(*last, 3U);
  EXPECT_EQ(texts(), (std::vector<std::string>{"a", "loss 3", "b"}));
  EXPECT_EQ(read_progress(volume_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(*collect_remaining(volume_, manifest, 0, std::chrono::milliseconds(100)), 3U);
}

}  // namespace
}  // namespace tesser::platform
