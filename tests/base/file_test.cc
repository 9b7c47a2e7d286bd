#include "base/file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_directory.h"

namespace tesser {
namespace {

using testing::HasSubstr;

void put(const std::filesystem::path& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(FileTest, ReadsAndMapsWholeFiles) {
  const TemporaryDirectory directory;
  const std::string contents("a\0b\n", 4);
  put(directory / "file", contents);
  put(directory / "empty", "");
  EXPECT_EQ(read_file(directory / "file").value(), contents);
  EXPECT_EQ(read_file(directory / "empty").value(), "");
  EXPECT_EQ(text_of(MappedFile::open(directory / "file").value()), contents);
  EXPECT_TRUE(MappedFile::open(directory / "empty").value().bytes().empty());
}

TEST(FileTest, MappingsMove) {
  const TemporaryDirectory directory;
  put(directory / "file", "contents");
  MappedFile first = MappedFile::open(directory / "file").value();
  MappedFile second(std::move(first));
  EXPECT_EQ(text_of(second), "contents");
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(text_of(third), "contents");
  // Replacing the file by renaming leaves the mapping as it was.
  ASSERT_TRUE(write_file_atomically(directory / "file", "other").has_value());
  EXPECT_EQ(text_of(third), "contents");
}

TEST(FileTest, SaysWhyAFileCannotBeRead) {
  const TemporaryDirectory directory;
  const std::string missing = (directory / "missing").string();
  EXPECT_EQ(read_file(missing).error().message, missing + ": no such file");
  EXPECT_EQ(read_file(missing).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(MappedFile::open(missing).error().message, missing + ": no such file");
  EXPECT_EQ(read_file(directory.path()).error().message,
            directory.path().string() + ": is a directory, expected a file");
  EXPECT_EQ(MappedFile::open(directory.path()).error().code, ErrorCode::kInvalidInput);
  put(directory / "file", "12345");
  EXPECT_EQ(read_file(directory / "file", 4).error().message,
            (directory / "file").string() + ": has 5 bytes, at most 4 are accepted");
  EXPECT_EQ(read_file(directory / "file" / "below").error().code, ErrorCode::kNotFound);
  // A named pipe without a writer must not be waited for.
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(read_file(directory / "pipe").error().message, HasSubstr("is not a regular file"));
  EXPECT_THAT(MappedFile::open("/dev/zero").error().message, HasSubstr("is not a regular file"));
}

TEST(FileTest, AppearsOnlyWhenCommitted) {
  const TemporaryDirectory directory;
  put(directory / "file", "old");
  {
    AtomicFile file = AtomicFile::create(directory / "file").value();
    ASSERT_TRUE(file.append("ne").has_value());
    EXPECT_EQ(read_file(directory / "file").value(), "old");
  }
  EXPECT_EQ(read_file(directory / "file").value(), "old");
  EXPECT_EQ(directory.entries(), 1);
  AtomicFile file = AtomicFile::create(directory / "file").value();
  ASSERT_TRUE(file.append("ab").has_value());
  ASSERT_TRUE(file.write_at(4, "ef", 2).has_value());
  ASSERT_TRUE(file.append("cd").has_value());
  AtomicFile moved = std::move(file);
  ASSERT_TRUE(moved.commit().has_value());
  EXPECT_EQ(read_file(directory / "file").value(), "abcdef");
  EXPECT_EQ(directory.entries(), 1);
}

TEST(FileTest, SaysWhyAFileCannotBeWritten) {
  const TemporaryDirectory directory;
  const std::string below = (directory / "missing" / "file").string();
  EXPECT_EQ(write_file_atomically(below, "").error().message, below + ": cannot write: its directory does not exist");
  EXPECT_EQ(write_file_atomically(below, "").error().code, ErrorCode::kInvalidInput);
  std::filesystem::create_directory(directory / "taken");
  put(directory / "taken" / "file", "");
  EXPECT_EQ(write_file_atomically(directory / "taken", "").error().message,
            (directory / "taken").string() + ": cannot replace: Is a directory");
  EXPECT_EQ(directory.entries(), 1);
  EXPECT_EQ(sync_directory(directory / "missing").error().code, ErrorCode::kInvalidInput);
}

// A write that the system cuts off, as on a full disk: one clear error, and no trace.
TEST(FileTest, LeavesNothingWhenTheDiskIsFull) {
  const TemporaryDirectory directory;
  put(directory / "file", "old");
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 4096;
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<void> written = write_file_atomically(directory / "file", std::string(10'000, 'x'));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().message, (directory / "file").string() + ": cannot write: File too large");
  EXPECT_EQ(written.error().code, ErrorCode::kFailed);
  EXPECT_EQ(read_file(directory / "file").value(), "old");
  EXPECT_EQ(directory.entries(), 1);
}

TEST(FileTest, NamesTheReasonInWords) {
  EXPECT_EQ(file_error("a/b", "write", ENOSPC).message, "a/b: cannot write: No space left on device");
  EXPECT_EQ(file_error("a/b", "read", EACCES).message, "a/b: cannot read: Permission denied");
}

}  // namespace
}  // namespace tesser
