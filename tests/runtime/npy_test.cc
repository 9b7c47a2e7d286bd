#include "runtime/npy.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

using test::npy;
using test::raw;
using ::testing::HasSubstr;

Result<TensorView> parse(const std::string& text) {
  return parse_npy("x.npy", reinterpret_cast<const std::byte*>(text.data()), text.size());
}

std::string message(const std::string& text) {
  const auto parsed = parse(text);
  if (parsed) {
    return "accepted";
  }
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(parsed.error().message, HasSubstr("x.npy"));
  return parsed.error().message;
}

TEST(Npy, ReadsAnArray) {
  const std::string text = npy("<f4", "(2, 3)", raw<float>({1, 2, 3, 4, 5, 6}));
  const auto view = parse(text);
  ASSERT_TRUE(view.has_value()) << view.error().message;
  EXPECT_EQ(view->dtype, DType::kFloat32);
  EXPECT_EQ(view->shape, (Shape{2, 3}));
  float last = 0;
  std::memcpy(&last, static_cast<const char*>(view->data) + 20, 4);
  EXPECT_EQ(last, 6);
}

TEST(Npy, ReadsFormatTwoScalarsVectorsAndEmptyArrays) {
  std::string two = npy("<i8", "(1,)", raw<std::int64_t>({7}));
  two[6] = 2;
  two.insert(10, 2, '\0');
  EXPECT_TRUE(parse(two).has_value());
  EXPECT_EQ(parse(npy("<i8", "()", raw<std::int64_t>({7})))->shape, Shape{});
  EXPECT_EQ(parse(npy("|b1", "(3,)", "abc"))->shape, Shape{3});
  EXPECT_EQ(parse(npy("|u1", "(0, 5)", ""))->shape, (Shape{0, 5}));
  // Another order of keys, double quotes, no trailing commas.
  EXPECT_TRUE(parse(npy(R"({"shape":(2,3),"fortran_order":False,"descr":"|i1"})", "abcdef")).has_value());
  // One dimension is in C and Fortran order at once.
  EXPECT_TRUE(parse(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2,), }", "ab")).has_value());
}

TEST(Npy, RefusesWhatItCannotHave) {
  EXPECT_THAT(message(npy(">f4", "(1,)", "abcd")), HasSubstr("'>f4' is not supported"));
  EXPECT_THAT(message(npy("<c8", "(1,)", "abcdefgh")), HasSubstr("'<c8' is not supported"));
  EXPECT_THAT(message(npy("|O", "(1,)", "abcd")), HasSubstr("'|O' is not supported"));
  EXPECT_THAT(message(npy("<u2", "(1,)", "ab")), HasSubstr("'<u2' is not supported"));
  EXPECT_THAT(message(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", "abcdefgh")),
              HasSubstr("Fortran"));
  EXPECT_THAT(message(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd")),
              HasSubstr("malformed"));
}

TEST(Npy, RefusesHostileFiles) {
  const std::string good = npy("<f4", "(2,)", "abcdefgh");
  EXPECT_THAT(message(""), HasSubstr("signature"));
  EXPECT_THAT(message("PK\x03\x04 something else"), HasSubstr("signature"));
  EXPECT_THAT(message(good.substr(0, 9)), HasSubstr("signature"));
  EXPECT_THAT(message(good.substr(0, 50)), HasSubstr("cut off"));
  EXPECT_THAT(message(good.substr(0, good.size() - 1)), HasSubstr("truncated"));
  EXPECT_THAT(message(good + "x"), HasSubstr("over-long"));
  std::string version = good;
  version[6] = 9;
  EXPECT_THAT(message(version), HasSubstr("format 9.0"));
  for (const char* shape : {"(-1,)", "(2", "2", "(2)", "(2.0,)", "(2,,)", "(,)", "(99999999999999999999,)", "(True,)",
                            "('a',)", "(0x2,)"}) {
    EXPECT_THAT(message(npy("<f4", shape, "abcdefgh")), HasSubstr("malformed")) << shape;
  }
  EXPECT_THAT(message(npy("<f4", "(4611686018427387904, 4)", "")), HasSubstr("overflows"));
  EXPECT_THAT(message(npy("<f8", "(9223372036854775807,)", "")), HasSubstr("overflows"));
  EXPECT_THAT(message(npy("{'descr': '<f4', 'shape': (2,)}", "abcdefgh")), HasSubstr("malformed"));
  EXPECT_THAT(message(npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "abcdefgh")),
              HasSubstr("malformed"));
  EXPECT_THAT(message(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "abcdefgh")),
              HasSubstr("malformed"));
  EXPECT_THAT(message(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "abcdefgh")),
              HasSubstr("malformed"));
  EXPECT_THAT(message(npy(std::string(1000, '{'), "abcdefgh")), HasSubstr("malformed"));
}

TEST(Npy, SurvivesEveryCutAndRandomBytes) {
  const std::string good = npy("<f4", "(2, 3)", raw<float>({1, 2, 3, 4, 5, 6}));
  for (std::size_t length = 0; length < good.size(); ++length) {
    const std::string cut = good.substr(0, length);
    EXPECT_FALSE(parse(cut).has_value()) << length;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string changed = good;
    changed[random() % 80] = static_cast<char>(random());
    const auto parsed = parse(changed);
    if (parsed) {
      EXPECT_LE(static_cast<const char*>(parsed->data) + parsed->bytes(), changed.data() + changed.size());
    }
  }
}

}  // namespace
}  // namespace tesser::runtime
