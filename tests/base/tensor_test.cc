#include "base/tensor.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/check.h"

namespace tesser {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(TensorTest, NamesOfAllTypesLeadBack) {
  const std::pair<DType, std::size_t> kSizes[] = {
      {DType::kFloat32, 4}, {DType::kFloat64, 8}, {DType::kFloat16, 2}, {DType::kBFloat16, 2}, {DType::kInt64, 8},
      {DType::kInt32, 4},   {DType::kInt16, 2},   {DType::kInt8, 1},    {DType::kUInt8, 1},    {DType::kBool, 1}};
  for (const auto& [dtype, size] : kSizes) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_EQ(element_size(dtype), size) << dtype_name(dtype);
    const std::string_view name = dtype_name(dtype);
    EXPECT_EQ(is_floating(dtype), name.find("float") != std::string_view::npos) << name;
  }
  EXPECT_EQ(dtype_from_name("complex64"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(TensorTest, CountsElements) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 4}), 12);
  EXPECT_EQ(element_count({3, 0, 4}), 0);
}

TEST(TensorTest, ChecksBytes) {
  EXPECT_EQ(checked_bytes(DType::kFloat32, {}), 4);
  EXPECT_EQ(checked_bytes(DType::kInt16, {3, 4}), 24);
  EXPECT_EQ(checked_bytes(DType::kInt16, {3, 0}), 0);
  EXPECT_EQ(checked_bytes(DType::kInt8, {kHuge}), kHuge);
  EXPECT_EQ(checked_bytes(DType::kInt16, {kHuge}), std::nullopt);
  EXPECT_EQ(checked_bytes(DType::kInt8, {kHuge, kHuge, 0}), std::nullopt);
  EXPECT_EQ(checked_bytes(DType::kInt8, {0, kHuge, kHuge}), std::nullopt);
  EXPECT_EQ(checked_bytes(DType::kInt8, {-1}), std::nullopt);
  EXPECT_EQ(checked_bytes(DType::kInt8, {-1, -1}), std::nullopt);
}

TEST(TensorTest, Texts) {
  EXPECT_EQ(shape_text({}), "[]");
  EXPECT_EQ(type_text(DType::kFloat32, {8, 3}), "float32[8, 3]");
}

TEST(CheckDeathTest, SaysWhatWasExpectedAndFound) {
  const int found = 3;
  TESSER_CHECK(found == 3, std::to_string(found));
  EXPECT_DEATH(TESSER_CHECK(found == 4, std::to_string(found)), "tensor_test.cc:.*expected found == 4, found 3");
}

}  // namespace
}  // namespace tesser
