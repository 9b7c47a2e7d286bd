#include "platform/data/s3_bucket.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "platform/data/s3_answers.h"
#include "platform/web/url.h"

namespace tesser::platform {
namespace {

constexpr std::chrono::milliseconds kLongestPause{10'000};
constexpr std::chrono::milliseconds kStopCheck{50};

}  // namespace

Result<S3Bucket> S3Bucket::open(const DataStore& store, const Secrets& secrets, const std::atomic<bool>& stop,
                                const TransferOptions& options) {
  S3Bucket bucket(store, stop, options);
  bucket.name_ = fmt::format("data store '{}' (bucket {})", store.id, store.bucket);
  std::string endpoint =
      store.endpoint.empty() ? fmt::format("https://s3.{}.amazonaws.com", store.region) : store.endpoint;
  while (endpoint.ends_with('/')) {
    endpoint.pop_back();
  }
  bucket.url_ = fmt::format("{}/{}", endpoint, store.bucket);
  if (!store.access_key.empty()) {
    AwsCredentials credentials;
    credentials.region = store.region;
    for (const auto& [name, to] :
         {std::pair{store.access_key, &credentials.access_key}, std::pair{store.secret_key, &credentials.secret_key}}) {
      const auto found = secrets.find(name);
      if (found == secrets.end()) {
        return invalid_input(
            fmt::format("{}: the secret '{}' was not given when the job was submitted", bucket.name_, name));
      }
      *to = found->second;
    }
    bucket.credentials_ = std::move(credentials);
  }
  HttpsOptions https;
  https.what = "S3";
  TESSER_ASSIGN_OR_RETURN(bucket.http_, HttpsClient::open(https));
  return bucket;
}

HttpsRequest S3Bucket::request(const std::string& method, const std::string& key, const Query& query) const {
  HttpsRequest request;
  request.method = method;
  request.url = url_ + (key.empty() ? "" : "/" + url_encoded(key, true));
  char mark = '?';
  for (const auto& [name, value] : query) {
    request.url += fmt::format("{}{}={}", mark, url_encoded(name), url_encoded(value));
    mark = '&';
  }
  request.sign = credentials_;
  request.limits.whole = std::chrono::milliseconds(0);  // large objects take their time; silence is bounded
  return request;
}

Result<HttpsAnswer> S3Bucket::try_once(const HttpsRequest& request, bool& may_pass) {
  Result<HttpsAnswer> answer = http_->send(request);
  if (!answer) {
    may_pass = answer.error().code != ErrorCode::kInvalidInput;
    return failed(fmt::format("{}: {}", name_, answer.error().message));
  }
  if (answer->is_success()) {
    return answer;
  }
  return tl::unexpected<Error>(refusal(*answer, may_pass));
}

Result<HttpsAnswer> S3Bucket::send(const HttpsRequest& request) {
  for (int tries = 1;; ++tries) {
    bool may_pass = false;
    Result<HttpsAnswer> answer = try_once(request, may_pass);
    if (answer || !may_pass) {
      return answer;
    }
    TESSER_RETURN_IF_ERROR(pause_after(tries, answer.error()));
  }
}

Result<void> S3Bucket::pause_after(int tries_done, const Error& error) {
  if (tries_done >= options_.tries) {
    return failed(fmt::format("{} ({} tries)", error.message, tries_done));
  }
  const auto pause = std::min(kLongestPause, options_.first_pause * (1 << std::min(tries_done - 1, 10)));
  const auto until = std::chrono::steady_clock::now() + pause;
  while (std::chrono::steady_clock::now() < until) {
    if (stop_) {
      return failed("told to stop");
    }
    std::this_thread::sleep_for(std::min(kStopCheck, pause));
  }
  return {};
}

Error S3Bucket::refusal(const HttpsAnswer& answer, bool& may_pass) const {
  const std::string code = element_text(answer.body, "Code").value_or("");
  const std::string said = element_text(answer.body, "Message").value_or("");
  may_pass = answer.status >= 500 || answer.status == 429 || answer.status == 408 || code == "SlowDown" ||
             code == "RequestTimeout";
  if (code == "NoSuchBucket") {
    return {ErrorCode::kNotFound,
            fmt::format("{}: there is no such bucket at {}; check 'bucket', 'endpoint' and 'region'", name_,
                        url_.substr(0, url_.rfind('/')))};
  }
  if (code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch" || code == "InvalidToken") {
    return {ErrorCode::kInvalidInput, fmt::format("{}: the keys in the secrets '{}' and '{}' are refused ({})", name_,
                                                  store_.access_key, store_.secret_key, code)};
  }
  if (answer.status == 401 || answer.status == 403) {
    return {ErrorCode::kInvalidInput,
            fmt::format("{}: access is denied ({}){}", name_, code.empty() ? std::to_string(answer.status) : code,
                        store_.access_key.empty() ? "; the store has no access_key and secret_key"
                                                  : "; the keys do not allow this")};
  }
  if (answer.status == 404) {
    return {ErrorCode::kNotFound, fmt::format("{}: not found ({})", name_, code)};
  }
  return {may_pass ? ErrorCode::kFailed : ErrorCode::kInvalidInput,
          fmt::format("{}: status {}{}{}", name_, answer.status, code.empty() ? "" : ", " + code,
                      said.empty() ? "" : ": " + said)};
}

}  // namespace tesser::platform
