#include "base/safetensors.h"

#include <array>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_directory.h"

namespace tesser {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::string file_of(std::string_view header, std::size_t data_bytes) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + std::string(header) + std::string(data_bytes, '\0');
}

std::string error_of(std::string_view file) {
  const auto header = parse_safetensors_header(std::as_bytes(std::span(file.data(), file.size())));
  return header.has_value() ? "" : header.error().message;
}

std::vector<SafetensorsEntry> entries() {
  return {{"b", DType::kInt8, {3}},
          {"scalar", DType::kFloat64, {}},
          {"a", DType::kFloat32, {2, 2}},
          {"empty", DType::kInt64, {0, 4}}};
}

TEST(SafetensorsTest, WritesAndReads) {
  const TemporaryDirectory directory;
  const std::array<std::int8_t, 3> b{1, -2, 3};
  const std::array<float, 4> a{1, 2, 3, 4.5F};
  const double scalar = 0.25;
  SafetensorsWriter writer = SafetensorsWriter::create(AtomicFile::create(directory / "file").value(), entries(),
                                                       {{"format", "pt"}, {"k", "\"v\""}})
                                 .value();
  ASSERT_TRUE(writer.write("a", {DType::kFloat32, {2, 2}, a.data()}).has_value());
  ASSERT_TRUE(writer.write("b", {DType::kInt8, {3}, b.data()}).has_value());
  ASSERT_TRUE(writer.write("empty", {DType::kInt64, {0, 4}, nullptr}).has_value());
  ASSERT_TRUE(writer.write("scalar", {DType::kFloat64, {}, &scalar}).has_value());
  ASSERT_TRUE(writer.commit().has_value());

  const SafetensorsFile file = SafetensorsFile::open(directory / "file").value();
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt"), Pair("k", "\"v\"")));
  ASSERT_EQ(file.entries().size(), 4U);
  EXPECT_EQ(file.find("missing"), nullptr);
  for (const SafetensorsEntry& expected : entries()) {
    const SafetensorsEntry* const entry = file.find(expected.name);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->dtype, expected.dtype);
    EXPECT_EQ(entry->shape, expected.shape);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.view(*entry).data) % element_size(entry->dtype), 0U);
  }
  EXPECT_EQ(std::memcmp(file.view(*file.find("a")).data, a.data(), sizeof(a)), 0);
  EXPECT_EQ(std::memcmp(file.view(*file.find("b")).data, b.data(), sizeof(b)), 0);
  EXPECT_EQ(*static_cast<const double*>(file.view(*file.find("scalar")).data), scalar);
}

TEST(SafetensorsTest, SameTensorsGiveTheSameBytes) {
  const TemporaryDirectory directory;
  const float value = 1;
  std::vector<std::string> contents;
  for (const bool reversed : {false, true}) {
    std::vector<SafetensorsEntry> two{{"x", DType::kFloat32, {1}}, {"y", DType::kFloat32, {}}};
    if (reversed) {
      std::swap(two[0], two[1]);
    }
    SafetensorsWriter writer = SafetensorsWriter::create(AtomicFile::create(directory / "file").value(), two).value();
    ASSERT_TRUE(writer.write(two[0].name, {DType::kFloat32, two[0].shape, &value}).has_value());
    ASSERT_TRUE(writer.write(two[1].name, {DType::kFloat32, two[1].shape, &value}).has_value());
    ASSERT_TRUE(writer.commit().has_value());
    contents.push_back(read_file(directory / "file").value());
  }
  EXPECT_EQ(contents[0], contents[1]);
  EXPECT_EQ(
      contents[0].substr(8, 120),
      R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[],"data_offsets":[4,8]}}      )" +
          contents[0].substr(120, 8));
}

TEST(SafetensorsTest, UncommittedFilesLeaveNothing) {
  const TemporaryDirectory directory;
  {
    SafetensorsWriter writer =
        SafetensorsWriter::create(AtomicFile::create(directory / "file").value(), entries()).value();
    const std::array<std::int8_t, 3> b{};
    ASSERT_TRUE(writer.write("b", {DType::kInt8, {3}, b.data()}).has_value());
  }
  EXPECT_EQ(directory.entries(), 0);
}

TEST(SafetensorsDeathTest, AbortsOnMistakesOfTheCaller) {
  const TemporaryDirectory directory;
  SafetensorsWriter writer =
      SafetensorsWriter::create(AtomicFile::create(directory / "file").value(), entries()).value();
  const double value = 0;
  EXPECT_DEATH((void)writer.write("c", {DType::kFloat64, {}, &value}), "tensor c, which was not announced");
  EXPECT_DEATH((void)writer.write("scalar", {DType::kFloat64, {1}, &value}), "announced as float64\\[\\]");
  EXPECT_DEATH((void)writer.commit(), "no bytes for");
  EXPECT_DEATH((void)SafetensorsWriter::create(AtomicFile::create(directory / "f").value(),
                                               {{"x", DType::kBool, {}}, {"x", DType::kBool, {}}}),
               "tensor name x");
  EXPECT_DEATH((void)SafetensorsWriter::create(AtomicFile::create(directory / "f").value(),
                                               {{"__metadata__", DType::kBool, {}}}),
               "tensor name __metadata__");
}

TEST(SafetensorsTest, AcceptsFilesWithoutTensors) {
  EXPECT_EQ(error_of(file_of("{}", 0)), "");
  EXPECT_EQ(error_of(file_of("{}      ", 0)), "");
}

TEST(SafetensorsTest, RefusesDamagedFiles) {
  const auto tensor = [](const char* fields, std::size_t data) {
    return file_of(std::string("{\"w\":{") + fields + "}}", data);
  };
  struct Case {
    std::string file;
    const char* message;
  };
  const std::string huge = std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8) + "{}";
  const std::string long_header = std::string("\x00\xe1\xf5\x05\x00\x00\x00\x00", 8) + "{}";
  const Case kCases[] = {
      {"", "is no safetensors file: it has 0 bytes, too few for a header"},
      {"1234567", "is no safetensors file: it has 7 bytes, too few for a header"},
      {huge, "is no safetensors file: it claims a header of 18446744073709551615 bytes, at most 100000000 are allowed"},
      {long_header, "is cut short: its header has 100000000 bytes, the whole file 10"},
      {file_of("{}", 0).substr(0, 9), "is cut short: its header has 2 bytes, the whole file 9"},
      {file_of("[]", 0), "header: is not a JSON object"},
      {file_of(R"({"w":1})", 0), "tensor \"w\": is not an object of dtype, shape and data_offsets"},
      {tensor(R"("dtype":"F32","shape":[],"data_offsets":[0,4],"x":1)", 4),
       "tensor \"w\": is not an object of dtype, shape and data_offsets"},
      {tensor(R"("dtype":1,"shape":[],"data_offsets":[0,4])", 4), "tensor \"w\": 'dtype' is missing or not a string"},
      {tensor(R"("dtype":"C64","shape":[],"data_offsets":[0,8])", 4),
       "tensor \"w\": lies at bytes 0 to 8 of 4; the file is cut short or damaged"},
      {tensor(R"("dtype":"C64","shape":[-1],"data_offsets":[0,8])", 8),
       "tensor \"w\": 'shape' is missing or not an array of integers from 0 on"},
      {tensor(R"("dtype":"C64","shape":[],"data_offsets":[0,8])", 9), "has 9 bytes of data, but its tensors only 8"},
      {file_of(
           R"({"v":{"dtype":"C64","shape":[],"data_offsets":[0,8]},"w":{"dtype":"I8","shape":[2],"data_offsets":[7,9]}})",
           9),
       "tensor \"w\": begins at byte 7, but the tensor before it ends at byte 8"},
      {tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", 4),
       "tensor \"w\": 'shape' is missing or not an array of integers from 0 on"},
      {tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", 8),
       "tensor \"w\": 'shape' is missing or not an array of integers from 0 on"},
      {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])", 4),
       "tensor \"w\": shape [4294967296, 4294967296] is too large"},
      {tensor(R"("dtype":"F32","shape":[],"data_offsets":[0])", 4),
       "tensor \"w\": 'data_offsets' is missing or not an array of two integers from 0 on"},
      {tensor(R"("dtype":"F32","shape":[],"data_offsets":[4,0])", 4),
       "tensor \"w\": lies at bytes 4 to 0 of 4; the file is cut short or damaged"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 4),
       "tensor \"w\": lies at bytes 0 to 8 of 4; the file is cut short or damaged"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4),
       "tensor \"w\": has 4 bytes, but float32[2] needs 8"},
      {tensor(R"("dtype":"F32","shape":[],"data_offsets":[0,4])", 5), "has 5 bytes of data, but its tensors only 4"},
      {tensor(R"("dtype":"F32","shape":[],"data_offsets":[1,5])", 5),
       "tensor \"w\": begins at byte 1, but the tensor before it ends at byte 0"},
      {file_of(
           R"({"v":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "tensor \"w\": begins at byte 1, but the tensor before it ends at byte 2"},
      {file_of(
           R"({"w":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})",
           2),
       "header: key \"w\" occurs twice"},
      {file_of(R"({"__metadata__":1})", 0), "'__metadata__' is not an object"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "'__metadata__' holds something other than strings"},
      {file_of(std::string(1000, '['), 0), "header: [0][0][0][0]: nested deeper than 8 levels"},
  };
  for (const Case& one : kCases) {
    EXPECT_EQ(error_of(one.file), one.message);
  }
}

TEST(SafetensorsTest, TensorsOfOtherTypesStandAside) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "file", std::ios::binary) << file_of(
      R"({"z":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[2,6]},"w":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
      R"("x":{"dtype":"F4","shape":[3],"data_offsets":[6,8]},"y":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})",
      9);
  const SafetensorsFile file = SafetensorsFile::open(directory / "file").value();
  ASSERT_EQ(file.entries().size(), 2U);
  EXPECT_EQ(file.find("w")->offset, 0U);
  EXPECT_EQ(file.find("y")->offset, 8U);
  EXPECT_EQ(file.find("z"), nullptr);
  EXPECT_EQ(file.absence("z"), "tensor 'z' has dtype \"F8_E4M3\", which is not supported");
  EXPECT_EQ(file.absence("v"), "has no tensor 'v'");
}

TEST(SafetensorsTest, ErrorsNameTheFile) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "file") << "short";
  EXPECT_EQ(SafetensorsFile::open(directory / "file").error().message,
            (directory / "file").string() + ": is no safetensors file: it has 5 bytes, too few for a header");
  EXPECT_EQ(SafetensorsFile::open(directory / "none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tesser
