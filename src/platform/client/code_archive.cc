#include "platform/client/code_archive.h"

#include <zlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/file.h"
#include "platform/client/ignore_patterns.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;  // relative, '/' at the end of a directory
  fs::path path;
  std::uint64_t bytes = 0;
  bool is_executable = false;
};

class Walk {
 public:
  Walk(fs::path root, const ArchiveLimits& limits, const IgnorePatterns& patterns)
      : root_(std::move(root)), limits_(limits), patterns_(patterns) {}

  Result<std::vector<Entry>> entries() {
    TESSER_RETURN_IF_ERROR(add(root_, ""));
    if (entries_.size() > limits_.files || bytes_ > limits_.bytes) {
      return invalid_input(too_much());
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
    return std::move(entries_);
  }

 private:
  Result<void> add(const fs::path& directory, const std::string& prefix) {
    std::error_code error;
    for (auto each = fs::directory_iterator(directory, error); !error && each != fs::end(each); each.increment(error)) {
      const std::string name = prefix + each->path().filename().string();
      std::error_code status_error;
      const fs::file_status status = fs::status(each->path(), status_error);
      const bool is_directory = fs::is_directory(status);
      if (patterns_.ignores(name, is_directory)) {
        continue;
      }
      if (fs::is_symlink(each->symlink_status(status_error))) {
        TESSER_RETURN_IF_ERROR(check_link(each->path(), name, status));
      }
      if (is_directory) {
        entries_.push_back({name + "/", each->path(), 0, true});
        TESSER_RETURN_IF_ERROR(add(each->path(), name + "/"));
      } else if (fs::is_regular_file(status)) {
        const std::uint64_t bytes = fs::file_size(each->path(), status_error);
        if (status_error) {
          return failed(fmt::format("{}: cannot be read: {}", each->path().string(), status_error.message()));
        }
        bytes_ += bytes;
        entries_.push_back(
            {name, each->path(), bytes, (status.permissions() & fs::perms::owner_exec) != fs::perms::none});
      } else {
        return invalid_input(
            fmt::format("{}: is neither a file nor a directory; name it in .tesserignore", each->path().string()));
      }
      if (entries_.size() > 4 * limits_.files) {
        return invalid_input(too_much());
      }
    }
    return error ? Result<void>(failed(fmt::format("{}: cannot be read: {}", directory.string(), error.message())))
                 : Result<void>();
  }

  Result<void> check_link(const fs::path& path, const std::string& name, const fs::file_status& status) const {
    std::error_code error;
    const fs::path target = fs::canonical(path, error);
    const fs::path root = fs::canonical(root_, error);
    const auto [end, ignored] = std::mismatch(root.begin(), root.end(), target.begin(), target.end());
    if (error || !fs::is_regular_file(status) || end != root.end()) {
      return invalid_input(
          fmt::format("{}: is a link that does not lead to a file in {}; copy the file, or name it in "
                      ".tesserignore",
                      name, root_.string()));
    }
    return {};
  }

  std::string too_much() {
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.bytes > b.bytes; });
    std::string largest;
    for (std::size_t i = 0; i < std::min<std::size_t>(entries_.size(), 3); ++i) {
      largest += fmt::format("{}{} ({})", i == 0 ? "" : ", ", entries_[i].name,
                             bytes_text(static_cast<std::int64_t>(entries_[i].bytes)));
    }
    return fmt::format(
        "{}: {} files with {}, but a submission takes at most {} files and {}; largest: {}. Name in "
        ".tesserignore what the job does not need; large data belongs in a data store",
        root_.string(), entries_.size(), bytes_text(static_cast<std::int64_t>(bytes_)), limits_.files,
        bytes_text(static_cast<std::int64_t>(limits_.bytes)), largest);
  }

  const fs::path root_;
  const ArchiveLimits limits_;
  const IgnorePatterns& patterns_;
  std::vector<Entry> entries_;
  std::uint64_t bytes_ = 0;
};

void append_number(std::string& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    to += static_cast<char>((value >> (8 * i)) & 0xffU);
  }
}

Result<std::string> deflated(const std::string& content) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return failed("no memory to compress with");
  }
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));  // zlib only reads it
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int outcome = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return outcome == Z_STREAM_END ? Result<std::string>(std::move(packed)) : failed("a file could not be compressed");
}

// What local header and central directory say alike.
std::string description(const Entry& entry, bool is_packed, std::uint32_t crc, std::uint64_t packed_bytes) {
  std::string text;
  append_number(text, 20, 2);                 // version needed
  append_number(text, 0x0800, 2);             // names are UTF-8
  append_number(text, is_packed ? 8 : 0, 2);  // deflated, or stored
  append_number(text, 0, 2);                  // midnight
  append_number(text, 0x21, 2);               // of 1 January 1980: times would make equal directories differ
  append_number(text, crc, 4);
  append_number(text, packed_bytes, 4);
  append_number(text, entry.bytes, 4);
  append_number(text, entry.name.size(), 2);
  append_number(text, 0, 2);  // extra field
  return text;
}

}  // namespace

Result<ArchiveSummary> pack_directory(const fs::path& directory, const fs::path& zip, const ArchiveLimits& limits) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return not_found(fmt::format("{}: is no directory", directory.string()));
  }
  std::string ignored;
  if (fs::exists(directory / ".tesserignore", error)) {
    TESSER_ASSIGN_OR_RETURN(ignored, read_file(directory / ".tesserignore", 1 << 20));
  }
  const IgnorePatterns patterns(ignored);
  TESSER_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Walk(directory, limits, patterns).entries());

  TESSER_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(zip));
  ArchiveSummary summary;
  std::string central;
  for (Entry entry : entries) {
    const bool is_directory = entry.name.ends_with('/');
    std::string content;
    if (!is_directory) {
      TESSER_ASSIGN_OR_RETURN(content, read_file(entry.path));
      ++summary.files;
    }
    entry.bytes = content.size();  // it may have changed since
    const auto crc =
        static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    TESSER_ASSIGN_OR_RETURN(std::string packed, deflated(content));
    const bool is_packed = packed.size() < content.size();
    const std::string& body = is_packed ? packed : content;
    const std::string about = description(entry, is_packed, crc, body.size());
    append_number(central, 0x02014b50, 4);
    append_number(central, 0x0314, 2);  // made on Unix
    central += about;
    append_number(central, 0, 2);  // comment
    append_number(central, 0, 2);  // disk
    append_number(central, 0, 2);  // internal attributes
    const std::uint64_t mode = is_directory ? 040755 : entry.is_executable ? 0100755 : 0100644;
    append_number(central, (mode << 16U) | (is_directory ? 0x10U : 0U), 4);
    append_number(central, summary.zip_bytes, 4);
    central += entry.name;

    std::string head;
    append_number(head, 0x04034b50, 4);
    head += about + entry.name;
    TESSER_RETURN_IF_ERROR(file.append(head));
    TESSER_RETURN_IF_ERROR(file.append(body));
    summary.zip_bytes += head.size() + body.size();
    summary.bytes += entry.bytes;
  }
  // More than these fields hold takes ZIP64 elsewhere; the last two say "see there".
  std::string end;
  const std::uint64_t central_at = summary.zip_bytes;
  const bool is_large = entries.size() >= 0xffff;
  if (is_large) {
    append_number(end, 0x06064b50, 4);
    append_number(end, 44, 8);
    append_number(end, 0x032d, 2);
    append_number(end, 45, 2);
    append_number(end, 0, 8);
    append_number(end, entries.size(), 8);
    append_number(end, entries.size(), 8);
    append_number(end, central.size(), 8);
    append_number(end, central_at, 8);
    append_number(end, 0x07064b50, 4);
    append_number(end, 0, 4);
    append_number(end, central_at + central.size(), 8);
    append_number(end, 1, 4);
  }
  append_number(end, 0x06054b50, 4);
  append_number(end, 0, 4);
  append_number(end, is_large ? 0xffff : entries.size(), 2);
  append_number(end, is_large ? 0xffff : entries.size(), 2);
  append_number(end, central.size(), 4);
  append_number(end, central_at, 4);
  append_number(end, 0, 2);
  TESSER_RETURN_IF_ERROR(file.append(central + end));
  TESSER_RETURN_IF_ERROR(file.commit());
  summary.zip_bytes += central.size() + end.size();
  return summary;
}

}  // namespace tesser::platform
