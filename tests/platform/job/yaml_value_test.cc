#include "platform/job/yaml_value.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Kind = YamlValue::Kind;

YamlValue only_value(const std::string& scalar) {
  const auto document = parse_yaml("key: " + scalar, "job.yaml");
  EXPECT_TRUE(document.has_value()) << document.error().message;
  return document->members().at(0).second;
}

TEST(YamlValue, ScalarsAreThoseOfTheCoreSchema) {
  for (const char* number :
       {"1", "-7", "+7", "0o17", "0x1f", "1.5", ".5", "1e3", "-1.25e-2", ".inf", "-.INF", ".nan"}) {
    EXPECT_EQ(only_value(number).kind, Kind::kNumber) << number;
  }
  for (const char* text : {"'1'", "\"1\"", "!!str 1", "1.2.3", "e1", "--1", "+-1", "0x", "0b1", "1_000", "yes", "no",
                           "inf", "nan", "1:30", "12GiB", "trueish"}) {
    EXPECT_EQ(only_value(text).kind, Kind::kText) << text;
  }
  EXPECT_EQ(only_value("true").kind, Kind::kBoolean);
  EXPECT_EQ(only_value("~").kind, Kind::kNull);
  EXPECT_EQ(only_value("").kind, Kind::kNull);
  EXPECT_EQ(only_value("0x1f").number, 31);
  EXPECT_EQ(only_value("0017").number, 17);  // not octal, as it would be in YAML 1.1
  EXPECT_TRUE(only_value("2.0").is_integer);
  EXPECT_FALSE(only_value("2.5").is_integer);
  EXPECT_FALSE(only_value("1e300").is_integer);
  EXPECT_FALSE(only_value("1e999").is_integer);
}

TEST(YamlValue, PlacesAreThoseOfTheText) {
  const std::string text = "# first\nname: mnist\nlist:\n  - 'a'\n  - b # last\n";
  const auto document = parse_yaml(text, "job.yaml");
  ASSERT_TRUE(document.has_value()) << document.error().message;
  EXPECT_EQ(document->members().at(0).first.line, 2);
  const YamlValue& list = document->members().at(1).second;
  EXPECT_EQ(list.items.at(0).line, 4);
  EXPECT_EQ(text.substr(list.items.at(0).position, 3), "'a'");
  EXPECT_EQ(text.substr(list.items.at(1).position, 1), "b");
}

TEST(YamlValue, WhatIsNoManifestIsRefusedWithItsLine) {
  const auto message = [](const std::string& text) {
    const auto document = parse_yaml(text, "job.yaml");
    EXPECT_FALSE(document.has_value()) << text;
    return document ? "" : document.error().message;
  };
  EXPECT_THAT(message(""), HasSubstr("is empty"));
  EXPECT_THAT(message("# nothing\n"), HasSubstr("is empty"));
  EXPECT_THAT(message("a: 1\nb: [1, 2\n"), StartsWith("job.yaml, line "));
  EXPECT_THAT(message("a: 1\nb: 2\na: 3\n"), StartsWith("job.yaml, line 3: 'a' stands here a second time; line 1"));
  EXPECT_THAT(message("a: 1\n---\nb: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(message("a: !python/object x\n"), StartsWith("job.yaml, line 1: the tag '!python/object'"));
  EXPECT_THAT(message("? [a, b]\n: c\n"), HasSubstr("a key must be a word"));
  EXPECT_THAT(message("a: &a [*a]\n"), StartsWith("job.yaml"));
  EXPECT_THAT(message("a: 1\nb: \xff\n"), StartsWith("job.yaml, line 2: is no text in UTF-8"));
  EXPECT_THAT(message(std::string("a: b\0c", 7)), HasSubstr("is no text in UTF-8"));
  EXPECT_THAT(message("a: \xed\xa0\x80"), HasSubstr("is no text in UTF-8"));
  EXPECT_THAT(message(std::string(50'000, '[')), StartsWith("job.yaml"));
  EXPECT_THAT(message(std::string(2'000'000, 'a')), HasSubstr("larger than 1 MiB"));
}

TEST(YamlValue, AliasesThatGrowAreRefusedAtOnce) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 8; ++j) {
      text += ", " + before;
    }
    text += "]\n";
  }
  const auto document = parse_yaml(text, "job.yaml");
  ASSERT_FALSE(document.has_value());
  EXPECT_THAT(document.error().message, HasSubstr("too many values"));
}

}  // namespace
}  // namespace tesser::platform
