#include "platform/client/code_archive.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CodeArchive : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("code_archive-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(code() / "package");
    write("train.py", std::string(10'000, 'x'));
    write("run.sh", "#!/bin/sh\n");
    fs::permissions(code() / "run.sh", fs::perms::owner_exec, fs::perm_options::add);
    write("package/__init__.py", "");
    write("package/größe.txt", "utf-8");
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path code() const { return root_ / "code"; }
  fs::path zip() const { return root_ / "code.zip"; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(code() / name) << text; }

  fs::path root_;
};

TEST_F(CodeArchive, AnotherProgramUnpacksIt) {
  const auto summary = pack_directory(code(), zip());
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(summary->files, 4U);
  EXPECT_EQ(summary->bytes, 10'015U);
  EXPECT_EQ(summary->zip_bytes, fs::file_size(zip()));
  EXPECT_LT(summary->zip_bytes, 2'000U);
  const std::string check =
      "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None;"
      "assert z.namelist() == ['package/', 'package/__init__.py', 'package/größe.txt', 'run.sh', 'train.py'], "
      "z.namelist();"
      "assert z.read('train.py') == b'x' * 10000; assert z.read('package/größe.txt') == b'utf-8';"
      "assert z.getinfo('run.sh').external_attr >> 16 == 0o100755;"
      "assert z.getinfo('train.py').external_attr >> 16 == 0o100644";
  EXPECT_EQ(std::system(("python3 -c \"" + check + "\" " + zip().string()).c_str()), 0);
}

TEST_F(CodeArchive, EqualDirectoriesGiveEqualBytes) {
  ASSERT_TRUE(pack_directory(code(), zip()).has_value());
  const std::string first = read_file(zip()).value();
  fs::rename(code(), root_ / "other");
  fs::create_directories(code() / "package");
  for (const char* name : {"package/größe.txt", "train.py", "run.sh", "package/__init__.py"}) {  // another order
    fs::copy_file(root_ / "other" / name, code() / name);
  }
  ASSERT_TRUE(pack_directory(code(), zip()).has_value());
  EXPECT_EQ(read_file(zip()).value(), first);
  write("train.py", "y");
  ASSERT_TRUE(pack_directory(code(), zip()).has_value());
  EXPECT_NE(read_file(zip()).value(), first);
}

TEST_F(CodeArchive, WhatIsIgnoredIsLeftOut) {
  write(".tesserignore", "package/\n*.sh\n");
  const auto summary = pack_directory(code(), zip());
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->files, 2U);  // .tesserignore and train.py
}

TEST_F(CodeArchive, TooMuchIsRefusedWithTheLargest) {
  const auto by_bytes = pack_directory(code(), zip(), {.files = 100, .bytes = 5'000});
  ASSERT_FALSE(by_bytes.has_value());
  EXPECT_THAT(by_bytes.error().message,
              testing::AllOf(HasSubstr("largest: train.py (9.8 KiB)"), HasSubstr(".tesserignore")));
  EXPECT_FALSE(pack_directory(code(), zip(), {.files = 2, .bytes = 1 << 20}).has_value());
  EXPECT_FALSE(fs::exists(zip()));
}

TEST_F(CodeArchive, LinksLeadToFilesInsideAlone) {
  fs::create_symlink("train.py", code() / "same.py");
  auto summary = pack_directory(code(), zip());
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(summary->bytes, 20'015U);
  for (const char* target : {"/etc/passwd", "../outside", "nowhere", "package"}) {
    std::ofstream(root_ / "outside") << "secret";
    fs::create_symlink(target, code() / "link");
    summary = pack_directory(code(), zip());
    ASSERT_FALSE(summary.has_value()) << target;
    EXPECT_THAT(summary.error().message, HasSubstr("link: is a link that does not lead to a file in")) << target;
    fs::remove(code() / "link");
  }
}

TEST_F(CodeArchive, NoDirectoryIsToldAsSuch) {
  EXPECT_EQ(pack_directory(root_ / "none", zip()).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(pack_directory(code() / "train.py", zip()).has_value());
}

}  // namespace
}  // namespace tesser::platform
