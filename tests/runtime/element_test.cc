#include "runtime/element.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::runtime {
namespace {

TEST(Element, ReadsEveryDType) {
  const std::vector<float> floats{0, -1.5F};
  EXPECT_EQ(element_as_double(DType::kFloat32, floats.data(), 1), -1.5);
  const std::vector<double> doubles{0, 0.1};
  EXPECT_EQ(element_as_double(DType::kFloat64, doubles.data(), 1), 0.1);
  const std::vector<std::uint16_t> brain{0x3F80, 0xC040};
  EXPECT_EQ(element_as_double(DType::kBFloat16, brain.data(), 0), 1);
  EXPECT_EQ(element_as_double(DType::kBFloat16, brain.data(), 1), -3);
  const std::vector<std::int64_t> longs{0, -5};
  EXPECT_EQ(element_as_double(DType::kInt64, longs.data(), 1), -5);
  const std::vector<std::int32_t> ints{0, -6};
  EXPECT_EQ(element_as_double(DType::kInt32, ints.data(), 1), -6);
  const std::vector<std::int16_t> shorts{0, -7};
  EXPECT_EQ(element_as_double(DType::kInt16, shorts.data(), 1), -7);
  const std::vector<std::uint8_t> bytes{0, 0xFE};
  EXPECT_EQ(element_as_double(DType::kInt8, bytes.data(), 1), -2);
  EXPECT_EQ(element_as_double(DType::kUInt8, bytes.data(), 1), 254);
  EXPECT_EQ(element_as_double(DType::kBool, bytes.data(), 1), 1);
}

TEST(Element, Halves) {
  const std::vector<std::uint16_t> halves{0x3C00, 0xC500, 0x0001, 0x8400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x8000};
  EXPECT_EQ(element_as_double(DType::kFloat16, halves.data(), 0), 1);
  EXPECT_EQ(element_as_double(DType::kFloat16, halves.data(), 1), -5);
  EXPECT_EQ(element_as_double(DType::kFloat16, halves.data(), 2), std::ldexp(1, -24));
  EXPECT_EQ(element_as_double(DType::kFloat16, halves.data(), 3), -std::ldexp(1, -14));
  EXPECT_EQ(element_as_double(DType::kFloat16, halves.data(), 4), 65504);
  EXPECT_EQ(element_as_double(DType::kFloat16, halves.data(), 5), std::numeric_limits<double>::infinity());
  EXPECT_EQ(element_as_double(DType::kFloat16, halves.data(), 6), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(element_as_double(DType::kFloat16, halves.data(), 7)));
  EXPECT_TRUE(std::signbit(element_as_double(DType::kFloat16, halves.data(), 8)));
}

}  // namespace
}  // namespace tesser::runtime
