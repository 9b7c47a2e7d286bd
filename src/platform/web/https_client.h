// Requests over HTTP/1.1 and HTTPS to servers that are not ours: Kubernetes' API server, S3. (Our own processes speak
// through control/control_http.h.)
//
// An object keeps its connections open and uses them again; it sends one request at a time and may be used by one
// thread at a time, except cancel(), which any thread may call. Redirects are not followed, so that no secret goes to
// another host. The environment's proxies (https_proxy, no_proxy) are used. Nothing is logged, and no message has a
// header or a body of the request in it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "platform/web/aws_signature.h"

namespace tesser::platform {

struct HttpsOptions {
  // PEM text of the authorities to trust instead of the system's, or a file of it; text wins.
  std::string authorities;
  std::filesystem::path authorities_file;
  // PEM text with which this side shows who it is; both or none.
  std::string client_certificate;
  std::string client_key;
  // False: any certificate is taken, so whoever stands between can read and change everything.
  bool verify = true;

  std::string what = "server";  // the other side, in messages: "Kubernetes' API server"
};

struct HttpsLimits {
  std::chrono::milliseconds connect{5000};  // until there is a connection, TLS included
  std::chrono::milliseconds whole{30000};   // of the request with its answer; 0: none
  std::chrono::milliseconds idle{30000};    // without a byte in either direction; 0: none
};

struct HttpsRequest {
  std::string method = "GET";
  std::string url;                                           // "https://HOST[:PORT]/PATH[?QUERY]", encoded; or http://
  std::vector<std::pair<std::string, std::string>> headers;  // "Content-Type", "application/json"
  // Sent with the request; or, where `upload` is set, `upload_bytes` bytes that it gives: it writes into the span and
  // returns how many; 0 before all are given is an error, as is one of its own. Called on the sending thread.
  std::string body;
  std::function<Result<std::size_t>(std::span<char>)> upload;
  std::uint64_t upload_bytes = 0;

  // Takes the body of an answer with a status below 300 piece by piece, on the sending thread, instead of
  // HttpsAnswer::body. An error ends the request with it; false ends it with success, and its connection is closed.
  std::function<Result<bool>(std::string_view)> receive;
  // Asked every `look` while the request is under way, on the sending thread, where set: false ends it as receive()
  // does, perhaps before there is a status (0).
  std::function<bool()> goes_on;
  std::chrono::milliseconds look{50};
  // A longer body (of those kept in HttpsAnswer::body) is an error.
  std::size_t most_body_bytes = std::size_t{64} << 20;

  // Signs the request with AWS Signature Version 4. `payload_sha256` is the body's, in hexadecimal; absent, that of
  // `body`, or for an upload kUnsignedPayload.
  std::optional<AwsCredentials> sign;
  std::string payload_sha256;

  HttpsLimits limits;
};

struct HttpsAnswer {
  int status = 0;                                            // any: a refusal is an answer
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in the order they came
  std::string body;

  bool is_success() const { return status >= 200 && status < 300; }
  // The first header of this name (in lower case), or nullptr.
  const std::string* header(std::string_view name) const;
};

class HttpsClient {
 public:
  // kInvalidInput when certificates or keys are incomplete, kNotFound when the file of authorities does not exist.
  static Result<std::unique_ptr<HttpsClient>> open(HttpsOptions options);
  virtual ~HttpsClient() = default;

  // kInvalidInput when the request cannot be sent as it is (URL, TLS material); kNotFound when nobody listens there or
  // the host has no address; kFailed otherwise: no answer in time, connection broken, certificate not trusted,
  // cancelled. An error says nothing about whether the server acted on the request.
  virtual Result<HttpsAnswer> send(const HttpsRequest& request) = 0;

  // Ends the request under way, or the next one, with kFailed, within milliseconds. Sticks until reset().
  virtual void cancel() = 0;
  virtual void reset() = 0;
};

}  // namespace tesser::platform
