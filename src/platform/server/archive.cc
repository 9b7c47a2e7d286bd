#include "platform/server/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <locale.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
constexpr std::size_t kMostPacked = 1'000'000;  // files of a download

// A descriptor of what lies under the path inside the directory, which reads if it is a file and is O_PATH else; -1
// when it is not there any more.
int open_inside(int directory, const fs::path& path, struct stat& status) {
  open_how how{};
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  // A link itself is what O_PATH and O_NOFOLLOW open; only links on the way to it are refused then.
  const int parent =
      path.has_parent_path()
          ? static_cast<int>(::syscall(SYS_openat2, directory, path.parent_path().c_str(), &how, sizeof(how)))
          : ::fcntl(directory, F_DUPFD_CLOEXEC, 0);
  if (parent < 0) {
    return -1;
  }
  int why = 0;
  int file = ::openat(parent, path.filename().c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (file >= 0 && ::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    ::close(file);
    file = ::openat(parent, path.filename().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    why = errno;
    if (file >= 0 && (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode))) {
      ::close(file);
      file = -1;
      why = ELOOP;  // it became something else meanwhile
    }
  } else {
    why = errno;
  }
  ::close(parent);
  errno = why;
  return file;
}

std::string target_of(int link) {
  char text[PATH_MAX];
  const ssize_t bytes = ::readlinkat(link, "", text, sizeof(text));
  return {text, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

// libarchive takes paths through the thread's locale, which must have UTF-8 for them to come out as they went in.
class Utf8Locale {
 public:
  Utf8Locale() : locale_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (locale_ != nullptr) {
      before_ = ::uselocale(locale_);
    }
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;
  ~Utf8Locale() {
    if (locale_ != nullptr) {
      ::uselocale(before_);
      ::freelocale(locale_);
    }
  }

 private:
  locale_t locale_;
  locale_t before_ = nullptr;
};

struct Free {
  void operator()(archive_entry* entry) const { ::archive_entry_free(entry); }
};
using Reader = std::unique_ptr<archive, decltype(&::archive_read_free)>;
using Writer = std::unique_ptr<archive, decltype(&::archive_write_free)>;

// The path inside the directory; empty for the directory itself.
Result<fs::path> safe_path(const char* given) {
  if (given == nullptr || *given == '\0') {
    return invalid_input("the ZIP has a file without a name, or with one that is no UTF-8");
  }
  const std::string text = given;
  fs::path safe;
  if (text.front() == '/' || text.find('\\') != std::string::npos) {
    return invalid_input(fmt::format("the ZIP has the path '{}'; paths are relative, with '/' between names", text));
  }
  for (const fs::path& part : fs::path(text)) {
    if (part == "..") {
      return invalid_input(fmt::format("the ZIP has the path '{}', which leads out of the job's directory", text));
    }
    if (part != "." && !part.empty()) {
      safe /= part;
    }
  }
  return safe;
}

Result<void> unpack_file(archive* reader, const fs::path& path, bool is_executable, std::uint64_t& left) {
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, is_executable ? 0755 : 0644);
  if (file < 0) {
    if (errno == EEXIST || errno == EISDIR) {
      return invalid_input(fmt::format("the ZIP has '{}' twice", path.filename().string()));
    }
    return tl::unexpected(file_error(path, "create", errno));
  }
  Result<void> outcome;
  const void* data = nullptr;
  std::size_t bytes = 0;
  la_int64_t offset = 0;
  int code = ARCHIVE_OK;
  while (outcome && (code = ::archive_read_data_block(reader, &data, &bytes, &offset)) == ARCHIVE_OK) {
    if (offset < 0 || bytes > left) {
      outcome = invalid_input("the ZIP holds more than a job's code may have");
      break;
    }
    left -= bytes;
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::pwrite(file, from, bytes, offset);
      if (written < 0 && errno != EINTR) {
        outcome = tl::unexpected(file_error(path, "write", errno));
        break;
      }
      from += std::max<ssize_t>(written, 0);
      offset += std::max<ssize_t>(written, 0);
      bytes -= static_cast<std::size_t>(std::max<ssize_t>(written, 0));
    }
  }
  if (outcome && code != ARCHIVE_EOF) {
    outcome = invalid_input(
        fmt::format("the ZIP is damaged at '{}': {}", path.filename().string(),
                    ::archive_error_string(reader) != nullptr ? ::archive_error_string(reader) : "cut short"));
  }
  if (outcome && ::fsync(file) != 0) {
    outcome = tl::unexpected(file_error(path, "write", errno));
  }
  ::close(file);
  return outcome;
}

Result<void> make_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error == std::errc::not_a_directory || error == std::errc::file_exists) {
    return invalid_input(fmt::format("the ZIP has '{}' as a file and as a directory", directory.filename().string()));
  }
  if (error) {
    return tl::unexpected(file_error(directory, "create", error.value()));
  }
  return {};
}

}  // namespace

Result<void> unpack_zip(const fs::path& zip, const fs::path& directory, const UnpackLimits& limits) {
  const Utf8Locale locale;
  const Reader reader(::archive_read_new(), &::archive_read_free);
  ::archive_read_support_format_zip_seekable(reader.get());
  if (::archive_read_open_filename(reader.get(), zip.c_str(), kPieceBytes) != ARCHIVE_OK) {
    return invalid_input("the code is no ZIP file");
  }
  std::uint64_t left = limits.bytes;
  std::size_t files = 0;
  std::set<fs::path> directories{directory};
  archive_entry* entry = nullptr;
  int code = ARCHIVE_OK;
  while ((code = ::archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    TESSER_ASSIGN_OR_RETURN(const fs::path inside, safe_path(::archive_entry_pathname(entry)));
    if (++files > limits.files) {
      return invalid_input(fmt::format("the ZIP has more than {} files", limits.files));
    }
    const fs::path path = directory / inside;
    const auto type = ::archive_entry_filetype(entry);
    if (type == AE_IFDIR || inside.empty()) {
      TESSER_RETURN_IF_ERROR(make_directories(path));
      directories.insert(path);
      continue;
    }
    if (type != AE_IFREG || ::archive_entry_hardlink(entry) != nullptr || ::archive_entry_symlink(entry) != nullptr) {
      return invalid_input(fmt::format(
          "the ZIP has '{}', which is a link or a device; files and directories alone are taken", inside.string()));
    }
    if (::archive_entry_is_encrypted(entry) != 0) {
      return invalid_input(fmt::format("the ZIP has '{}' encrypted; pack it without a password", inside.string()));
    }
    TESSER_RETURN_IF_ERROR(make_directories(path.parent_path()));
    for (fs::path each = path.parent_path(); each != directory; each = each.parent_path()) {
      directories.insert(each);
    }
    TESSER_RETURN_IF_ERROR(unpack_file(reader.get(), path, (::archive_entry_perm(entry) & 0100) != 0, left));
  }
  if (code != ARCHIVE_EOF) {
    const char* why = ::archive_error_string(reader.get());
    return invalid_input(fmt::format("the code is no whole ZIP file: {}", why != nullptr ? why : "damaged"));
  }
  for (const fs::path& each : directories) {
    TESSER_RETURN_IF_ERROR(sync_directory(each));
  }
  return {};
}

bool write_tar(const fs::path& directory, const std::function<bool(std::string_view)>& write) {
  const Utf8Locale locale;
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator each(directory, fs::directory_options::skip_permission_denied, error), end;
       !error && each != end; each.increment(error)) {
    paths.push_back(each->path());
    if (paths.size() > kMostPacked) {
      return false;
    }
  }
  const int base = ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (error || base < 0) {
    return false;
  }
  const std::unique_ptr<const int, void (*)(const int*)> closed(&base, [](const int* file) { ::close(*file); });
  std::sort(paths.begin(), paths.end());
  const Writer writer(::archive_write_new(), &::archive_write_free);
  ::archive_write_set_format_pax_restricted(writer.get());
  ::archive_write_set_bytes_per_block(writer.get(), static_cast<int>(kPieceBytes));
  ::archive_write_set_bytes_in_last_block(writer.get(), 1);
  using Write = std::function<bool(std::string_view)>;
  const auto send = [](archive*, void* to, const void* data, std::size_t bytes) -> la_ssize_t {
    const bool sent = (*static_cast<const Write*>(to))({static_cast<const char*>(data), bytes});
    return sent ? static_cast<la_ssize_t>(bytes) : -1;
  };
  if (::archive_write_open(writer.get(), const_cast<Write*>(&write), nullptr, send, nullptr) != ARCHIVE_OK) {
    return false;
  }
  std::vector<char> piece(kPieceBytes);
  for (const fs::path& path : paths) {
    // The command may still run, and put a link in the place of a directory at any moment: no link is followed, and
    // nothing is opened that lies elsewhere.
    struct stat status {};
    const int file = open_inside(base, path.lexically_relative(directory), status);
    if (file < 0 && (errno == EACCES || errno == ELOOP || errno == EXDEV)) {
      continue;  // nothing of the job's
    }
    if (file < 0) {
      return false;
    }
    const std::unique_ptr<const int, void (*)(const int*)> file_closed(&file, [](const int* each) { ::close(*each); });
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode) && !S_ISLNK(status.st_mode)) {
      continue;  // sockets and the like
    }
    const std::unique_ptr<archive_entry, Free> entry(::archive_entry_new());
    ::archive_entry_set_pathname(entry.get(), path.lexically_relative(directory).c_str());
    ::archive_entry_set_mtime(entry.get(), status.st_mtime, 0);
    ::archive_entry_set_filetype(entry.get(), status.st_mode & S_IFMT);
    ::archive_entry_set_perm(entry.get(), S_ISDIR(status.st_mode) || (status.st_mode & 0100) != 0 ? 0755 : 0644);
    if (S_ISLNK(status.st_mode)) {
      ::archive_entry_set_symlink(entry.get(), target_of(file).c_str());
    }
    ::archive_entry_set_size(entry.get(), S_ISREG(status.st_mode) ? status.st_size : 0);
    // A name that is no UTF-8 is only worth a warning: it is written as it is.
    if (::archive_write_header(writer.get(), entry.get()) < ARCHIVE_WARN) {
      return false;
    }
    if (!S_ISREG(status.st_mode)) {
      continue;
    }
    std::uint64_t left = static_cast<std::uint64_t>(status.st_size);  // it may have grown since
    while (left > 0) {
      const ssize_t got = ::read(file, piece.data(), std::min<std::uint64_t>(piece.size(), left));
      if (got <= 0 || ::archive_write_data(writer.get(), piece.data(), static_cast<std::size_t>(got)) != got) {
        break;
      }
      left -= static_cast<std::uint64_t>(got);
    }
    if (left > 0) {
      return false;
    }
  }
  return ::archive_write_close(writer.get()) == ARCHIVE_OK;
}

}  // namespace tesser::platform
