#include "base/json_reader.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JsonReaderTest, NumbersComeBackAsTheyWere) {
  for (const double number : {0.0, -0.0, 0.1, 1e-310, -1e300, std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(), std::nan("")}) {
    const auto json = parse_json("{\"x\":" + json_number_text(number) + "}");
    ASSERT_TRUE(json.has_value()) << json.error().message;
    JsonReader reader(*json, "object");
    const double found = reader.number("x");
    EXPECT_TRUE(reader.outcome().has_value());
    EXPECT_TRUE(found == number || (std::isnan(found) && std::isnan(number))) << found << " for " << number;
    EXPECT_EQ(std::signbit(found), std::signbit(number));
  }
}

TEST(JsonReaderTest, TheFirstMistakeIsNamed) {
  const auto json = parse_json(R"({"a":"text","b":[1,2],"c":["x",3],"d":-1,"e":true,"f":["nan",1.5,"much"]})");
  ASSERT_TRUE(json.has_value());
  const auto mistake = [&](const auto& read) {
    JsonReader reader(*json, "message");
    read(reader);
    const auto outcome = reader.outcome();
    return outcome ? std::string() : outcome.error().message;
  };
  EXPECT_EQ(mistake([](JsonReader& reader) {
              EXPECT_EQ(reader.string("a"), "text");
              EXPECT_THAT(reader.integers("b"), ElementsAre(1, 2));
              EXPECT_EQ(reader.integer("d"), -1);
              EXPECT_TRUE(reader.boolean("e"));
            }),
            "");
  EXPECT_EQ(mistake([](JsonReader& reader) { reader.integer("a"); }), "message: 'a' is missing or not an integer");
  EXPECT_EQ(mistake([](JsonReader& reader) { reader.integer("d", 0); }), "message: 'd' is -1, expected at least 0");
  EXPECT_EQ(mistake([](JsonReader& reader) { reader.string("z"); }), "message: 'z' is missing or not a string");
  EXPECT_THAT(mistake([](JsonReader& reader) { reader.strings("c"); }), HasSubstr("'c' holds what is no string"));
  EXPECT_THAT(mistake([](JsonReader& reader) { reader.integers("c"); }), HasSubstr("'c' holds what is no integer"));
  EXPECT_THAT(mistake([](JsonReader& reader) { reader.numbers("f"); }), HasSubstr("a number was expected"));
  EXPECT_THAT(mistake([](JsonReader& reader) {
                reader.boolean("a");
                reader.string("z");
              }),
              HasSubstr("'a'"));
}

}  // namespace
}  // namespace tesser
