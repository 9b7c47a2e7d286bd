#include "base/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tesser {
namespace {

// Linux transfers at most 0x7ffff000 bytes a call.
constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int descriptor;
  do {
    descriptor = ::open(path, flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

tl::unexpected<Error> error_of(const std::filesystem::path& path, std::string_view verb, int error_number) {
  return tl::unexpected<Error>(file_error(path, verb, error_number));
}

// Size of an opened regular file.
Result<std::uint64_t> regular_size(const std::filesystem::path& path, int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    return error_of(path, "read", errno);
  }
  if (S_ISDIR(status.st_mode)) {
    return invalid_input(path.string() + ": is a directory, expected a file");
  }
  if (!S_ISREG(status.st_mode)) {
    return invalid_input(path.string() + ": is not a regular file");
  }
  return static_cast<std::uint64_t>(status.st_size);
}

std::filesystem::path next_partial(std::filesystem::path path) {
  static std::atomic<unsigned> counter{0};
  path += ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  return path;
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// A link of /proc leads to an open file, which its text does not always name ("pipe:[123]").
bool is_on_proc(const std::filesystem::path& link) {
  struct statfs status {};
  return ::statfs(directory_of(link).c_str(), &status) == 0 && status.f_type == PROC_SUPER_MAGIC;
}

Result<void> write_all(const std::filesystem::path& path, int descriptor, const std::byte* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = ::write(descriptor, data + done, std::min(bytes - done, kLargestTransfer));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return error_of(path, "write", count < 0 ? errno : EIO);
    }
    done += static_cast<std::size_t>(count);
  }
  return {};
}

// O_NONBLOCK: opening a named pipe would otherwise wait for its writer.
constexpr int kReadFlags = O_RDONLY | O_NONBLOCK;

}  // namespace

Error file_error(const std::filesystem::path& path, std::string_view verb, int error_number) {
  if (error_number == ENOENT || error_number == ENOTDIR) {
    const bool writing = verb != "read";
    return Error{writing ? ErrorCode::kInvalidInput : ErrorCode::kNotFound,
                 path.string() +
                     (writing ? ": cannot " + std::string(verb) + ": its directory does not exist" : ": no such file")};
  }
  return Error{ErrorCode::kFailed,
               path.string() + ": cannot " + std::string(verb) + ": " + std::generic_category().message(error_number)};
}

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t largest) {
  const Descriptor descriptor(open_retrying(path.c_str(), kReadFlags));
  if (descriptor.get() < 0) {
    return error_of(path, "read", errno);
  }
  TESSER_ASSIGN_OR_RETURN(const std::uint64_t size, regular_size(path, descriptor.get()));
  if (size > largest) {
    return invalid_input(path.string() + ": has " + std::to_string(size) + " bytes, at most " +
                         std::to_string(largest) + " are accepted");
  }
  std::string contents(size, '\0');
  std::size_t done = 0;
  while (done < contents.size()) {
    const ssize_t count =
        ::read(descriptor.get(), contents.data() + done, std::min(contents.size() - done, kLargestTransfer));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return error_of(path, "read", errno);
    }
    if (count == 0) {
      break;  // cut short meanwhile
    }
    done += static_cast<std::size_t>(count);
  }
  contents.resize(done);
  return contents;
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor descriptor(open_retrying(path.c_str(), kReadFlags));
  if (descriptor.get() < 0) {
    return error_of(path, "read", errno);
  }
  TESSER_ASSIGN_OR_RETURN(const std::uint64_t size, regular_size(path, descriptor.get()));
  MappedFile file;
  if (size == 0) {
    return file;
  }
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (address == MAP_FAILED) {
    return error_of(path, "map", errno);
  }
  file.data_ = static_cast<const std::byte*>(address);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

AtomicFile::AtomicFile(std::filesystem::path path, std::filesystem::path partial, int descriptor)
    : path_(std::move(path)), partial_(std::move(partial)), descriptor_(descriptor) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      target_(std::exchange(other.target_, -1)),
      appended_(other.appended_) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(target_, other.target_);
  std::swap(appended_, other.appended_);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) {
    ::close(std::exchange(descriptor_, -1));
    if (target_ < 0 && !partial_.empty()) {
      ::unlink(partial_.c_str());
    }
  }
  if (target_ >= 0) {
    ::close(std::exchange(target_, -1));
  }
}

Result<AtomicFile> AtomicFile::create(std::filesystem::path path) {
  if (!path.has_filename()) {
    return invalid_input(path.string() + ": is not the name of a file");
  }
  while (true) {
    std::filesystem::path partial = next_partial(path);
    const int descriptor = open_retrying(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (descriptor >= 0) {
      return AtomicFile(std::move(path), std::move(partial), descriptor);
    }
    if (errno != EEXIST) {  // a killed process of the same number may have left one
      return error_of(path, "write", errno);
    }
  }
}

Result<AtomicFile> AtomicFile::create_output(const std::filesystem::path& path) {
  TESSER_ASSIGN_OR_RETURN(std::filesystem::path place, output_place(path));
  struct stat status {};
  if (::stat(place.c_str(), &status) != 0) {
    return create_without_name(std::move(place));
  }
  if (S_ISDIR(status.st_mode)) {
    return invalid_input(path.string() + ": is a directory, expected the name of a file");
  }
  if (!S_ISREG(status.st_mode) || is_on_proc(place)) {
    return create_into(place);
  }
  Result<AtomicFile> file = create_without_name(std::move(place));
  if (file && ::fchmod(file->descriptor_, status.st_mode & 07777) != 0) {
    return error_of(path, "write", errno);
  }
  return file;
}

Result<AtomicFile> AtomicFile::create_without_name(std::filesystem::path path) {
  const int descriptor =
      path.has_filename() ? open_retrying(directory_of(path).c_str(), O_WRONLY | O_TMPFILE, 0666) : -1;
  return descriptor < 0 ? create(std::move(path)) : AtomicFile(std::move(path), {}, descriptor);
}

Result<void> AtomicFile::name_partial() {
  const std::string unnamed = "/proc/self/fd/" + std::to_string(descriptor_);
  while (partial_.empty()) {
    const std::filesystem::path partial = next_partial(path_);
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, partial.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      partial_ = partial;
    } else if (errno != EEXIST) {
      return error_of(path_, "write", errno);
    }
  }
  return {};
}

// The contents wait in a temporary file, so that they may be written in any order and arrive complete or not at all.
Result<AtomicFile> AtomicFile::create_into(const std::filesystem::path& path) {
  const int target = open_retrying(path.c_str(), O_WRONLY | O_NOCTTY);
  if (target < 0) {
    return error_of(path, "write", errno);
  }
  std::error_code error;
  std::filesystem::path directory = std::filesystem::temp_directory_path(error);
  std::string name = (error ? std::filesystem::path("/tmp") : directory) / "tesser-output-XXXXXX";
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) {
    const int reason = errno;
    ::close(target);
    return error_of(name, "write", reason);
  }
  ::unlink(name.c_str());
  AtomicFile file(path, std::move(directory), descriptor);
  file.target_ = target;
  return file;
}

Result<void> AtomicFile::append(std::string_view bytes) {
  TESSER_RETURN_IF_ERROR(write_at(appended_, bytes.data(), bytes.size()));
  appended_ += bytes.size();
  return {};
}

Result<void> AtomicFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  TESSER_CHECK(descriptor_ >= 0, "a file that is committed already: " + path_.string());
  const auto* const begin = static_cast<const std::byte*>(data);
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::pwrite(descriptor_, begin + done, std::min(bytes - done, kLargestTransfer),
                                   static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return error_of(target_ >= 0 ? partial_ : path_, "write", count < 0 ? errno : EIO);
    }
    done += static_cast<std::size_t>(count);
  }
  return {};
}

Result<void> AtomicFile::copy_into_target() {
  struct stat status {};
  if (::fstat(target_, &status) == 0 && S_ISREG(status.st_mode) && ::ftruncate(target_, 0) != 0) {
    return error_of(path_, "write", errno);
  }
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (off_t offset = 0;;) {
    const ssize_t count = ::pread(descriptor_, piece.data(), piece.size(), offset);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return error_of(partial_, "read", errno);
    }
    if (count == 0) {
      break;
    }
    TESSER_RETURN_IF_ERROR(write_all(path_, target_, piece.data(), static_cast<std::size_t>(count)));
    offset += count;
  }
  // Some file systems and devices say only now that they took nothing. EINVAL, ENOTSUP, EROFS: has no such operation.
  if (::fsync(target_) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS) {
    return error_of(path_, "write", errno);
  }
  return ::close(std::exchange(target_, -1)) == 0 ? Result<void>() : error_of(path_, "write", errno);
}

Result<void> AtomicFile::commit() {
  TESSER_CHECK(descriptor_ >= 0, "a file that is committed already: " + path_.string());
  if (target_ >= 0) {
    const Result<void> copied = copy_into_target();
    ::close(std::exchange(descriptor_, -1));
    return copied;
  }
  TESSER_RETURN_IF_ERROR(name_partial());
  if (::fsync(descriptor_) != 0) {
    return error_of(path_, "write", errno);
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    return error_of(path_, "replace", errno);
  }
  ::close(std::exchange(descriptor_, -1));
  return sync_directory(directory_of(path_));
}

Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  TESSER_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TESSER_RETURN_IF_ERROR(file.append(contents));
  return file.commit();
}

Result<void> write_output_file(const std::filesystem::path& path, std::string_view contents) {
  TESSER_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create_output(path));
  TESSER_RETURN_IF_ERROR(file.append(contents));
  return file.commit();
}

Result<std::filesystem::path> output_place(const std::filesystem::path& path) {
  constexpr int kMostLinks = 40;  // as many as the system follows
  std::filesystem::path place = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    std::error_code error;
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(place, error)) || is_on_proc(place)) {
      return place;
    }
    const std::filesystem::path target = std::filesystem::read_symlink(place, error);
    if (error) {
      return error_of(path, "write", error.value());
    }
    place = place.parent_path() / target;  // an absolute target stands for itself
  }
  return error_of(path, "write", ELOOP);
}

Result<void> sync_directory(const std::filesystem::path& directory) {
  const Descriptor descriptor(open_retrying(directory.c_str(), O_RDONLY | O_DIRECTORY));
  if (descriptor.get() < 0) {
    return error_of(directory, "synchronise", errno);
  }
  // EINVAL: the file system has no such operation for directories, and keeps names in its own way.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) {
    return error_of(directory, "synchronise", errno);
  }
  return {};
}

}  // namespace tesser
