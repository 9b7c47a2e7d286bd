#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/data/md5.h"
#include "platform/data/s3.h"
#include "platform/data/s3_answers.h"
#include "platform/data/s3_bucket.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

// The path of an object below the directory; nothing for "directories", which some tools make as empty objects.
Result<std::optional<fs::path>> path_of(const std::string& key, const DataStore& store, const std::string& name) {
  std::string below = key.substr(store.prefix.size());
  while (below.starts_with('/')) {
    below.erase(0, 1);
  }
  if (below.empty() || below.ends_with('/')) {
    return std::nullopt;
  }
  fs::path path;
  for (std::size_t begin = 0; begin <= below.size();) {
    const std::size_t end = std::min(below.find('/', begin), below.size());
    const std::string part = below.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string::npos || part.size() > 200) {
      return invalid_input(
          fmt::format("{}: the object '{}' has a name that is no path; choose another 'prefix'", name, key));
    }
    path /= part;
    begin = end + 1;
  }
  return path;
}

class Fetch {
 public:
  Fetch(const DataStore& store, S3Bucket& bucket, fs::path partial, const std::atomic<bool>& stop,
        const TransferOptions& options)
      : store_(store), bucket_(bucket), partial_(std::move(partial)), stop_(stop), options_(options) {}

  Result<TransferSummary> all() {
    std::string token;
    do {
      S3Bucket::Query query = {{"list-type", "2"}, {"max-keys", std::to_string(options_.page)}};
      if (!store_.prefix.empty()) {
        query.emplace_back("prefix", store_.prefix);
      }
      if (!token.empty()) {
        query.emplace_back("continuation-token", token);
      }
      TESSER_ASSIGN_OR_RETURN(const HttpsAnswer answer, bucket_.send(bucket_.request("GET", "", query)));
      const auto page = read_s3_page(answer.body);
      if (!page) {
        return failed(fmt::format("{}: the listing is none of S3's", bucket_.name()));
      }
      for (const S3Object& object : page->objects) {
        TESSER_ASSIGN_OR_RETURN(const std::optional<fs::path> path, path_of(object.key, store_, bucket_.name()));
        if (path) {
          TESSER_RETURN_IF_ERROR(one(object, partial_ / "files" / *path));
        }
      }
      token = page->next;
    } while (!token.empty());
    if (summary_.files == 0) {
      return not_found(fmt::format("{}: no object's name begins with '{}'", bucket_.name(), store_.prefix));
    }
    return summary_;
  }

 private:
  Result<void> one(const S3Object& object, const fs::path& path) {
    ++summary_.files;
    std::error_code error;
    if (fs::is_regular_file(path, error) && fs::file_size(path, error) == static_cast<std::uint64_t>(object.bytes)) {
      summary_.resumed += object.bytes;
      return {};
    }
    fs::create_directories(path.parent_path(), error);
    if (!error) {
      fs::create_directories(partial_ / "parts", error);
    }
    if (error) {
      return failed(fmt::format("{}: cannot be made: {}", path.parent_path().string(), error.message()));
    }
    // Another version of the object has another tag, and so another part.
    const fs::path part = partial_ / "parts" / md5(object.key + "\n" + object.tag);
    bool was_wrong = false;
    for (int tries = 1;; ++tries) {
      bool may_pass = false;
      const Result<void> outcome = one_try(object, part, may_pass);
      if (outcome) {
        if (is_right(object, part)) {
          break;
        }
        fs::remove(part, error);
        if (was_wrong) {
          return failed(fmt::format("{}: '{}' does not have the content that its entity tag says, twice",
                                    bucket_.name(), object.key));
        }
        was_wrong = true;
        continue;
      }
      if (!may_pass) {
        return outcome;
      }
      TESSER_RETURN_IF_ERROR(bucket_.pause_after(tries, outcome.error()));
    }
    fs::rename(part, path, error);
    return error ? Result<void>(failed(fmt::format("{}: cannot be made: {}", path.string(), error.message())))
                 : Result<void>();
  }

  // From where the part ends.
  Result<void> one_try(const S3Object& object, const fs::path& part, bool& may_pass) {
    const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) {
      return tl::unexpected<Error>(file_error(part, "write", errno));
    }
    const Result<void> outcome = receive(object, part, file, may_pass);
    ::close(file);
    return outcome;
  }

  Result<void> receive(const S3Object& object, const fs::path& part, int file, bool& may_pass) {
    const std::int64_t have = ::lseek(file, 0, SEEK_END);
    std::int64_t got = 0;
    Result<void> written;
    if (have < object.bytes || object.bytes == 0) {
      HttpsRequest request = bucket_.request("GET", object.key, {});
      if (have > 0) {
        request.headers.emplace_back("Range", fmt::format("bytes={}-", have));
      }
      request.headers.emplace_back("If-Match", "\"" + object.tag + "\"");
      request.receive = [&](std::string_view piece) -> Result<bool> {
        if (stop_) {
          written = failed("told to stop");
          return false;
        }
        got += static_cast<std::int64_t>(piece.size());
        while (!piece.empty()) {
          const ssize_t count = ::write(file, piece.data(), piece.size());
          if (count < 0 && errno != EINTR) {
            written = tl::unexpected<Error>(file_error(part, "write", errno));
            return false;
          }
          piece.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        }
        return true;
      };
      const Result<HttpsAnswer> answer = bucket_.try_once(request, may_pass);
      summary_.bytes += got;
      if (!written) {
        may_pass = false;  // of the disk, or of whoever stops
        return written;
      }
      if (!answer) {
        return tl::unexpected<Error>(answer.error());
      }
      if (have > 0 && answer->status != 206) {  // all of it came, behind what was there
        may_pass = ::ftruncate(file, 0) == 0;
        return failed(fmt::format("{}: '{}' came from its beginning", bucket_.name(), object.key));
      }
    }
    if (have > 0) {
      summary_.resumed += have;
    }
    const std::int64_t bytes = ::lseek(file, 0, SEEK_END);
    if (bytes != object.bytes) {
      may_pass = bytes < object.bytes || ::ftruncate(file, 0) == 0;
      return failed(fmt::format("{}: '{}' has {} bytes, {} came", bucket_.name(), object.key, object.bytes, bytes));
    }
    if (::fsync(file) != 0) {
      may_pass = false;
      return tl::unexpected<Error>(file_error(part, "write", errno));
    }
    return {};
  }

  // The tag of an object that was sent in one piece, without a key of the server's, is its MD5.
  bool is_right(const S3Object& object, const fs::path& part) const {
    const bool is_md5 =
        object.tag.size() == 32 && object.tag.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_md5) {
      return true;
    }
    const auto file = MappedFile::open(part);
    return file && md5({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}) == object.tag;
  }

  const DataStore& store_;
  S3Bucket& bucket_;
  const fs::path partial_;
  const std::atomic<bool>& stop_;
  const TransferOptions options_;
  TransferSummary summary_;
};

}  // namespace

Result<TransferSummary> fetch_from_s3(const DataStore& store, const Secrets& secrets, const fs::path& to,
                                      const std::atomic<bool>& stop, const TransferOptions& options) {
  std::error_code error;
  if (fs::is_directory(to, error)) {
    return TransferSummary{};
  }
  TESSER_ASSIGN_OR_RETURN(S3Bucket bucket, S3Bucket::open(store, secrets, stop, options));
  const fs::path partial = to.string() + ".partial";
  TESSER_ASSIGN_OR_RETURN(const TransferSummary summary, Fetch(store, bucket, partial, stop, options).all());
  fs::rename(partial / "files", to, error);
  if (error) {
    return failed(fmt::format("{}: cannot be made: {}", to.string(), error.message()));
  }
  fs::remove_all(partial, error);
  TESSER_RETURN_IF_ERROR(sync_directory(to.parent_path()));
  return summary;
}

}  // namespace tesser::platform
