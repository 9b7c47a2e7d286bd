#include "base/amount_text.h"

#include <optional>

#include <gtest/gtest.h>

namespace tesser {
namespace {

TEST(AmountText, BytesReadInEveryUnit) {
  EXPECT_EQ(bytes_from_text("800000000"), 800000000);
  EXPECT_EQ(bytes_from_text("12GiB"), std::int64_t{12} << 30);
  EXPECT_EQ(bytes_from_text("12Gi"), std::int64_t{12} << 30);
  EXPECT_EQ(bytes_from_text("12g"), std::int64_t{12} << 30);
  EXPECT_EQ(bytes_from_text("1.5 MB"), 1500000);
  EXPECT_EQ(bytes_from_text("7 bytes"), std::nullopt);
  EXPECT_EQ(bytes_from_text("12GG"), std::nullopt);
  EXPECT_EQ(bytes_from_text("-1"), std::nullopt);
  EXPECT_EQ(bytes_from_text(""), std::nullopt);
  EXPECT_EQ(bytes_from_text("9999999999TiB"), std::nullopt);
}

TEST(AmountText, SecondsReadInEveryUnitTheLargerFirst) {
  EXPECT_EQ(seconds_from_text("45"), 45);
  EXPECT_EQ(seconds_from_text("90m"), 5400);
  EXPECT_EQ(seconds_from_text("1h30m"), 5400);
  EXPECT_EQ(seconds_from_text("2 D 1 s"), 172801);
  EXPECT_EQ(seconds_from_text("0s"), 0);
  EXPECT_EQ(seconds_from_text("30m1h"), std::nullopt);
  EXPECT_EQ(seconds_from_text("1h1h"), std::nullopt);
  EXPECT_EQ(seconds_from_text("1h30"), std::nullopt);
  EXPECT_EQ(seconds_from_text("1.5h"), std::nullopt);
  EXPECT_EQ(seconds_from_text("-1s"), std::nullopt);
  EXPECT_EQ(seconds_from_text("m"), std::nullopt);
  EXPECT_EQ(seconds_from_text(" "), std::nullopt);
  EXPECT_EQ(seconds_from_text(""), std::nullopt);
  EXPECT_EQ(seconds_from_text("99999999999999999999s"), std::nullopt);
  EXPECT_EQ(seconds_from_text("36600d"), std::int64_t{36600} * 86400);
  EXPECT_EQ(seconds_from_text("36600d1s"), std::nullopt);
}

}  // namespace
}  // namespace tesser
