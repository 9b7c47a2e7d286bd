#include "platform/learner/log_reader.h"

#include <chrono>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "platform/learner/log_segments.h"

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;

class LogReaderTest : public testing::Test {
 protected:
  LogWriter writer(int learner, std::int64_t log_bytes = 1 << 30) {
    return std::move(LogWriter::open(volume_.log(learner), log_bytes).value());
  }
  // A line "TEXT" whose raw output ends `raw` bytes further.
  static void add(LogWriter& writer, const std::string& text, std::int64_t time = 1) {
    writer.add_line(1, {text, 0, {}}, writer.raw_end() + text.size() + 1, time);
  }
  static std::vector<std::string> texts(const LogPage& page) {
    std::vector<std::string> texts;
    for (const LogLine& line : page.lines) {
      texts.push_back(line.text);
    }
    return texts;
  }

  TemporaryDirectory directory_;
  Volume volume_{directory_.path()};
};

TEST_F(LogReaderTest, NoLogYet) {
  LogReader reader(volume_, std::nullopt);
  EXPECT_FALSE(reader.has_more({}));
  const auto page = reader.read_waiting({}, 10, milliseconds(5));
  ASSERT_TRUE(page);
  EXPECT_TRUE(page->lines.empty());
  EXPECT_EQ(page->cursor.text(), "");
}

TEST_F(LogReaderTest, AnyReaderGoesOnFromAnyCursorAcrossSegments) {
  LogWriter log = writer(0, 40'000);  // segments of 5,000 bytes
  std::vector<std::string> all;
  LogReader one(volume_, 0);
  LogCursor cursor;
  std::mt19937 random(3);
  std::vector<std::string> seen;
  for (int line = 0; line < 400; ++line) {
    all.push_back("line " + std::to_string(line) + std::string(random() % 20, '.'));
    add(log, all.back());
    ASSERT_TRUE(log.flush());
    if (random() % 3 == 0) {
      LogReader other(volume_, 0);
      LogReader& reader = random() % 2 == 0 ? one : other;
      EXPECT_TRUE(reader.has_more(cursor));
      const auto page = reader.read(LogCursor::parse(cursor.text()).value(), 1 + random() % 10);
      ASSERT_TRUE(page) << page.error().message;
      const auto more = texts(*page);
      seen.insert(seen.end(), more.begin(), more.end());
      EXPECT_TRUE(page->missed.empty());
      cursor = page->cursor;
    }
  }
  while (true) {
    const auto page = one.read(cursor, 7);
    ASSERT_TRUE(page);
    if (page->lines.empty()) {
      break;
    }
    const auto more = texts(*page);
    seen.insert(seen.end(), more.begin(), more.end());
    cursor = page->cursor;
  }
  EXPECT_EQ(seen, all);
  EXPECT_FALSE(one.has_more(cursor));
  EXPECT_GE(log_segments(volume_.log(0))->size(), 3U);
}

TEST_F(LogReaderTest, WrongOffsetsAndStrangeCursorsChangeNothing) {
  LogWriter log = writer(0, 40'000);
  for (int line = 1; line <= 300; ++line) {
    add(log, std::to_string(line));
  }
  ASSERT_TRUE(log.flush());
  for (const std::uint64_t offset : {0ULL, 1ULL, 17ULL, 4999ULL, 1'000'000ULL, 9'000'000'000'000'000'000ULL}) {
    LogReader reader(volume_, 0);
    LogCursor cursor;
    cursor.set(0, {150, offset});
    const auto page = reader.read(cursor, 2);
    ASSERT_TRUE(page);
    EXPECT_EQ(texts(*page), (std::vector<std::string>{"150", "151"}));
  }
  LogReader reader(volume_, 0);
  LogCursor beyond;
  beyond.set(0, {1'000'000, 0});
  EXPECT_TRUE(reader.read(beyond, 5)->lines.empty());
  for (const char* text :
       {"x", "0", "0:1", "0:0:0", "0:1:2,", "-1:1:1", "0:1:2:3", "0:1:99999999999999999999", ":::"}) {
    EXPECT_FALSE(LogCursor::parse(text).has_value() && std::string(text) != "0:1:2,") << text;
  }
  EXPECT_EQ(LogCursor::parse("3:17:200,0:1:0")->text(), "0:1:0,3:17:200");
}

TEST_F(LogReaderTest, MergesLearnersByTimeAndLosesNone) {
  LogWriter first = writer(0);
  LogWriter second = writer(7);
  for (int line = 0; line < 1000; ++line) {
    add(first, "a" + std::to_string(line), 2 * line);
    add(second, "b" + std::to_string(line), 2 * line + 1);
  }
  ASSERT_TRUE(first.flush() && second.flush());
  LogReader reader(volume_, std::nullopt);
  LogCursor cursor;
  int expected = 0;
  while (true) {
    const auto page = reader.read(cursor, 33);
    ASSERT_TRUE(page);
    if (page->lines.empty()) {
      break;
    }
    for (const LogLine& line : page->lines) {
      EXPECT_EQ(line.text, (expected % 2 == 0 ? "a" : "b") + std::to_string(expected / 2));
      EXPECT_EQ(line.learner, expected % 2 == 0 ? 0 : 7);
      ++expected;
    }
    cursor = page->cursor;
  }
  EXPECT_EQ(expected, 2000);
  // A learner that begins later is found.
  LogWriter third = writer(3);
  add(third, "late", 0);
  ASSERT_TRUE(third.flush());
  EXPECT_TRUE(reader.has_more(cursor));
  EXPECT_EQ(texts(*reader.read(cursor, 5)), std::vector<std::string>{"late"});
}

TEST_F(LogReaderTest, RotationIsToldAndKeepsTheLimit) {
  constexpr std::int64_t kMost = 64 * 1024;
  LogWriter log = writer(0, kMost);
  for (int line = 0; line < 20'000; ++line) {
    add(log, "line " + std::to_string(line));
    if (line % 100 == 0) {
      ASSERT_TRUE(log.flush());
    }
  }
  ASSERT_TRUE(log.flush());
  std::uintmax_t bytes = 0;
  const auto segments = log_segments(volume_.log(0));
  for (const LogSegment& each : *segments) {
    bytes += std::filesystem::file_size(each.path);
  }
  EXPECT_LE(bytes, kMost);
  EXPECT_GE(bytes, kMost * 3 / 4);

  LogReader reader(volume_, 0);
  LogCursor cursor;
  std::uint64_t next = 1;
  int notes = 0;
  std::string last;
  while (true) {
    const auto page = reader.read(cursor, 500);
    ASSERT_TRUE(page);
    if (page->lines.empty()) {
      break;
    }
    for (const MissedLines& each : page->missed) {
      EXPECT_EQ(each.first, 1U);
      next += each.count;
    }
    for (const LogLine& line : page->lines) {
      EXPECT_EQ(line.sequence, next++);
      if (line.is_note) {
        ++notes;
        EXPECT_NE(line.text.find("have gone"), std::string::npos);
      } else {
        last = line.text;
      }
    }
    cursor = page->cursor;
  }
  EXPECT_GT(notes, 0);
  EXPECT_EQ(last, "line 19999");
  EXPECT_EQ(next, log.next_sequence());
}

TEST_F(LogReaderTest, RotationUnderAReader) {
  LogWriter log = writer(0, 64 * 1024);
  LogReader reader(volume_, 0);
  LogCursor cursor;
  std::uint64_t next = 1;
  std::uint64_t missed = 0;
  for (int line = 0; line < 30'000; ++line) {
    add(log, "line " + std::to_string(line));
    if (line % 50 == 0) {
      ASSERT_TRUE(log.flush());
    }
    if (line % 700 == 0) {
      const auto page = reader.read(cursor, 400);
      ASSERT_TRUE(page);
      for (const LogLine& each : page->lines) {
        for (const MissedLines& gap : page->missed) {
          if (gap.first == next) {
            next += gap.count;
            missed += gap.count;
          }
        }
        EXPECT_EQ(each.sequence, next++);
      }
      cursor = page->cursor;
    }
  }
  EXPECT_GT(missed, 0U);
}

TEST_F(LogReaderTest, TornAndDamagedEnds) {
  {
    LogWriter log = writer(0);
    add(log, "one");
    add(log, "two");
    ASSERT_TRUE(log.flush());
  }
  const std::filesystem::path segment = log_segments(volume_.log(0))->front().path;
  const auto append = [&](const std::string& bytes) { std::ofstream(segment, std::ios::app) << bytes; };
  LogReader reader(volume_, 0);
  LogCursor cursor = reader.read({}, 10)->cursor;
  append("3\t1\t1\t9\t-\tthr");
  EXPECT_FALSE(reader.has_more(cursor));
  EXPECT_TRUE(reader.read(cursor, 10)->lines.empty());
  {
    LogWriter log = writer(0);
    EXPECT_EQ(log.next_sequence(), 3U);
    EXPECT_EQ(log.raw_end(), 8U);
    add(log, "three");
    ASSERT_TRUE(log.flush());
  }
  EXPECT_EQ(texts(*reader.read(cursor, 10)), std::vector<std::string>{"three"});
  EXPECT_EQ(texts(*reader.read({}, 10)), (std::vector<std::string>{"one", "two", "three"}));
  // What no collector has written is passed over, and lines behind it are still there.
  append(std::string("\0\0garbage\n5\t1\t1\t30\t-\tfive\n", 26));
  const auto page = reader.read(cursor, 10);
  EXPECT_EQ(texts(*page), (std::vector<std::string>{"three", "five"}));
  ASSERT_EQ(page->missed.size(), 1U);
  EXPECT_EQ(page->missed[0].first, 4U);
}

TEST_F(LogReaderTest, AnEmptySegmentOfADeadWriterIsWrittenAnew) {
  {
    LogWriter log = writer(0);
    add(log, "one");
    ASSERT_TRUE(log.flush());
  }
  std::ofstream(segment_path(volume_.log(0), 2));
  LogWriter log = writer(0);
  EXPECT_EQ(log.next_sequence(), 2U);
  EXPECT_EQ(log.raw_end(), 4U);
  add(log, "two");
  ASSERT_TRUE(log.flush());
  LogReader reader(volume_, 0);
  EXPECT_EQ(texts(*reader.read({}, 10)), (std::vector<std::string>{"one", "two"}));
}

TEST_F(LogReaderTest, OneWriterAtATime) {
  const LogWriter log = writer(0);
  const auto other = LogWriter::open(volume_.log(0), 1 << 20);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kNotFound);
}

TEST_F(LogReaderTest, Tail) {
  LogWriter log = writer(0);
  for (int line = 1; line <= 10; ++line) {
    add(log, std::to_string(line));
  }
  ASSERT_TRUE(log.flush());
  LogReader reader(volume_, std::nullopt);
  EXPECT_EQ(texts(*reader.read(*reader.tail(3), 10)), (std::vector<std::string>{"8", "9", "10"}));
  EXPECT_EQ(reader.read(*reader.tail(100), 20)->lines.size(), 10U);
}

TEST_F(LogReaderTest, WaitsForALine) {
  LogWriter log = writer(0);
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(30));
    add(log, "now");
    ASSERT_TRUE(log.flush());
  });
  LogReader reader(volume_, std::nullopt);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(texts(*reader.read_waiting({}, 10, milliseconds(5000))), std::vector<std::string>{"now"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));
  later.join();
}

TEST_F(LogReaderTest, LongestLines) {
  LogWriter log = writer(0);
  const std::string bytes(kLongestLine, '\xff');
  add(log, bytes);
  add(log, "after");
  ASSERT_TRUE(log.flush());
  LogReader reader(volume_, 0);
  const auto page = reader.read({}, 1);
  ASSERT_EQ(page->lines.size(), 1U);
  EXPECT_EQ(page->lines[0].text.size(), 4 * kLongestLine);
  LogReader other(volume_, 0);
  EXPECT_EQ(texts(*other.read(page->cursor, 5)), std::vector<std::string>{"after"});
}

// Not a benchmark: a tenth of the speed that is asked for.
TEST_F(LogReaderTest, IsFast) {
  LogWriter log = writer(0);
  constexpr int kLines = 200'000;
  for (int line = 0; line < kLines; ++line) {
    add(log, "epoch 3 step 1200 loss 0.123456 accuracy 0.9876 lr 0.001");
  }
  ASSERT_TRUE(log.flush());
  const auto begin = std::chrono::steady_clock::now();
  LogReader reader(volume_, 0);
  LogCursor cursor;
  int lines = 0;
  while (true) {
    auto page = reader.read(cursor, 10'000);
    ASSERT_TRUE(page);
    if (page->lines.empty()) {
      break;
    }
    lines += static_cast<int>(page->lines.size());
    cursor = page->cursor;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(lines, kLines);
  std::cout << lines / seconds.count() << " lines a second\n";
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_GT(lines / seconds.count(), 1e5);
#endif
}

}  // namespace
}  // namespace tesser::platform
