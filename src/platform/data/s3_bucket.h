// Requests to one bucket, tried again where that may help. Internal to this folder.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "platform/data/s3.h"
#include "platform/web/https_client.h"

namespace tesser::platform {

// One thread. `stop` outlives it.
class S3Bucket {
 public:
  static Result<S3Bucket> open(const DataStore& store, const Secrets& secrets, const std::atomic<bool>& stop,
                               const TransferOptions& options);

  using Query = std::vector<std::pair<std::string, std::string>>;

  // `key` empty: the bucket itself.
  HttpsRequest request(const std::string& method, const std::string& key, const Query& query) const;
  // Tries until an answer is a success, or an error is one that stays.
  Result<HttpsAnswer> send(const HttpsRequest& request);
  // One try: a success, or an error; `may_pass` then says whether another try may help.
  Result<HttpsAnswer> try_once(const HttpsRequest& request, bool& may_pass);
  // The pause after a try, longer each time. An error when it was the last, or all is to stop.
  Result<void> pause_after(int tries_done, const Error& error);

  const std::string& name() const { return name_; }  // for messages: "data store 'images' (bucket photos)"

 private:
  S3Bucket(const DataStore& store, const std::atomic<bool>& stop, const TransferOptions& options)
      : store_(store), stop_(stop), options_(options) {}
  Error refusal(const HttpsAnswer& answer, bool& may_pass) const;

  DataStore store_;
  const std::atomic<bool>& stop_;
  TransferOptions options_;
  std::string name_;
  std::string url_;  // of the bucket
  std::optional<AwsCredentials> credentials_;
  std::unique_ptr<HttpsClient> http_;
};

}  // namespace tesser::platform
