#include "platform/web/https_client.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <ctime>

#include <curl/curl.h>
#include <fmt/format.h>

#include "platform/web/sha256.h"
#include "platform/web/url.h"

namespace tesser::platform {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestPoll{1000};

// What the callbacks of one request share with send().
struct Transfer {
  explicit Transfer(const HttpsRequest& asked) : request(asked) {}

  const HttpsRequest& request;
  HttpsAnswer answer;
  std::uint64_t sent = 0;  // of the body
  Clock::time_point last_byte = Clock::now();
  curl_off_t counted = 0;      // bytes both ways
  bool is_done = false;        // receive() has had enough
  std::optional<Error> error;  // of a callback

  void refuse(Error reason) {
    if (!error) {
      error = std::move(reason);
    }
  }
};

std::size_t take_header(char* text, std::size_t, std::size_t bytes, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  transfer.last_byte = Clock::now();
  std::string_view line(text, bytes);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) {
    line.remove_suffix(1);
  }
  if (line.starts_with("HTTP/")) {  // also after "100 Continue"
    transfer.answer.headers.clear();
    const std::size_t space = line.find(' ');
    transfer.answer.status = space != std::string_view::npos ? std::atoi(std::string(line.substr(space)).c_str()) : 0;
    return bytes;
  }
  if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    transfer.answer.headers.emplace_back(std::move(name), value != std::string_view::npos ? line.substr(value) : "");
  }
  return bytes;
}

std::size_t take_body(char* text, std::size_t, std::size_t bytes, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  transfer.last_byte = Clock::now();
  if (transfer.request.receive && transfer.answer.status < 300) {
    const Result<bool> goes_on = transfer.request.receive({text, bytes});
    if (!goes_on) {
      transfer.refuse(goes_on.error());
      return CURL_WRITEFUNC_ERROR;
    }
    transfer.is_done = !*goes_on;
    return *goes_on ? bytes : CURL_WRITEFUNC_ERROR;
  }
  if (transfer.answer.body.size() + bytes > transfer.request.most_body_bytes) {
    transfer.refuse(
        {ErrorCode::kFailed, fmt::format("the answer has more than {} bytes", transfer.request.most_body_bytes)});
    return CURL_WRITEFUNC_ERROR;
  }
  transfer.answer.body.append(text, bytes);
  return bytes;
}

std::size_t give_body(char* room, std::size_t, std::size_t bytes, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  transfer.last_byte = Clock::now();
  const std::uint64_t left = transfer.request.upload_bytes - transfer.sent;
  const std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, left));
  if (most == 0) {
    return 0;
  }
  const Result<std::size_t> given = transfer.request.upload({room, most});
  if (!given) {
    transfer.refuse(given.error());
    return CURL_READFUNC_ABORT;
  }
  if (*given == 0 || *given > most) {
    transfer.refuse({ErrorCode::kFailed, fmt::format("what is sent ended after {} of {} bytes", transfer.sent,
                                                     transfer.request.upload_bytes)});
    return CURL_READFUNC_ABORT;
  }
  transfer.sent += *given;
  return *given;
}

// Bytes go out from curl's own buffers long after the callbacks; this sees them too.
int see_progress(void* context, curl_off_t, curl_off_t received, curl_off_t, curl_off_t sent) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  if (received + sent != transfer.counted) {
    transfer.counted = received + sent;
    transfer.last_byte = Clock::now();
  }
  return 0;
}

class HeaderList {
 public:
  ~HeaderList() { curl_slist_free_all(list_); }
  bool add(const std::string& name, const std::string& value) {
    if ((name + value).find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
      return false;
    }
    // "NAME;" is curl's way to send a header without a value, "NAME:" one to leave a header of its own out.
    curl_slist* longer = curl_slist_append(list_, (value.empty() ? name + ";" : name + ": " + value).c_str());
    list_ = longer != nullptr ? longer : list_;
    return longer != nullptr;
  }
  bool leave_out(const char* name) {
    curl_slist* longer = curl_slist_append(list_, (std::string(name) + ":").c_str());
    list_ = longer != nullptr ? longer : list_;
    return longer != nullptr;
  }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

ErrorCode code_of(CURLcode result) {
  switch (result) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
      return ErrorCode::kInvalidInput;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
      return ErrorCode::kNotFound;
    default:
      return ErrorCode::kFailed;
  }
}

class CurlClient : public HttpsClient {
 public:
  explicit CurlClient(HttpsOptions options)
      : options_(std::move(options)), multi_(curl_multi_init()), easy_(curl_easy_init()) {
    if (multi_ != nullptr) {
      curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, 4L);
    }
  }
  ~CurlClient() override {
    curl_easy_cleanup(easy_);
    curl_multi_cleanup(multi_);
  }
  bool is_whole() const { return multi_ != nullptr && easy_ != nullptr; }

  Result<HttpsAnswer> send(const HttpsRequest& request) override;

  void cancel() override {
    is_cancelled_ = true;
    curl_multi_wakeup(multi_);
  }
  void reset() override { is_cancelled_ = false; }

 private:
  Result<void> prepare(const HttpsRequest& request, Transfer& transfer, HeaderList& headers);
  // Until the request has ended one way or another.
  Result<void> run(Transfer& transfer);
  std::string where(const HttpsRequest& request) const {
    const UrlParts parts = split_url(request.url);
    return fmt::format("{} at {}://{}", options_.what, parts.scheme, parts.authority);
  }
  void set(CURLoption option, const std::string& text) { curl_easy_setopt(easy_, option, text.c_str()); }
  void set_blob(CURLoption option, const std::string& text) {
    curl_blob blob{const_cast<char*>(text.data()), text.size(), CURL_BLOB_COPY};
    curl_easy_setopt(easy_, option, &blob);
  }

  HttpsOptions options_;
  CURLM* multi_;
  CURL* easy_;
  char message_[CURL_ERROR_SIZE] = {};
  std::atomic<bool> is_cancelled_ = false;
};

Result<void> CurlClient::prepare(const HttpsRequest& request, Transfer& transfer, HeaderList& headers) {
  curl_easy_reset(easy_);  // connections stay
  message_[0] = 0;
  curl_easy_setopt(easy_, CURLOPT_ERRORBUFFER, message_);
  curl_easy_setopt(easy_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy_, CURLOPT_PROTOCOLS_STR, "https,http");
  curl_easy_setopt(easy_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy_, CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_URL, request.url);
  curl_easy_setopt(easy_, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy_, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.limits.connect.count()));
  curl_easy_setopt(easy_, CURLOPT_TIMEOUT_MS, static_cast<long>(request.limits.whole.count()));

  if (!options_.authorities.empty()) {
    set_blob(CURLOPT_CAINFO_BLOB, options_.authorities);
    curl_easy_setopt(easy_, CURLOPT_CAPATH, nullptr);
  } else if (!options_.authorities_file.empty()) {
    set(CURLOPT_CAINFO, options_.authorities_file.string());
    curl_easy_setopt(easy_, CURLOPT_CAPATH, nullptr);
  }
  if (!options_.client_certificate.empty()) {
    set_blob(CURLOPT_SSLCERT_BLOB, options_.client_certificate);
    set_blob(CURLOPT_SSLKEY_BLOB, options_.client_key);
  }
  curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYPEER, options_.verify ? 1L : 0L);
  curl_easy_setopt(easy_, CURLOPT_SSL_VERIFYHOST, options_.verify ? 2L : 0L);

  set(CURLOPT_CUSTOMREQUEST, request.method);
  if (request.method == "HEAD") {
    curl_easy_setopt(easy_, CURLOPT_NOBODY, 1L);
  } else if (request.upload) {
    curl_easy_setopt(easy_, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy_, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.upload_bytes));
    curl_easy_setopt(easy_, CURLOPT_READFUNCTION, give_body);
    curl_easy_setopt(easy_, CURLOPT_READDATA, &transfer);
  } else if (!request.body.empty() || request.method == "POST" || request.method == "PUT" ||
             request.method == "PATCH") {
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDS, request.body.data());
  }
  curl_easy_setopt(easy_, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(easy_, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy_, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(easy_, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(easy_, CURLOPT_XFERINFOFUNCTION, see_progress);
  curl_easy_setopt(easy_, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(easy_, CURLOPT_NOPROGRESS, 0L);

  // No wait for "100 Continue", and no content type that the caller did not give.
  bool fits = headers.leave_out("Expect") && headers.leave_out("Content-Type");
  auto given = request.headers;
  if (request.sign) {
    const std::string hash = !request.payload_sha256.empty() ? request.payload_sha256
                             : request.upload                ? std::string(kUnsignedPayload)
                                                             : hexadecimal(sha256(request.body));
    for (auto& header :
         aws_signature(*request.sign, request.method, request.url, request.headers, hash, std::time(nullptr))) {
      given.push_back(std::move(header));
    }
  }
  for (const auto& [name, value] : given) {
    fits = fits && headers.add(name, value);
  }
  if (!fits) {
    return invalid_input(fmt::format("{}: a header of the request has a line break in it", where(request)));
  }
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers.get());
  return {};
}

Result<void> CurlClient::run(Transfer& transfer) {
  const HttpsRequest& request = transfer.request;
  CURLcode result = CURLE_OK;
  for (bool is_over = false; !is_over;) {
    int running = 0;
    if (const CURLMcode code = curl_multi_perform(multi_, &running); code != CURLM_OK) {
      return failed(fmt::format("{}: {}", where(request), curl_multi_strerror(code)));
    }
    int waiting = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &waiting)) {
      is_over = is_over || message->msg == CURLMSG_DONE;
      result = message->msg == CURLMSG_DONE ? message->data.result : result;
    }
    if (is_over) {
      break;
    }
    if (is_cancelled_) {
      return failed(fmt::format("{}: the request was cancelled", where(request)));
    }
    if (request.goes_on && !request.goes_on()) {
      transfer.is_done = true;
      break;
    }
    std::chrono::milliseconds rest = request.goes_on ? std::min(kLongestPoll, request.look) : kLongestPoll;
    if (request.limits.idle.count() > 0) {
      const auto idle = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - transfer.last_byte);
      if (idle >= request.limits.idle) {
        return failed(fmt::format("{}: no byte for {} ms", where(request), request.limits.idle.count()));
      }
      rest = std::min(rest, request.limits.idle - idle);
    }
    curl_multi_poll(multi_, nullptr, 0, static_cast<int>(rest.count()) + 1, nullptr);
  }
  if (transfer.error) {
    return tl::unexpected<Error>(
        Error{transfer.error->code, fmt::format("{}: {}", where(request), transfer.error->message)});
  }
  if (result == CURLE_OK || transfer.is_done) {
    return {};
  }
  const std::string reason = message_[0] != 0 ? message_ : curl_easy_strerror(result);
  return tl::unexpected<Error>(Error{code_of(result), fmt::format("{}: {}", where(request), reason)});
}

Result<HttpsAnswer> CurlClient::send(const HttpsRequest& request) {
  Transfer transfer(request);
  HeaderList headers;
  TESSER_RETURN_IF_ERROR(prepare(request, transfer, headers));
  if (const CURLMcode code = curl_multi_add_handle(multi_, easy_); code != CURLM_OK) {
    return failed(fmt::format("{}: {}", where(request), curl_multi_strerror(code)));
  }
  const Result<void> outcome = run(transfer);
  curl_multi_remove_handle(multi_, easy_);  // closes the connection of a request that has not ended
  TESSER_RETURN_IF_ERROR(outcome);
  return std::move(transfer.answer);
}

}  // namespace

const std::string* HttpsAnswer::header(std::string_view name) const {
  for (const auto& [each, value] : headers) {
    if (each == name) {
      return &value;
    }
  }
  return nullptr;
}

Result<std::unique_ptr<HttpsClient>> HttpsClient::open(HttpsOptions options) {
  // Once a process, before any thread uses curl: static initialisation is guarded by the language.
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) {
    return failed(fmt::format("libcurl does not start: {}", curl_easy_strerror(started)));
  }
  if (options.client_certificate.empty() != options.client_key.empty()) {
    return invalid_input(
        fmt::format("{}: a client certificate needs its key, and a key its certificate", options.what));
  }
  std::error_code error;
  if (options.authorities.empty() && !options.authorities_file.empty() &&
      !std::filesystem::exists(options.authorities_file, error)) {
    return not_found(fmt::format("{}: the file of certificate authorities {} does not exist", options.what,
                                 options.authorities_file.string()));
  }
  auto client = std::make_unique<CurlClient>(std::move(options));
  if (!client->is_whole()) {
    return failed("libcurl does not start: no memory");
  }
  return client;
}

}  // namespace tesser::platform
