// Small requests over HTTP/1.1: of a run's workers to their coordinator (docs/runtime.md, runs of several workers), of
// a job's workers to a hub, and of people to both. Bodies are text, mostly JSON; tensors never take this way.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tesser::control {

// The environment variable with the run's secret, which every request of its workers must carry.
inline constexpr const char* kRunTokenVariable = "TESSER_RUN_TOKEN";
// 32 random hexadecimal digits; empty when the system gives no random numbers.
std::string make_run_token();
// Whether a secret that was given is the one expected, in a time that does not depend on where they differ.
bool is_same_secret(std::string_view given, std::string_view expected);

// Called on the server's threads, several at a time. An error reaches the client as that of its request: with status
// 404 for kNotFound and 422 else.
using ControlAnswer = std::function<Result<std::string>(const std::string& path, const std::string& body)>;

struct ControlServerOptions {
  std::string what = "coordinator";  // this server, in messages
  // Answers GET, with an empty body. Paths below /v1/ give JSON, others plain text. None: GET is refused.
  ControlAnswer get;
  // Further tokens that requests may carry, each with the name of whose it is; and what answers POST then, in the place
  // of `answer`: `tenant` is that name, empty for a request with the server's own token or, where none is needed, none.
  std::map<std::string, std::string> tenants;
  std::function<Result<std::string>(const std::string& tenant, const std::string& path, const std::string& body)>
      answer_tenant;
  // Whether a request for the path must carry a token; none: all must. Asked on the server's threads.
  std::function<bool(const std::string& path)> needs_token;
  std::size_t most_body_bytes = std::size_t{64} << 20;  // of a request; larger ones are refused (413) unread
  // From the first byte of a request to its last, and again for the answer; slower clients are hung up on (408).
  std::chrono::milliseconds request_time{10'000};
};

// Writes no log, so that no secret gets into one.
class ControlServer {
 public:
  using Answer = ControlAnswer;

  // Listens at "HOST:PORT" (port 0: the system chooses) for up to `clients` clients that keep their connections;
  // `answer` answers POST, with JSON. An empty token: requests need none.
  static Result<std::unique_ptr<ControlServer>> open(const std::string& address, const std::string& token, int clients,
                                                     Answer answer, ControlServerOptions options = {});
  virtual ~ControlServer() = default;  // waits for answers in work, not for clients

  virtual int port() const = 0;
};

// One thread at a time.
class ControlClient {
 public:
  // `url` is "http://HOST:PORT"; `what` is the server there, in messages.
  static Result<std::unique_ptr<ControlClient>> open(const std::string& url, const std::string& token,
                                                     std::chrono::milliseconds patience,
                                                     const std::string& what = "coordinator");
  virtual ~ControlClient() = default;

  // kNotFound when nobody listens there, kFailed when there is no answer within the patience, kInvalidInput with the
  // server's words when it refuses.
  virtual Result<std::string> post(const std::string& path, const std::string& body) = 0;
  virtual Result<std::string> get(const std::string& path) = 0;
  // The address of this machine by which the server is reached; peers on its network reach this machine there.
  virtual Result<std::string> own_host() const = 0;
};

}  // namespace tesser::control
