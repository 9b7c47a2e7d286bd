#include "base/json.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace tesser {
namespace {

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  const Result<Json> json = parse_json(text, limits);
  if (json.has_value()) {
    return "";
  }
  EXPECT_EQ(json.error().code, ErrorCode::kInvalidInput);
  return json.error().message;
}

TEST(JsonTest, KeepsTypesAndOrder) {
  const Result<Json> json = parse_json(R"( {"b":[1,-2,2.5,1e3,true,null,"x\u00e9\n"],"a":{}} )");
  ASSERT_TRUE(json.has_value());
  ASSERT_NE(json->object(), nullptr);
  EXPECT_EQ((*json->object())[0].first, "b");
  EXPECT_EQ((*json->object())[1].first, "a");
  const Json::Array& array = *json->find("b")->array();
  ASSERT_EQ(array.size(), 7U);
  EXPECT_EQ(*array[0].integer(), 1);
  EXPECT_EQ(*array[1].integer(), -2);
  EXPECT_EQ(*array[2].get<double>(), 2.5);
  EXPECT_EQ(*array[3].get<double>(), 1000.0);
  EXPECT_EQ(array[3].integer(), nullptr);
  EXPECT_EQ(*array[4].get<bool>(), true);
  EXPECT_TRUE(array[5].is_null());
  EXPECT_EQ(*array[6].string(), "x\xc3\xa9\n");
  EXPECT_EQ(json->find("c"), nullptr);
  EXPECT_EQ(array[0].find("c"), nullptr);
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  EXPECT_EQ(error_of("{\"a\":1"),
            "line 1, column 7: syntax error while parsing object - unexpected end of input; expected '}'");
  EXPECT_NE(error_of(""), "");
  EXPECT_NE(error_of("{} {}"), "");
  EXPECT_NE(error_of("[1,]"), "");
  EXPECT_NE(error_of("[NaN]"), "");
  EXPECT_NE(error_of("[01]"), "");
  EXPECT_NE(error_of("[\"\xff\"]"), "");
  EXPECT_NE(error_of("[\"\\ud800\"]"), "");
  EXPECT_NE(error_of("[1e999]"), "");
}

TEST(JsonTest, BoundsWhatItReads) {
  EXPECT_EQ(error_of("[[[]]]", {.depth = 3, .values = 10}), "");
  EXPECT_EQ(error_of("[1,[[]]]", {.depth = 2, .values = 10}), "[1][0]: nested deeper than 2 levels");
  EXPECT_EQ(error_of(std::string(1'000'000, '[')), "[0][0][0][0]: nested deeper than 64 levels");
  std::string objects;
  for (int level = 0; level < 100'000; ++level) {
    objects += "{\"a\":";
  }
  EXPECT_EQ(error_of(objects), "a.a.a.a: nested deeper than 64 levels");
  EXPECT_EQ(error_of("[1,2,3]", {.depth = 3, .values = 3}), "[2]: more than 3 values");
  EXPECT_EQ(error_of("[9223372036854775808]"), "[0]: integer 9223372036854775808 does not fit 64 bits");
  EXPECT_EQ(error_of("{\"a\":[0,99999999999999999999999999]}"),
            "a[1]: integer 99999999999999999999999999 does not fit 64 bits");
  EXPECT_EQ(error_of("[9223372036854775807,-9223372036854775808]"), "");
}

TEST(JsonTest, RefusesRepeatedKeysInSmallAndLargeObjects) {
  EXPECT_EQ(error_of(R"({"x":{"a":1,"b":2,"a":3}})"), "x: key \"a\" occurs twice");
  std::string text = "{";
  for (int key = 0; key < 1000; ++key) {
    text += "\"k" + std::to_string(key) + "\":{\"k0\":0},";
  }
  EXPECT_EQ(error_of(text + "\"k1000\":0}"), "");
  EXPECT_EQ(error_of(text + "\"k700\":0}"), "key \"k700\" occurs twice");
  EXPECT_EQ(error_of(text + "\"k0\":0}"), "key \"k0\" occurs twice");
}

TEST(JsonTest, ErrorsAreShortAndPrintable) {
  const std::string message = error_of("[\"" + std::string(100'000, 'x') + "\x01");
  EXPECT_LT(message.size(), 300U);
  for (const char character : message) {
    EXPECT_TRUE(character >= 0x20 && character < 0x7f);
  }
}

// The form of Python's repr(), so that both writers of program files give the same bytes.
TEST(JsonTest, WritesFloatsAsPython) {
  const std::pair<double, const char*> kFloats[] = {{0.0, "0.0"},
                                                    {-0.0, "-0.0"},
                                                    {1.0, "1.0"},
                                                    {-1.5, "-1.5"},
                                                    {0.1, "0.1"},
                                                    {0.0001, "0.0001"},
                                                    {0.00001, "1e-05"},
                                                    {1e-8, "1e-08"},
                                                    {1.25e-7, "1.25e-07"},
                                                    {123456.0, "123456.0"},
                                                    {1e15, "1000000000000000.0"},
                                                    {1e16, "1e+16"},
                                                    {1.5e300, "1.5e+300"},
                                                    {5e-324, "5e-324"},
                                                    {123456789012345.67, "123456789012345.67"},
                                                    {0.30000000000000004, "0.30000000000000004"},
                                                    {1.7976931348623157e308, "1.7976931348623157e+308"}};
  for (const auto& [number, text] : kFloats) {
    EXPECT_EQ(json_float(number), text);
    const Result<Json> json = parse_json(text);
    ASSERT_TRUE(json.has_value()) << text;
    ASSERT_NE(json->get<double>(), nullptr) << text;
    EXPECT_EQ(*json->get<double>(), number);
    EXPECT_EQ(std::signbit(*json->get<double>()), std::signbit(number));
  }
}

TEST(JsonTest, WritesStringsThatReadBack) {
  std::string all;
  for (int character = 0; character < 128; ++character) {
    all += static_cast<char>(character);
  }
  all += "\xc3\xa9\xe2\x82\xac";
  const Result<Json> json = parse_json(json_string(all));
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(*json->string(), all);
  EXPECT_EQ(json_string("a\"\\\n\x01\x7f/\xc3\xa9"), "\"a\\\"\\\\\\n\\u0001\x7f/\xc3\xa9\"");
}

}  // namespace
}  // namespace tesser
