// Kills a process that writes checkpoints, at random moments: the last complete one always loads.

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint_samples.h"
#include "runtime/checkpoint_writer.h"
#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

constexpr std::int64_t kWidth =
    20000;  // a checkpoint of half a megabyte in two shards, so that kills fall into every part of a write
constexpr int kKills = 30;

// Resumes and writes checkpoint after checkpoint, telling each complete one through the pipe, until it is killed.
[[noreturn]] void write_for_ever(const std::filesystem::path& directory, int told) {
  const auto lock = CheckpointLock::acquire(directory);
  if (!lock) {
    ::_exit(2);
  }
  std::vector<std::string> notes;
  const auto newest = open_for_resume(*lock, notes);
  if (!newest) {
    ::_exit(3);
  }
  for (std::int64_t step = *newest ? (*newest)->info().step + 1 : 1;; ++step) {
    const test::SampleState state(step, kWidth);
    if (!write_checkpoint(*lock, {.largest_shard_bytes = 300000, .keep = 2}, state.info(), state.values(),
                          state.contents()) ||
        ::write(told, &step, sizeof(step)) != sizeof(step)) {
      ::_exit(4);
    }
  }
}

TEST(CheckpointCrash, TheLastCompleteOneLoadsWheneverTheRunIsKilled) {
  const test::TemporaryDirectory directory;
  std::mt19937 random(3);
  std::int64_t last_told = 0;
  int unfinished = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      write_for_ever(directory.path(), ends[1]);
    }
    ::close(ends[1]);
    // After one checkpoint for certain, then at a random moment of the next ones.
    ASSERT_EQ(::read(ends[0], &last_told, sizeof(last_told)), static_cast<ssize_t>(sizeof(last_told)));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    while (::read(ends[0], &last_told, sizeof(last_told)) == static_cast<ssize_t>(sizeof(last_told))) {
    }
    ::close(ends[0]);

    std::vector<std::string> notes;
    const auto checkpoint = Checkpoint::open(directory.path(), notes);
    ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    EXPECT_TRUE(test::SampleState(checkpoint->info().step, kWidth).equals(*checkpoint));
    // One more may have been completed and not told.
    EXPECT_GE(checkpoint->info().step, last_told);
    EXPECT_LE(checkpoint->info().step, last_told + 1);
    for (const std::string& note : notes) {
      EXPECT_NE(note.find("was not finished"), std::string::npos) << note;
    }
    unfinished += notes.empty() ? 0 : 1;
  }
  EXPECT_GE(unfinished, 1) << "no kill fell into a write, so this test proved little";
}

}  // namespace
}  // namespace tesser::runtime
