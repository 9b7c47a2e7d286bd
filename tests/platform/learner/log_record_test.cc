#include "platform/learner/log_record.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

std::string text_of(std::string_view bytes) {
  std::string text;
  append_text(text, bytes);
  return text;
}

// All lines of some output, as "FLAGS:TEXT".
std::vector<std::string> lines_of(std::string_view bytes, bool at_end) {
  std::vector<std::string> lines;
  bool continues = false;
  while (const auto piece = next_line(bytes, at_end, continues)) {
    const LogFlags& flags = piece->flags;
    lines.push_back(std::string(flags.cut ? "c" : "") + (flags.returned ? "r" : "") + (flags.unended ? "e" : "") + ":" +
                    std::string(piece->bytes));
    continues = flags.cut;
    bytes.remove_prefix(piece->consumed);
  }
  return lines;
}

TEST(LogRecord, ReadsWhatItWrites) {
  for (const std::string& text :
       {std::string(), std::string("a\tb \x1b[31m"), std::string("Grüße 🙂"), std::string("x\0y", 3)}) {
    LogRecord record{17, 1'795'732'832'123'456, 3, 1ULL << 40, {true, false, true, false, true}, text};
    std::string bytes;
    append_record(bytes, record);
    ASSERT_EQ(bytes.back(), '\n');
    bytes.pop_back();
    EXPECT_EQ(parse_record(bytes), record);
  }
}

TEST(LogRecord, RefusesWhatIsNone) {
  for (const char* text :
       {"", "1", "1\t2\t3\t4\t-", "0\t2\t3\t4\t-\tx", "1\t-2\t3\t4\t-\tx", "1\t2\t3\t4\tz\tx", "1\t2\t3\t4\t\tx",
        "1 \t2\t3\t4\t-\tx", "99999999999999999999\t2\t3\t4\t-\tx", "\t\t\t\t\t"}) {
    EXPECT_FALSE(parse_record(text)) << text;
  }
}

TEST(LogText, KeepsUtf8AndEscapesTheRest) {
  EXPECT_EQ(text_of("Grüße \\ 🙂"), "Grüße \\ 🙂");
  EXPECT_EQ(text_of("a\xff\\b"), "a\\xff\\\\b");
  EXPECT_EQ(text_of("\xc3"), "\\xc3");                             // cut short
  EXPECT_EQ(text_of("\xc0\xaf"), "\\xc0\\xaf");                    // longer than needed
  EXPECT_EQ(text_of("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(text_of("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond the last character
  EXPECT_EQ(text_of("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf");
  std::string text;
  EXPECT_FALSE(append_text(text, "abcdefghijklmnopé"));
  EXPECT_TRUE(append_text(text, "abcdefghijklmnop\xe9"));
}

TEST(NextLine, EndsOfLines) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of("a\nb\r\n\nc", false), (Lines{":a", ":b", ":"}));
  EXPECT_EQ(lines_of("a\nb\r\n\nc", true), (Lines{":a", ":b", ":", "e:c"}));
  // A progress bar that begins each turn with a carriage return, and one that ends it so.
  EXPECT_EQ(lines_of("\r10%\r20%\n", true), (Lines{"r:10%", ":20%"}));
  EXPECT_EQ(lines_of("10%\r20%\r", false), (Lines{"r:10%"}));
  EXPECT_EQ(lines_of("10%\r20%\r", true), (Lines{"r:10%", "r:20%"}));
  EXPECT_EQ(lines_of("", true), Lines{});
  EXPECT_EQ(lines_of("\r", true), Lines{});
}

TEST(NextLine, CutsLongLinesBetweenCharacters) {
  const std::string full(kLongestLine, 'x');
  EXPECT_EQ(lines_of(full + "\n", false), (std::vector<std::string>{":" + full}));
  EXPECT_EQ(lines_of(full, false), std::vector<std::string>{});
  EXPECT_EQ(lines_of(full + "yz\n", false), (std::vector<std::string>{"c:" + full, ":yz"}));
  const std::string before(kLongestLine - 1, 'x');
  EXPECT_EQ(lines_of(before + "é\n", false), (std::vector<std::string>{"c:" + before, ":é"}));
}

// However output arrives, its lines are the same: what a restarted collector depends on.
TEST(NextLine, DoesNotDependOnHowOutputArrives) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string output;
    for (int length = static_cast<int>(random() % 60); length > 0; --length) {
      output += "ab\n\r\r\né"[random() % 8];
    }
    const std::vector<std::string> whole = lines_of(output, true);
    std::vector<std::string> pieces;
    std::size_t begin = 0;
    for (std::size_t end = 0; end <= output.size(); ++end) {
      while (const auto piece =
                 next_line(std::string_view(output).substr(begin, end - begin), end == output.size(), false)) {
        pieces.push_back((piece->flags.returned  ? "r:"
                          : piece->flags.unended ? "e:"
                                                 : ":") +
                         std::string(piece->bytes));
        begin += piece->consumed;
      }
    }
    EXPECT_EQ(pieces, whole) << output;
  }
}

}  // namespace
}  // namespace tesser::platform
