#include "platform/engine/command_runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Result<CommandOutput> run(std::vector<std::string> words, milliseconds time = milliseconds(20000)) {
  return run_command({std::move(words), {"PATH=/usr/bin:/bin", "ONLY=a b"}, steady_clock::now() + time});
}

TEST(CommandRunner, GivesCodeAndBothOutputs) {
  const auto done = run({"sh", "-c", "echo \"$1\"; echo \"$ONLY\" >&2; exit 3", "sh", "$x `y`"});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->exit_code, 3);
  EXPECT_EQ(done->output, "$x `y`\n");
  EXPECT_EQ(done->errors, "a b\n");
}

TEST(CommandRunner, GivesAllOfLongOutputs) {
  const auto done = run({"sh", "-c", "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2"});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->output.size(), 3'000'000U);
  EXPECT_EQ(done->errors.size(), 2'000'000U);
}

TEST(CommandRunner, ASignalIsACodeToo) {
  const auto done = run({"sh", "-c", "kill -9 $$"});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->exit_code, 128 + SIGKILL);
}

TEST(CommandRunner, EndsWhatTakesTooLong) {
  for (const char* line : {"exec sleep 100", "exec >/dev/null 2>&1; exec sleep 100"}) {
    const auto begin = steady_clock::now();
    const auto done = run({"sh", "-c", line}, milliseconds(200));
    EXPECT_LT(steady_clock::now() - begin, milliseconds(5000));
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::kFailed);
    EXPECT_EQ(done.error().message, "sh gave no answer in time");
  }
}

TEST(CommandRunner, SaysWhenThereIsNoSuchProgram) {
  EXPECT_FALSE(has_program("no-such-program"));
  EXPECT_TRUE(has_program("sh"));
  EXPECT_EQ(run({"no-such-program"}).error().code, ErrorCode::kNotFound);
}

TEST(CommandRunner, WhatItRunsEndsWithItsProcess) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const std::string place = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(ends[1]);
  const pid_t runner = ::fork();
  if (runner == 0) {
    // Opens the pipe anew, and holds it for as long as it lives.
    (void)run({"sh", "-c", "exec sleep 100 >" + place});
    ::_exit(0);
  }
  std::this_thread::sleep_for(milliseconds(300));
  ::close(ends[1]);
  ::kill(runner, SIGKILL);
  ::waitpid(runner, nullptr, 0);
  const auto begin = steady_clock::now();
  char nothing = 0;
  EXPECT_EQ(::read(ends[0], &nothing, 1), 0);
  EXPECT_LT(steady_clock::now() - begin, milliseconds(5000));
  ::close(ends[0]);
}

}  // namespace
}  // namespace tesser::platform
