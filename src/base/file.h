// The operating system's files: read, map, and write so that no partial file is ever left under a final name.
//
// Every error names the path and the operating system's reason in words. Functions block on the disk; they may be
// called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tesser {

// Whole contents of a regular file. kNotFound when it does not exist, kInvalidInput when it is larger than `largest`
// bytes or no regular file.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t largest = std::uint64_t{1} << 31);

// A regular file mapped read-only; move-only. An empty file has no bytes. The file must not be cut short while it is
// mapped: the process would get SIGBUS. Files of this project are only ever replaced by renaming, which leaves a
// mapping as it was.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file that appears under its name complete or not at all; move-only. It is written beside its final name
// (NAME.partial-PID-N) and renamed by commit(), which replaces an existing file. Without commit() the destructor
// removes it. A process that is killed leaves the partial file behind, under that name.
class AtomicFile {
 public:
  // For a name that the program chose. Whatever has the name is replaced, and no link is followed: in a directory into
  // which others may write, a link is none of ours.
  static Result<AtomicFile> create(std::filesystem::path path);
  // For a name that a person gave (`-o FILE`), with the outcome that other programs' output has: links are written
  // through, an existing file keeps its permissions, and what is no file (a device, a named pipe, /dev/stdout) stays
  // what it is and receives the contents in commit(). Waits for the reader of a named pipe. kInvalidInput for a
  // directory. Until commit() the file has no name where the file system can have that, so that a command that is
  // killed in its work leaves nothing.
  static Result<AtomicFile> create_output(const std::filesystem::path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  const std::filesystem::path& path() const { return path_; }

  Result<void> append(std::string_view bytes);
  // Writes at a place of its own, in any order; append() is not affected.
  Result<void> write_at(std::uint64_t offset, const void* data, std::size_t bytes);

  // Makes contents and name durable: fsync, rename, fsync of the directory. Nothing can be written afterwards.
  Result<void> commit();

 private:
  AtomicFile(std::filesystem::path path, std::filesystem::path partial, int descriptor);
  static Result<AtomicFile> create_without_name(std::filesystem::path path);
  static Result<AtomicFile> create_into(const std::filesystem::path& path);
  Result<void> copy_into_target();
  Result<void> name_partial();
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty while the file has no name; with `target_`, the temporary file's directory
  int descriptor_ = -1;
  int target_ = -1;  // what is no file and stays; commit() copies into it
  std::uint64_t appended_ = 0;
};

Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view contents);
// The same for a name that a person gave, as create_output() has it.
Result<void> write_output_file(const std::filesystem::path& path, std::string_view contents);

// Where a name that a person gave leads: every link is followed, the last one also to a name that does not exist yet.
// Links of /proc, which lead to open files, stay.
Result<std::filesystem::path> output_place(const std::filesystem::path& path);

// Makes the names in a directory durable.
Result<void> sync_directory(const std::filesystem::path& directory);

// "PATH: cannot VERB: No space left on device", for errno values.
Error file_error(const std::filesystem::path& path, std::string_view verb, int error_number);

}  // namespace tesser
