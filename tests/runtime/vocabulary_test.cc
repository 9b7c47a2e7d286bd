#include "runtime/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Vocabulary, TokensAreCodePoints) {
  const test::TemporaryDirectory directory;
  test::write_text(directory / "vocabulary.json", R"({"characters": "\n aé漢😀"})");
  const auto vocabulary = Vocabulary::read(directory.path());
  ASSERT_TRUE(vocabulary.has_value()) << vocabulary.error().message;
  EXPECT_EQ(vocabulary->size(), 6);
  const auto tokens = vocabulary->encode("é😀\n漢a");
  ASSERT_TRUE(tokens.has_value());
  EXPECT_THAT(*tokens, ElementsAre(3, 5, 0, 4, 2));
  EXPECT_EQ(vocabulary->decode(4), "漢");
  const auto unknown = vocabulary->encode("aß");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message, HasSubstr("\"ß\" is not in the vocabulary"));
  EXPECT_FALSE(vocabulary->encode("\xC3").has_value());
}

TEST(Vocabulary, RefusesMalformedFiles) {
  const test::TemporaryDirectory directory;
  const auto path = directory / "v.json";
  EXPECT_EQ(Vocabulary::read(path).error().code, ErrorCode::kNotFound);
  for (const char* text :
       {"", "[]", "{}", R"({"characters": 3})", R"({"characters": ""})", R"({"characters": "aba"})"}) {
    test::write_text(path, text);
    const auto vocabulary = Vocabulary::read(path);
    ASSERT_FALSE(vocabulary.has_value()) << text;
    EXPECT_EQ(vocabulary.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(vocabulary.error().message, HasSubstr("v.json"));
  }
}

}  // namespace
}  // namespace tesser::runtime
