#include "runtime/data.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

using test::npy;
using test::raw;
using test::TemporaryDirectory;
using test::write_safetensors;
using test::write_text;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const BatchValue kImages{"images", DType::kFloat32, {2, 3}};
const BatchValue kLabels{"labels", DType::kInt64, {2}};

std::string images_npy(int samples) {
  std::vector<float> values;
  for (int i = 0; i < 3 * samples; ++i) {
    values.push_back(static_cast<float>(i));
  }
  return npy("<f4", "(" + std::to_string(samples) + ", 3)", raw(values));
}

std::string labels_npy(int samples) {
  std::vector<std::int64_t> values;
  for (int i = 0; i < samples; ++i) {
    values.push_back(100 + i);
  }
  return npy("<i8", "(" + std::to_string(samples) + ",)", raw(values));
}

// The error of opening a directory; an empty message where it opened.
Error refusal(const std::filesystem::path& path, std::vector<BatchValue> values) {
  const auto data = DataSet::open(path, std::move(values));
  return data ? Error{ErrorCode::kFailed, ""} : data.error();
}

template <typename T>
std::vector<T> gather(const DataSet& data, std::size_t value, std::vector<std::uint32_t> samples,
                      std::size_t elements) {
  std::vector<T> target(elements);
  data.gather(value, samples, target.data());
  return target;
}

TEST(Data, GathersSamplesFromEveryKindOfFile) {
  const TemporaryDirectory directory;
  write_text(directory / "images.npy", images_npy(5));
  write_safetensors<std::int64_t>(directory / "data.safetensors", "labels", DType::kInt64, {5}, {10, 11, 12, 13, 14});
  write_safetensors<std::uint8_t>(directory / "mask.safetensors", "mask", DType::kBool, {5, 2},
                                  {0, 1, 0, 7, 1, 1, 0, 0, 255, 0});
  write_text(directory / "tokens.bin", raw<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 65535, 0}));
  write_text(directory / "tokens.json", R"({"dtype": "uint16", "stride": 2})");
  const auto data = DataSet::open(
      directory.path(), {kImages, kLabels, {"mask", DType::kBool, {2, 2}}, {"tokens", DType::kInt64, {2, 3}}});
  ASSERT_TRUE(data.has_value()) << data.error().message;
  EXPECT_EQ(data->samples(), 5);
  EXPECT_EQ(data->batches(), 2);
  EXPECT_EQ(data->left_out(), 1);
  EXPECT_THAT(gather<float>(*data, 0, {4, 0}, 6), ElementsAre(12, 13, 14, 0, 1, 2));
  EXPECT_THAT(gather<std::int64_t>(*data, 1, {3, 3}, 2), ElementsAre(13, 13));
  EXPECT_THAT(gather<std::uint8_t>(*data, 2, {1, 4}, 4), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(gather<std::int64_t>(*data, 3, {4, 1}, 6), ElementsAre(9, 65535, 0, 3, 4, 5));
}

TEST(Data, TokensAreWidenedWithoutLoss) {
  const TemporaryDirectory directory;
  const auto open = [&](const std::string& dtype, const std::string& bytes, DType batch_dtype) {
    write_text(directory / "t.bin", bytes);
    write_text(directory / "t.json", "{\"dtype\": \"" + dtype + "\"}");
    return DataSet::open(directory.path(), {{"t", batch_dtype, {1, 2}}});
  };
  EXPECT_THAT(gather<std::int64_t>(*open("uint8", raw<std::uint8_t>({1, 255}), DType::kInt64), 0, {0}, 2),
              ElementsAre(1, 255));
  EXPECT_THAT(gather<std::int64_t>(*open("uint32", raw<std::uint32_t>({1, 4294967295U}), DType::kInt64), 0, {0}, 2),
              ElementsAre(1, 4294967295));
  EXPECT_THAT(gather<std::int64_t>(*open("int32", raw<std::int32_t>({-1, 7}), DType::kInt64), 0, {0}, 2),
              ElementsAre(-1, 7));
  EXPECT_THAT(gather<std::int64_t>(*open("int64", raw<std::int64_t>({-1, 1LL << 40}), DType::kInt64), 0, {0}, 2),
              ElementsAre(-1, 1LL << 40));
  EXPECT_THAT(gather<std::int32_t>(*open("uint16", raw<std::uint16_t>({1, 65535}), DType::kInt32), 0, {0}, 2),
              ElementsAre(1, 65535));
  EXPECT_THAT(open("uint32", raw<std::uint32_t>({1, 2}), DType::kInt32).error().message,
              HasSubstr("uint32 tokens do not fit batch value 't', which is int32"));
}

TEST(Data, TokenWindows) {
  const TemporaryDirectory directory;
  std::vector<std::uint8_t> tokens(10);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint8_t>(i);
  }
  write_text(directory / "t.bin", raw(tokens));
  const auto samples = [&](const std::string& description, std::int64_t window) -> std::int64_t {
    write_text(directory / "t.json", description);
    const auto data = DataSet::open(directory.path(), {{"t", DType::kInt64, {1, window}}});
    return data ? data->samples() : -1;
  };
  EXPECT_EQ(samples(R"({"dtype": "uint8"})", 4), 3);  // 0..3, 3..6, 6..9
  EXPECT_EQ(samples(R"({"dtype": "uint8"})", 1), 10);
  EXPECT_EQ(samples(R"({"dtype": "uint8"})", 10), 1);
  EXPECT_EQ(samples(R"({"dtype": "uint8"})", 11), -1);
  EXPECT_EQ(samples(R"({"dtype": "uint8", "stride": 1})", 4), 7);
  EXPECT_EQ(samples(R"({"dtype": "uint8", "stride": 9223372036854775807})", 4), 1);
}

TEST(Data, SingleFiles) {
  const TemporaryDirectory directory;
  write_text(directory / "other.npy", images_npy(2));
  write_safetensors<std::int64_t>(directory / "x.safetensors", "labels", DType::kInt64, {2}, {1, 2});
  EXPECT_TRUE(DataSet::open(directory / "other.npy", {kImages}).has_value());
  EXPECT_TRUE(DataSet::open(directory / "x.safetensors", {kLabels}).has_value());
  EXPECT_THAT(refusal(directory / "other.npy", {kImages, kLabels}).message,
              HasSubstr("the program takes 2 batch values"));
  EXPECT_THAT(refusal(directory / "x.safetensors", {kImages}).message,
              HasSubstr("has no tensor 'images', which the program takes; it has labels"));
}

TEST(Data, RefusesWithWhatWasExpectedAndFound) {
  const TemporaryDirectory directory;
  const std::vector<BatchValue> both{kImages, kLabels};

  Error error = refusal(directory / "nothing", both);
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("nothing: no such data directory"));
  error = refusal(directory.path(), both);
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("the directory is empty"));

  write_text(directory / "labels.npy", labels_npy(4));
  error = refusal(directory.path(), both);
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, AllOf(HasSubstr("no data for batch value 'images': expected images.npy"),
                                   HasSubstr("the directory holds labels.npy")));

  const auto refused_images = [&](const std::string& file) {
    write_text(directory / "images.npy", file);
    const Error found = refusal(directory.path(), both);
    EXPECT_EQ(found.code, ErrorCode::kInvalidInput);
    EXPECT_THAT(found.message, HasSubstr("images.npy"));
    return found.message;
  };
  EXPECT_THAT(refused_images(npy("<f8", "(4, 3)", std::string(96, '\0'))),
              HasSubstr("batch value 'images' expects float32[N, 3], the file has float64[4, 3]"));
  EXPECT_THAT(refused_images(npy("<f4", "(4, 4)", std::string(64, '\0'))),
              HasSubstr("expects float32[N, 3], the file has float32[4, 4]"));
  EXPECT_THAT(refused_images(npy("<f4", "(12,)", std::string(48, '\0'))),
              HasSubstr("expects float32[N, 3], the file has float32[12]"));
  EXPECT_THAT(refused_images(npy("<f4", "()", std::string(4, '\0'))),
              HasSubstr("expects float32[N, 3], the file has float32[]"));
  EXPECT_THAT(refused_images(images_npy(3)), HasSubstr("labels.npy: has 4 samples of 'labels', but"));
  EXPECT_THAT(refused_images("no array"), HasSubstr("not a .npy file"));

  write_text(directory / "labels.npy", labels_npy(1));
  EXPECT_THAT(refused_images(images_npy(1)), HasSubstr("has 1 samples, too few for one batch of 2"));
  write_text(directory / "labels.npy", labels_npy(0));
  EXPECT_THAT(refused_images(images_npy(0)), HasSubstr("has 0 samples, too few for one batch of 2"));

  write_text(directory / "images.safetensors", "x");
  EXPECT_THAT(refused_images(images_npy(4)),
              HasSubstr("batch value 'images' is in several files: images.npy, images.safetensors; keep one"));
  std::filesystem::remove(directory / "images.npy");
  EXPECT_THAT(refusal(directory.path(), both).message, HasSubstr("images.safetensors"));  // malformed
}

TEST(Data, RefusesTokenFilesWithWhatIsWrong) {
  const TemporaryDirectory directory;
  const BatchValue tokens{"t", DType::kInt64, {2, 4}};
  write_text(directory / "t.bin", std::string(101, '\1'));
  Error error = refusal(directory.path(), {tokens});
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("t.json: no such file; it says the dtype of the tokens"));
  const auto refused = [&](const std::string& description) {
    write_text(directory / "t.json", description);
    const Error found = refusal(directory.path(), {tokens});
    EXPECT_EQ(found.code, ErrorCode::kInvalidInput);
    return found.message;
  };
  EXPECT_THAT(refused("{"), HasSubstr("t.json"));
  EXPECT_THAT(refused("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(refused("{}"), HasSubstr("has no dtype"));
  EXPECT_THAT(refused(R"({"dtype": "float32"})"), HasSubstr("unknown dtype 'float32'"));
  EXPECT_THAT(refused(R"({"dtype": "uint8", "strid": 3})"), HasSubstr("unknown key 'strid'"));
  EXPECT_THAT(refused(R"({"dtype": "uint8", "stride": 0})"), HasSubstr("stride is not an integer of at least 1"));
  EXPECT_THAT(refused(R"({"dtype": "uint8", "stride": 1.5})"), HasSubstr("stride is not an integer of at least 1"));
  EXPECT_THAT(refused(R"({"dtype": "uint16"})"), HasSubstr("t.bin: 101 bytes are not a whole number of uint16 tokens"));
  write_text(directory / "t.bin", "ab");
  EXPECT_THAT(refused(R"({"dtype": "uint8"})"),
              HasSubstr("has 2 tokens, fewer than one window of batch value 't' (4)"));
  EXPECT_THAT(refusal(directory.path(), {{"t", DType::kFloat32, {2, 4}}}).message,
              HasSubstr("but 't' is float32[2, 4]"));
  EXPECT_THAT(refusal(directory.path(), {{"t", DType::kInt64, {2, 4, 1}}}).message,
              HasSubstr("but 't' is int64[2, 4, 1]"));
}

TEST(Data, RefusesBatchValuesWithoutSamples) {
  const TemporaryDirectory directory;
  EXPECT_THAT(refusal(directory.path(), {}).message, HasSubstr("takes no batch values"));
  EXPECT_THAT(refusal(directory.path(), {{"x", DType::kFloat32, {}}}).message,
              HasSubstr("no samples along dimension 0"));
  EXPECT_THAT(refusal(directory.path(), {{"x", DType::kFloat32, {0, 3}}}).message,
              HasSubstr("no samples along dimension 0"));
  EXPECT_THAT(refusal(directory.path(), {kImages, {"y", DType::kFloat32, {3}}}).message,
              HasSubstr("differ in their first dimension"));
}

TEST(Data, FingerprintTellsDataApart) {
  const TemporaryDirectory directory;
  const auto fingerprint = [&](const std::string& file) {
    write_text(directory / "images.npy", file);
    return DataSet::open(directory.path(), {kImages})->fingerprint();
  };
  const std::string first = fingerprint(images_npy(5));
  EXPECT_EQ(first, fingerprint(images_npy(5)));
  EXPECT_NE(first, fingerprint(images_npy(6)));
  std::string changed = images_npy(5);
  changed.back() = static_cast<char>(changed.back() ^ 1);
  EXPECT_NE(first, fingerprint(changed));
  // Large enough that the middle and the end count on their own.
  const int many = 100000;
  const std::string large = fingerprint(images_npy(many));
  for (const std::size_t place : {images_npy(many).size() / 2, images_npy(many).size() - 1}) {
    changed = images_npy(many);
    changed[place] = static_cast<char>(changed[place] ^ 1);
    EXPECT_NE(large, fingerprint(changed)) << place;
  }
}

// A file far larger than the memory of this machine opens at once and is read only where samples are taken.
TEST(Data, IsMappedNotLoaded) {
  const TemporaryDirectory directory;
  const std::int64_t samples = std::int64_t{1} << 30;
  const std::string header = npy("<f4", "(" + std::to_string(samples) + ", 64)", "");
  write_text(directory / "images.npy", header);
  std::error_code error;
  std::filesystem::resize_file(directory / "images.npy", header.size() + static_cast<std::uintmax_t>(samples) * 256,
                               error);
  if (error) {
    GTEST_SKIP() << "the file system has no sparse files of this size: " << error.message();
  }
  const auto data = DataSet::open(directory.path(), {{"images", DType::kFloat32, {2, 64}}});
  ASSERT_TRUE(data.has_value()) << data.error().message;
  EXPECT_EQ(data->samples(), samples);
  EXPECT_EQ(gather<float>(*data, 0, {static_cast<std::uint32_t>(samples - 1), 12345}, 128), std::vector<float>(128));
}

}  // namespace
}  // namespace tesser::runtime
