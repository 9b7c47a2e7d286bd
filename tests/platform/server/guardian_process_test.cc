#include "platform/server/guardian_process.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Shell scripts stand for guardians.
class GuardianProcessTest : public ::testing::Test {
 protected:
  GuardianProcessTest() {
    char name[] = "/tmp/tesser-guardian-XXXXXX";
    directory_ = fs::canonical(::mkdtemp(name));
    fs::create_directories(directory_ / "jobs" / "j1");
  }
  ~GuardianProcessTest() override { fs::remove_all(directory_); }

  Result<GuardianProcess> start(const std::string& script) {
    return GuardianProcess::start({"/bin/sh", "-c", script, "guardian", "--volume", volume().string()}, volume());
  }
  fs::path volume() const { return directory_ / "jobs" / "j1"; }
  static bool ends(const GuardianProcess& process) {
    for (int i = 0; i < 500 && !process.has_ended(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return process.has_ended();
  }

  fs::path directory_;
};

TEST_F(GuardianProcessTest, RunsInASessionOfItsOwnWithFewVariablesAndNoDescriptors) {
  ::setenv("TESSER_TEST_SECRET", "hidden", 1);
  const auto process = start("ls -l /proc/self/fd; env; ps -o sid= -p $$; echo me $$; exit 7");
  ASSERT_TRUE(process) << process.error().message;
  ASSERT_TRUE(ends(*process));
  EXPECT_EQ(process->outcome(), "ended with code 7");
  std::ifstream file(volume() / "guardian" / "log");
  const std::string log(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(log, Not(HasSubstr("hidden")));
  EXPECT_THAT(log, HasSubstr("PATH="));
  EXPECT_THAT(log, Not(HasSubstr("socket:")));
  EXPECT_THAT(log, HasSubstr(std::to_string(process->pid()) + "\nme " + std::to_string(process->pid())));
  ::unsetenv("TESSER_TEST_SECRET");
}

TEST_F(GuardianProcessTest, IsEndedAndSaysHow) {
  const auto process = start("exec sleep 60");
  ASSERT_TRUE(process);
  EXPECT_FALSE(process->has_ended());
  process->kill();
  ASSERT_TRUE(ends(*process));
  EXPECT_EQ(process->outcome(), "was ended by signal 9");
  EXPECT_EQ(process->outcome(), "ended");  // it is nobody's child any more
}

TEST_F(GuardianProcessTest, WhatCannotBeStartedIsAnError) {
  EXPECT_FALSE(GuardianProcess::start({"/no/such/program", "guardian"}, volume()));
}

TEST_F(GuardianProcessTest, IsFoundByItsVolume) {
  // A script whose name is the second word, as "guardian" is of `tesser guardian`.
  std::ofstream(directory_ / "guardian") << "while :; do sleep 0.01; done\n";
  fs::current_path(directory_);
  auto process = GuardianProcess::start({"/bin/sh", "guardian", "--volume", volume().string()}, volume());
  ASSERT_TRUE(process);
  // A process that has just begun shows no words for a moment.
  for (int i = 0; i < 500 && GuardianProcess::find(directory_ / "jobs").empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (int i = 0; i < 20; ++i) {  // its children look like it for a moment
    ASSERT_EQ(GuardianProcess::find(directory_ / "jobs").size(), 1U);
  }
  const auto found = GuardianProcess::find(directory_ / "jobs");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().first, "j1");
  EXPECT_EQ(found.front().second.pid(), process->pid());
  EXPECT_TRUE(GuardianProcess::find(directory_ / "other").empty());
  process->kill();
  ASSERT_TRUE(ends(found.front().second));
  EXPECT_EQ(process->outcome(), "was ended by signal 9");
  EXPECT_TRUE(GuardianProcess::find(directory_ / "jobs").empty());
}

}  // namespace
}  // namespace tesser::platform
