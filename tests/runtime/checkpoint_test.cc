#include "runtime/checkpoint_writer.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/own_checksum.h"
#include "checkpoint_samples.h"
#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

using test::SampleState;
using test::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

CheckpointLock locked(const std::filesystem::path& directory) {
  auto lock = CheckpointLock::acquire(directory);
  EXPECT_TRUE(lock.has_value());
  return std::move(*lock);
}

void write(const CheckpointLock& lock, std::int64_t step, CheckpointWriterOptions options = {}) {
  const SampleState state(step);
  const auto written = write_checkpoint(lock, options, state.info(), state.values(), state.contents());
  ASSERT_TRUE(written.has_value()) << written.error().message;
  EXPECT_THAT(written->notes, IsEmpty());
}

// The manifest as the version before had it, which states no checksum of itself.
std::string without_checksum_version(const std::string& text) {
  return std::regex_replace(without_checksum(text), std::regex("\"version\":3"), "\"version\":2");
}

// Opens the newest checkpoint and the notes about others.
std::pair<Result<Checkpoint>, std::vector<std::string>> open(const std::filesystem::path& path) {
  std::vector<std::string> notes;
  auto checkpoint = Checkpoint::open(path, notes);
  return {std::move(checkpoint), notes};
}

TEST(CheckpointTest, ReadsBackWhatWasWritten) {
  const TemporaryDirectory directory;
  const CheckpointLock lock = locked(directory / "deep/run");
  write(lock, 120);
  EXPECT_THAT(names_in(lock.directory()), ElementsAre("lock", "step-00000120"));
  EXPECT_THAT(names_in(lock.directory() / "step-00000120"),
              ElementsAre("manifest.json", "state-00000-of-00001.safetensors"));
  for (const auto& path : {lock.directory(), lock.directory() / "step-00000120"}) {
    const auto [checkpoint, notes] = open(path);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    EXPECT_TRUE(SampleState(120).equals(*checkpoint));
    EXPECT_FALSE(SampleState(121).equals(*checkpoint));
    EXPECT_THAT(notes, IsEmpty());
    ASSERT_EQ(checkpoint->values().size(), 4U);
    EXPECT_THAT(checkpoint->values()[0].aliases, ElementsAre("head.weight"));
    EXPECT_TRUE(checkpoint->values()[0].in_state_dict());
    EXPECT_FALSE(checkpoint->values()[1].in_state_dict());
    EXPECT_TRUE(checkpoint->values()[2].in_state_dict());
    EXPECT_FALSE(checkpoint->values()[3].in_state_dict());
  }
}

TEST(CheckpointTest, ShardsAreCutBetweenValues) {
  const TemporaryDirectory directory;
  const CheckpointLock lock = locked(directory.path());
  write(lock, 1, {.largest_shard_bytes = 70});  // 60, 60 + 8 + 2
  EXPECT_THAT(names_in(directory / "step-00000001"),
              ElementsAre("manifest.json", "state-00000-of-00002.safetensors", "state-00001-of-00002.safetensors"));
  EXPECT_TRUE(SampleState(1).equals(*open(directory.path()).first));
  write(lock, 2, {.largest_shard_bytes = 1});  // each value is too large
  EXPECT_EQ(names_in(directory / "step-00000002").size(), 5U);
  EXPECT_TRUE(SampleState(2).equals(*open(directory.path()).first));
}

TEST(CheckpointTest, KeepsTheNewest) {
  const TemporaryDirectory directory;
  const CheckpointLock lock = locked(directory.path());
  for (const std::int64_t step : {9, 10, 11, 100000000}) {
    write(lock, step, {.keep = 2});
  }
  EXPECT_THAT(names_in(directory.path()), ElementsAre("lock", "step-00000011", "step-100000000"));
  EXPECT_EQ(open(directory.path()).first->info().step, 100000000);
}

TEST(CheckpointTest, PassesOverWhatIsUnfinishedOrDamaged) {
  const TemporaryDirectory directory;
  const CheckpointLock lock = locked(directory.path());
  write(lock, 1, {.keep = 9});
  // Every kind of damage, newest first, each to a checkpoint of its own.
  const std::string shard = "state-00000-of-00001.safetensors";
  const auto damage = [&](std::int64_t step, const auto& change) {
    write(lock, step, {.keep = 9});
    change(directory.path() / checkpoint_name(step));
  };
  damage(2, [&](const auto& path) {
    std::string bytes = test::read_text(path / shard);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    test::write_text(path / shard, bytes);
  });
  damage(3, [&](const auto& path) { std::filesystem::resize_file(path / shard, 100); });
  damage(4, [&](const auto& path) { std::filesystem::remove(path / shard); });
  damage(5, [&](const auto& path) { std::filesystem::remove(path / "manifest.json"); });
  damage(6, [&](const auto& path) { std::filesystem::resize_file(path / "manifest.json", 300); });
  damage(7, [&](const auto& path) {
    const std::string text = test::read_text(path / "manifest.json");
    test::write_text(path / "manifest.json",
                     without_checksum_version(std::regex_replace(text, std::regex("\\[3,5\\]"), "[5,3]")));
  });
  damage(8, [&](const auto& path) {
    const std::string text = test::read_text(path / "manifest.json");
    test::write_text(
        path / "manifest.json",
        with_checksum(std::regex_replace(without_checksum(text), std::regex("\"version\":3"), "\"version\":4")));
  });
  std::filesystem::create_directory(directory / "step-00000009.writing");
  test::write_text(directory / "step-00000009.writing/state-00000-of-00001.safetensors", "x");
  std::filesystem::create_directory(directory / "step-9");  // not of this format
  std::filesystem::create_directory(directory / "step-00000010.bak");

  const auto [checkpoint, notes] = open(directory.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->info().step, 1);
  EXPECT_EQ(notes.size(), 8U);
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("step-00000009.writing"), HasSubstr("was not finished"))));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("step-00000008"), HasSubstr("version 4 is unknown"))));
  EXPECT_THAT(notes,
              Contains(AllOf(HasSubstr("step-00000007"), HasSubstr("should be float32[5, 3], is float32[3, 5]"))));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("step-00000005"), HasSubstr("manifest.json: no such file"))));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("step-00000004"), HasSubstr("no such file"))));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("step-00000003"), HasSubstr("has 100 bytes, the manifest says"))));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("step-00000002"), HasSubstr("checksum"))));

  std::vector<std::string> done;
  const auto resumed = open_for_resume(lock, done);
  ASSERT_TRUE(resumed.has_value());
  ASSERT_TRUE(resumed->has_value());
  EXPECT_EQ((*resumed)->info().step, 1);
  EXPECT_EQ(done.size(), 8U);
  EXPECT_TRUE(std::filesystem::exists(directory / "step-00000002.damaged"));
  EXPECT_FALSE(std::filesystem::exists(directory / "step-00000002"));
  EXPECT_FALSE(std::filesystem::exists(directory / "step-00000009.writing"));
  EXPECT_TRUE(std::filesystem::exists(directory / "step-9"));
  write(lock, 2);  // its place is free again
}

TEST(CheckpointTest, NamesWhatIsWrongWhereThereIsNone) {
  const TemporaryDirectory directory;
  EXPECT_EQ(open(directory / "none").first.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(open(directory / "none").first.error().message, HasSubstr("none: no such file"));
  EXPECT_EQ(open(directory.path()).first.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(open(directory.path()).first.error().message, HasSubstr("holds no complete checkpoint"));
  const CheckpointLock lock = locked(directory.path());
  std::vector<std::string> notes;
  const auto resumed = open_for_resume(lock, notes);
  ASSERT_TRUE(resumed.has_value());
  EXPECT_FALSE(resumed->has_value());
}

TEST(CheckpointTest, ARunThatFindsOnlyDamagedOnesSaysSo) {
  const TemporaryDirectory directory;
  const CheckpointLock lock = locked(directory.path());
  write(lock, 3);
  write(lock, 4);
  for (const std::int64_t step : {3, 4}) {
    std::filesystem::resize_file(directory.path() / checkpoint_name(step) / "state-00000-of-00001.safetensors", 100);
  }
  std::vector<std::string> notes;
  for (int again = 0; again < 2; ++again) {
    const auto refused = open_for_resume(lock, notes);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("every checkpoint is damaged"), HasSubstr("step-00000003"), HasSubstr("step-00000004"),
                      HasSubstr("to begin anew, remove them or give another directory")));
    EXPECT_EQ(notes.size(), 2U);
  }
  std::filesystem::remove_all(directory / "step-00000003.damaged");
  std::filesystem::remove_all(directory / "step-00000004.damaged");
  EXPECT_FALSE(open_for_resume(lock, notes)->has_value());
}

TEST(CheckpointTest, EveryChangedDigitOfTheManifestIsRefused) {
  const TemporaryDirectory directory;
  const CheckpointLock lock = locked(directory.path());
  write(lock, 120);
  const auto manifest = directory.path() / checkpoint_name(120) / "manifest.json";
  const std::string text = test::read_text(manifest);
  int digits = 0;
  for (std::size_t place = 0; place < text.size(); ++place) {
    if (text[place] >= '0' && text[place] <= '9') {
      std::string changed = text;
      changed[place] = changed[place] == '9' ? '1' : static_cast<char>(changed[place] + 1);
      test::write_text(manifest, changed);
      const auto [checkpoint, notes] = open(manifest.parent_path());
      EXPECT_FALSE(checkpoint.has_value()) << changed;
      EXPECT_FALSE(Checkpoint::open_verified(manifest.parent_path()).has_value()) << changed;
      ++digits;
    }
  }
  EXPECT_GT(digits, 60);
  test::write_text(manifest, without_checksum(text));
  EXPECT_THAT(open(manifest.parent_path()).first.error().message, HasSubstr("'checksum' is missing"));
}

TEST(CheckpointTest, TheDirectorysNameAndTheManifestAgree) {
  const TemporaryDirectory directory;
  const CheckpointLock lock = locked(directory / "run");
  write(lock, 5);
  std::filesystem::copy(directory / "run/step-00000005", directory / "best");
  EXPECT_TRUE(open(directory / "best").first.has_value());
  EXPECT_TRUE(open(directory / "run/step-00000005/").first.has_value());
  std::filesystem::rename(directory / "run/step-00000005", directory / "run/step-00000006");
  for (const char* path : {"run/step-00000006", "run/step-00000006/", "run/step-00000006/.", "run"}) {
    EXPECT_THAT(open(directory / path).first.error().message,
                HasSubstr("is the checkpoint after step 5, which its directory's name does not say"))
        << path;
  }
  const auto refused = CheckpointLock::acquire(directory / "best");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("is a checkpoint itself; give the directory that it is in"));
}

TEST(CheckpointTest, OneRunAtATime) {
  const TemporaryDirectory directory;
  {
    const CheckpointLock lock = locked(directory.path());
    const auto second = CheckpointLock::acquire(directory.path());
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, ErrorCode::kInvalidInput);
    EXPECT_THAT(second.error().message,
                HasSubstr("process " + std::to_string(::getpid()) + " writes its checkpoints into this directory"));
  }
  EXPECT_TRUE(CheckpointLock::acquire(directory.path()).has_value());
  test::write_text(directory / "file", "");
  EXPECT_THAT(CheckpointLock::acquire(directory / "file").error().message,
              HasSubstr("cannot make this checkpoint directory"));
}

TEST(CheckpointTest, WritesBesideTheCaller) {
  const TemporaryDirectory directory;
  const CheckpointLock lock = locked(directory.path());
  {
    CheckpointWriter writer(lock, {}, SampleState(0).values());
    EXPECT_FALSE(writer.wait_outcome().has_value());
    for (std::int64_t step = 1; step <= 5; ++step) {
      const SampleState state(step);
      const auto staging = writer.staging();
      for (std::size_t i = 0; i < staging.size(); ++i) {
        std::memcpy(staging[i].data, state.contents()[i].data, staging[i].bytes());
      }
      writer.start(state.info());
      if (step < 5) {  // the last one is finished by the destructor
        const auto outcome = writer.wait_outcome();
        ASSERT_TRUE(outcome.has_value() && outcome->has_value());
        EXPECT_EQ((*outcome)->step, step);
        EXPECT_FALSE(writer.take_outcome().has_value());
      }
    }
  }
  EXPECT_TRUE(SampleState(5).equals(*open(directory.path()).first));
}

// A file-size limit stands for a full disk: the write fails in the middle of a shard. In a process of its own, as the
// limit cannot be raised again.
TEST(CheckpointTest, FullDiskLeavesTheOldOneAndNothingElse) {
  const TemporaryDirectory directory;
  {
    const CheckpointLock lock = locked(directory.path());
    write(lock, 1);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 4096, 4096 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto lock = CheckpointLock::acquire(directory.path());
    const SampleState state(2, 100000);
    const auto written = write_checkpoint(*lock, {}, state.info(), state.values(), state.contents());
    const bool as_expected = !written && written.error().code == ErrorCode::kFailed &&
                             written.error().message.find("File too large") != std::string::npos &&
                             written.error().message.find("step-00000002.writing") != std::string::npos;
    ::_exit(as_expected ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(names_in(directory.path()), ElementsAre("lock", "step-00000001"));
  EXPECT_TRUE(SampleState(1).equals(*open(directory.path()).first));
}

}  // namespace
}  // namespace tesser::runtime
