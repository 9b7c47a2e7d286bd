#include <algorithm>
#include <fstream>
#include <vector>

#include <fmt/format.h>

#include "platform/data/s3.h"
#include "platform/data/s3_answers.h"
#include "platform/data/s3_bucket.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostParts = 9'000;  // S3 takes 10,000

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() || a.ends_with('/') ? a + b : a + "/" + b;
}

class Upload {
 public:
  Upload(S3Bucket& bucket, const std::atomic<bool>& stop, const TransferOptions& options)
      : bucket_(bucket), stop_(stop), options_(options) {}

  Result<void> one(const fs::path& path, const std::string& key) {
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    if (error || !file) {
      return failed(fmt::format("{}: cannot be read", path.string()));
    }
    if (bytes <= options_.part_bytes) {
      HttpsRequest request = bucket_.request("PUT", key, {});
      TESSER_ASSIGN_OR_RETURN(request.body, next_bytes(file, path, bytes));
      TESSER_RETURN_IF_ERROR(bucket_.send(request));
    } else {
      TESSER_RETURN_IF_ERROR(in_parts(file, path, key, bytes));
    }
    ++summary_.files;
    summary_.bytes += static_cast<std::int64_t>(bytes);
    return {};
  }

  const TransferSummary& summary() const { return summary_; }

 private:
  static Result<std::string> next_bytes(std::ifstream& file, const fs::path& path, std::uint64_t bytes) {
    std::string content(bytes, '\0');
    file.read(content.data(), static_cast<std::streamsize>(bytes));
    if (static_cast<std::uint64_t>(file.gcount()) != bytes) {
      return failed(fmt::format("{}: became shorter while it was stored", path.string()));
    }
    return content;
  }

  Result<void> in_parts(std::ifstream& file, const fs::path& path, const std::string& key, std::uint64_t bytes) {
    TESSER_ASSIGN_OR_RETURN(const HttpsAnswer begun, bucket_.send(bucket_.request("POST", key, {{"uploads", ""}})));
    const auto id = element_text(begun.body, "UploadId");
    if (!id || id->empty()) {
      return failed(fmt::format("{}: an upload was begun without an UploadId", bucket_.name()));
    }
    const Result<void> outcome = all_parts(file, path, key, bytes, *id);
    if (!outcome) {
      // What was sent would be kept, and paid for, without ever being seen.
      bool may_pass = false;
      (void)bucket_.try_once(bucket_.request("DELETE", key, {{"uploadId", *id}}), may_pass);
    }
    return outcome;
  }

  Result<void> all_parts(std::ifstream& file, const fs::path& path, const std::string& key, std::uint64_t bytes,
                         const std::string& id) {
    const std::uint64_t part_bytes = std::max(options_.part_bytes, (bytes + kMostParts - 1) / kMostParts);
    std::string parts;
    int number = 0;
    for (std::uint64_t done = 0; done < bytes;) {
      if (stop_) {
        return failed("told to stop");
      }
      HttpsRequest request = bucket_.request("PUT", key, {{"partNumber", std::to_string(++number)}, {"uploadId", id}});
      TESSER_ASSIGN_OR_RETURN(request.body, next_bytes(file, path, std::min(part_bytes, bytes - done)));
      done += request.body.size();
      TESSER_ASSIGN_OR_RETURN(const HttpsAnswer answer, bucket_.send(request));
      const std::string* tag = answer.header("etag");
      if (tag == nullptr) {
        return failed(fmt::format("{}: a part was taken without an entity tag", bucket_.name()));
      }
      parts += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number, xml_text(*tag));
    }
    HttpsRequest request = bucket_.request("POST", key, {{"uploadId", id}});
    request.headers.emplace_back("Content-Type", "application/xml");
    request.body = "<CompleteMultipartUpload>" + parts + "</CompleteMultipartUpload>";
    TESSER_ASSIGN_OR_RETURN(const HttpsAnswer answer, bucket_.send(request));
    if (const auto code = element_text(answer.body, "Code")) {  // an error may come with status 200
      return failed(fmt::format("{}: '{}' could not be put together ({})", bucket_.name(), key, *code));
    }
    return {};
  }

  S3Bucket& bucket_;
  const std::atomic<bool>& stop_;
  const TransferOptions options_;
  TransferSummary summary_;
};

}  // namespace

Result<TransferSummary> store_to_s3(const DataStore& store, const Secrets& secrets, const std::string& below,
                                    const fs::path& from, const std::atomic<bool>& stop,
                                    const TransferOptions& options) {
  TESSER_ASSIGN_OR_RETURN(S3Bucket bucket, S3Bucket::open(store, secrets, stop, options));
  std::vector<fs::path> files;
  std::error_code error;
  for (auto each = fs::recursive_directory_iterator(from, error); !error && each != fs::end(each);
       each.increment(error)) {
    std::error_code ignored;
    if (each->is_regular_file(ignored) && !each->is_symlink(ignored)) {
      files.push_back(each->path());
    }
  }
  if (error) {
    return failed(fmt::format("{}: cannot be read: {}", from.string(), error.message()));
  }
  std::sort(files.begin(), files.end());
  Upload upload(bucket, stop, options);
  for (const fs::path& path : files) {
    if (stop) {
      return failed("told to stop");
    }
    const std::string key = joined(joined(store.prefix, below), path.lexically_relative(from).generic_string());
    TESSER_RETURN_IF_ERROR(upload.one(path, key));
  }
  return upload.summary();
}

}  // namespace tesser::platform
