// Checkpoints whose values lie in the shards of several workers.

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/own_checksum.h"
#include "checkpoint_samples.h"
#include "runtime/checkpoint_writer.h"
#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

using test::SampleState;
using test::TemporaryDirectory;
using ::testing::HasSubstr;

constexpr std::int64_t kStep = 7;

// What three workers write of a sample state: the first matrix cut by columns, the second by rows and columns, the
// others each by one worker.
class PartsTest : public ::testing::Test {
 protected:
  PartsTest() : lock_(std::move(*CheckpointLock::acquire(directory_ / "run"))) {
    manifest_.info = state_.info();
    manifest_.values = state_.values();
    manifest_.shards.resize(3);
    part(0, 0, {{0, 0}, {3, 2}});
    part(0, 1, {{0, 2}, {3, 1}});
    part(0, 2, {{0, 3}, {3, 2}});
    part(1, 2, {{0, 0}, {2, 5}});
    part(1, 0, {{2, 0}, {1, 3}});
    part(1, 1, {{2, 3}, {1, 2}});
    part(2, 1, {{}, {}});
    part(3, 0, {{0}, {2}});
  }

  void part(std::size_t value, std::size_t shard, const Rectangle& place) {
    manifest_.parts.push_back({value, shard, place});
  }

  // Writes the shards and the manifest as the parts say.
  Result<CheckpointWritten> write() {
    const std::filesystem::path writing = unfinished_checkpoint(lock_.directory(), kStep);
    std::filesystem::create_directories(writing);
    for (std::size_t shard = 0; shard < 3; ++shard) {
      std::vector<NamedTensor> tensors;
      std::vector<std::vector<std::byte>> memory;
      memory.reserve(manifest_.parts.size());
      for (const StatePart& each : manifest_.parts) {
        if (each.shard != shard) {
          continue;
        }
        const TensorView whole = state_.contents()[each.value];
        memory.emplace_back(static_cast<std::size_t>(element_count(each.place.size)) * element_size(whole.dtype));
        if (lies_inside(each.place, whole.shape)) {
          copy_rectangle(element_size(whole.dtype), each.place, static_cast<const std::byte*>(whole.data),
                         whole_rectangle(whole.shape), memory.back().data(), each.place);
        }
        tensors.push_back({manifest_.values[each.value].name, {whole.dtype, each.place.size, memory.back().data()}});
      }
      auto written = write_shard(writing / shard_name(shard, 3), tensors);
      EXPECT_TRUE(written.has_value());
      manifest_.shards[shard] = *written;
    }
    return complete_checkpoint(lock_, {}, manifest_);
  }

  Result<Checkpoint> open() const {
    std::vector<std::string> notes;
    return Checkpoint::open(lock_.directory() / checkpoint_name(kStep), notes);
  }

  TemporaryDirectory directory_;
  CheckpointLock lock_;
  SampleState state_{kStep};
  Manifest manifest_;
};

TEST_F(PartsTest, IsReadWhole) {
  const auto written = write();
  ASSERT_TRUE(written.has_value()) << written.error().message;
  EXPECT_EQ(written->path, lock_.directory() / "step-00000007");
  EXPECT_FALSE(std::filesystem::exists(unfinished_checkpoint(lock_.directory(), kStep)));
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_TRUE(state_.equals(*checkpoint));
  EXPECT_FALSE(SampleState(kStep + 1).equals(*checkpoint));
  std::int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(written->path)) {
    bytes += static_cast<std::int64_t>(file.file_size());
  }
  EXPECT_EQ(written->bytes, bytes);
}

TEST_F(PartsTest, AnyRectangleIsRead) {
  ASSERT_TRUE(write().has_value());
  const auto checkpoint = Checkpoint::open_verified(lock_.directory() / checkpoint_name(kStep));
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  for (std::size_t value = 0; value < 2; ++value) {
    const TensorView whole = state_.contents()[value];
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t column = 0; column < 5; ++column) {
        const Rectangle place{{row, column}, {3 - row, 5 - column}};
        std::vector<std::byte> expected(static_cast<std::size_t>(element_count(place.size)) * 4);
        copy_rectangle(4, place, static_cast<const std::byte*>(whole.data), whole_rectangle(whole.shape),
                       expected.data(), place);
        std::vector<std::byte> found(expected.size());
        const auto read = checkpoint->read_part(state_.values()[value].name, {3, 5}, place.begin,
                                                {DType::kFloat32, place.size, found.data()});
        ASSERT_TRUE(read.has_value()) << read.error().message;
        EXPECT_EQ(found, expected);
      }
    }
  }
  float number = 0;
  const MutableTensorView one{DType::kFloat32, {1, 1}, &number};
  EXPECT_THAT(checkpoint->read_part("layer.bias", {3, 5}, {0, 0}, one).error().message,
              HasSubstr("has no 'layer.bias'"));
  EXPECT_THAT(checkpoint->read_part("layer.weight", {3, 6}, {0, 0}, one).error().message,
              HasSubstr("'layer.weight' is float32[3, 5], the program expects float32[3, 6]"));
}

TEST_F(PartsTest, PartsMustCoverTheValueOnce) {
  manifest_.parts[1].place = {{0, 1}, {3, 2}};
  ASSERT_TRUE(write().has_value());
  EXPECT_THAT(open().error().message, HasSubstr("parts 0:3,0:2 and 0:3,1:3 of 'layer.weight' overlap"));
}

TEST_F(PartsTest, PartsMustLeaveNothingOut) {
  manifest_.parts[3].place = {{0, 0}, {1, 5}};
  ASSERT_TRUE(write().has_value());
  EXPECT_THAT(open().error().message,
              HasSubstr("the parts of 'layer.weight/exp_avg' have 10 elements, the value has 15"));
}

TEST_F(PartsTest, PartsMustLieInside) {
  manifest_.parts[2].place = {{0, 3}, {3, 3}};
  ASSERT_TRUE(write().has_value());
  EXPECT_THAT(open().error().message, HasSubstr("a part of 'layer.weight' lies outside of it"));
}

TEST_F(PartsTest, AMissingPartIsNamed) {
  ASSERT_TRUE(write().has_value());
  const auto path = lock_.directory() / checkpoint_name(kStep) / "manifest.json";
  std::string text = without_checksum(test::read_text(path));
  const std::string first = R"("shard":"state-00000-of-00003.safetensors","begin":[0,0],"size":[3,2])";
  const std::string second = R"("shard":"state-00001-of-00003.safetensors","begin":[0,0],"size":[3,2])";
  ASSERT_NE(text.find(first), std::string::npos) << text;
  test::write_text(path, with_checksum(text.replace(text.find(first), first.size(), second)));
  EXPECT_THAT(open().error().message,
              HasSubstr("state-00001-of-00003.safetensors: 'layer.weight' should be float32[3, 2], is float32[3, 1]"));
}

// What earlier tessers wrote.
TEST(CheckpointVersionTest, VersionsWithoutAChecksumAreRead) {
  const TemporaryDirectory directory;
  const auto lock = CheckpointLock::acquire(directory.path());
  const SampleState state(kStep);
  ASSERT_TRUE(write_checkpoint(*lock, {}, state.info(), state.values(), state.contents()).has_value());
  const auto path = directory.path() / checkpoint_name(kStep) / "manifest.json";
  std::string text = without_checksum(test::read_text(path));
  const std::size_t version = text.find("\"version\":3");
  ASSERT_NE(version, std::string::npos);
  for (const char* older : {"\"version\":1", "\"version\":2"}) {
    test::write_text(path, text.replace(version, 11, older));
    std::vector<std::string> notes;
    const auto checkpoint = Checkpoint::open(directory.path(), notes);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    EXPECT_TRUE(state.equals(*checkpoint));
  }
}

}  // namespace
}  // namespace tesser::runtime
