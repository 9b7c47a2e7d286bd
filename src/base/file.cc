#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

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
      appended_(other.appended_) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(appended_, other.appended_);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) {
    ::close(std::exchange(descriptor_, -1));
    ::unlink(partial_.c_str());
  }
}

Result<AtomicFile> AtomicFile::create(std::filesystem::path path) {
  if (!path.has_filename()) {
    return invalid_input(path.string() + ": is not the name of a file");
  }
  static std::atomic<unsigned> counter{0};
  while (true) {
    std::filesystem::path partial = path;
    partial += ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    const int descriptor = open_retrying(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (descriptor >= 0) {
      return AtomicFile(std::move(path), std::move(partial), descriptor);
    }
    if (errno != EEXIST) {  // a killed process of the same number may have left one
      return error_of(path, "write", errno);
    }
  }
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
      return error_of(path_, "write", count < 0 ? errno : EIO);
    }
    done += static_cast<std::size_t>(count);
  }
  return {};
}

Result<void> AtomicFile::commit() {
  TESSER_CHECK(descriptor_ >= 0, "a file that is committed already: " + path_.string());
  if (::fsync(descriptor_) != 0) {
    return error_of(path_, "write", errno);
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    return error_of(path_, "replace", errno);
  }
  ::close(std::exchange(descriptor_, -1));
  return sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
}

Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  TESSER_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TESSER_RETURN_IF_ERROR(file.append(contents));
  return file.commit();
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
