#include "runtime/memory_limit.h"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

using ::testing::HasSubstr;

class MemoryLimitTest : public ::testing::Test {
 protected:
  void group(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((directory_ / file).parent_path());
    test::write_text(directory_ / file, text);
  }
  MemoryLimit limit(const std::string& groups) {
    test::write_text(directory_ / "groups", groups);
    return memory_limit(directory_ / "groups", directory_.path());
  }

  test::TemporaryDirectory directory_;
};

TEST_F(MemoryLimitTest, WithoutGroupsItIsTheMachines) {
  const MemoryLimit machine = limit("");
  EXPECT_GT(machine.bytes, 1 << 20);
  EXPECT_EQ(machine.what, "memory of this machine");
  EXPECT_EQ(memory_limit(directory_ / "none", directory_.path()).bytes, machine.bytes);
  group("a/memory.max", "max\n");
  EXPECT_EQ(limit("0::/a\nnonsense\n").bytes, machine.bytes);
}

TEST_F(MemoryLimitTest, TheSmallestOfAllGroupsCounts) {
  group("a/memory.max", "2000000\n");
  group("a/b/memory.max", "3000000\n");
  EXPECT_EQ(limit("0::/a/b\n").bytes, 2000000);
  EXPECT_THAT(limit("0::/a/b\n").what, HasSubstr("a/memory.max"));
  group("memory/c/memory.limit_in_bytes", "1000000\n");
  EXPECT_EQ(limit("4:cpu,memory:/c\n0::/a/b\n").bytes, 1000000);
  EXPECT_EQ(limit("4:cpu:/c\n0::/a/b\n").bytes, 2000000);
  group("memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limit("4:memory:/not/mounted/here\n0::/a/b\n").bytes, 2000000);
}

TEST_F(MemoryLimitTest, WhatCannotFitIsRefused) {
  const MemoryLimit limit{1 << 20, "memory of this machine"};
  EXPECT_TRUE(check_memory(1 << 20, limit).has_value());
  const auto refused = check_memory(3 << 19, limit);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message,
              HasSubstr("needs 1.5 MiB of memory for its tensors, as foreseen, and this process has 1.0 MiB (memory of "
                        "this machine)"));
}

}  // namespace
}  // namespace tesser::runtime
