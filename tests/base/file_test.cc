#include "base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

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

// Writes to a name that a person gave; empty where that is done, else the message.
std::string write_to(const std::filesystem::path& path, std::string_view contents) {
  const Result<void> written = write_output_file(path, contents);
  return written ? "" : written.error().message;
}

TEST(OutputTest, LinksAreWrittenThrough) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "there");
  put(directory / "there/file", "old");
  std::filesystem::create_symlink("there/file", directory / "relative");
  std::filesystem::create_symlink(directory / "relative", directory / "twice");
  std::filesystem::create_symlink("there/new", directory / "dangling");
  std::filesystem::create_symlink("there", directory / "folder");
  std::filesystem::create_symlink("loop", directory / "loop");
  EXPECT_EQ(write_to(directory / "twice", "one"), "");
  EXPECT_EQ(read_file(directory / "there/file").value(), "one");
  EXPECT_EQ(write_to(directory / "dangling", "two"), "");
  EXPECT_EQ(read_file(directory / "there/new").value(), "two");
  EXPECT_EQ(write_to(directory / "folder/file", "three"), "");
  EXPECT_EQ(read_file(directory / "there/file").value(), "three");
  for (const char* link : {"relative", "twice", "dangling", "folder"}) {
    EXPECT_TRUE(std::filesystem::is_symlink(directory / link)) << link;
  }
  EXPECT_THAT(write_to(directory / "loop", "x"), HasSubstr("loop: cannot write: Too many levels of symbolic links"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory / "there"), {}), 2);
  // A name that the program chose is replaced, whatever stands there.
  ASSERT_TRUE(write_file_atomically(directory / "relative", "four").has_value());
  EXPECT_FALSE(std::filesystem::is_symlink(directory / "relative"));
  EXPECT_EQ(read_file(directory / "there/file").value(), "three");
}

TEST(OutputTest, DirectoriesAreRefused) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "folder");
  std::filesystem::create_symlink("folder", directory / "link");
  for (const char* name : {"folder", "folder/", "link", "link/"}) {
    const Result<void> written = write_output_file(directory / name, "x");
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().code, ErrorCode::kInvalidInput);
    EXPECT_EQ(written.error().message, (directory / name).string() + ": is a directory, expected the name of a file");
  }
  EXPECT_EQ(write_to(directory / "none/file", "x"),
            (directory / "none/file").string() + ": cannot write: its directory does not exist");
  EXPECT_EQ(write_to(directory / "new/", "x"), (directory / "new/").string() + ": is not the name of a file");
}

TEST(OutputTest, DevicesStayWhatTheyAre) {
  EXPECT_EQ(write_to("/dev/null", "x"), "");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const Result<void> full = write_output_file("/dev/full", "x");
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::kFailed);
  EXPECT_EQ(full.error().message, "/dev/full: cannot write: No space left on device");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(OutputTest, APipeReceivesAllInOrder) {
  const TemporaryDirectory directory;
  const std::string path = directory / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] {
    std::ifstream file(path, std::ios::binary);
    received.assign(std::istreambuf_iterator<char>(file), {});
  });
  const std::string contents(3'000'000, 'x');
  AtomicFile file = AtomicFile::create_output(path).value();
  ASSERT_TRUE(file.write_at(1, contents.data(), contents.size()).has_value());
  ASSERT_TRUE(file.write_at(0, "a", 1).has_value());
  ASSERT_TRUE(file.commit().has_value());
  reader.join();
  EXPECT_EQ(received, "a" + contents);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(OutputTest, AnOpenFileBehindProcIsWrittenIntoAndNotReplaced) {
  const TemporaryDirectory directory;
  put(directory / "file", "something longer");
  const int descriptor = ::open((directory / "file").c_str(), O_RDWR);
  EXPECT_EQ(write_to("/dev/fd/" + std::to_string(descriptor), "short"), "");
  char now[32] = "";
  EXPECT_EQ(::pread(descriptor, now, sizeof(now), 0), 5);
  EXPECT_STREQ(now, "short");
  ::close(descriptor);
}

TEST(OutputTest, AnExistingFileKeepsItsPermissionsAndAnAbandonedOneItsContents) {
  const TemporaryDirectory directory;
  put(directory / "file", "old");
  ASSERT_EQ(::chmod((directory / "file").c_str(), 0640), 0);
  {
    AtomicFile file = AtomicFile::create_output(directory / "file").value();
    ASSERT_TRUE(file.append("half").has_value());
  }
  EXPECT_EQ(read_file(directory / "file").value(), "old");
  EXPECT_EQ(write_to(directory / "file", "new"), "");
  EXPECT_EQ(read_file(directory / "file").value(), "new");
  struct stat status {};
  ASSERT_EQ(::stat((directory / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
  EXPECT_EQ(directory.entries(), 1);
}

TEST(FileTest, NamesTheReasonInWords) {
  EXPECT_EQ(file_error("a/b", "write", ENOSPC).message, "a/b: cannot write: No space left on device");
  EXPECT_EQ(file_error("a/b", "read", EACCES).message, "a/b: cannot read: Permission denied");
}

}  // namespace
}  // namespace tesser
