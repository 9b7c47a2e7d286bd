// Small requests from a run's workers to its coordinator, over HTTP (docs/runtime.md, runs of several workers).
// Bodies are JSON (control_messages.h); tensors never take this way.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace tesser::control {

// The environment variable with the run's secret, which every request must carry.
inline constexpr const char* kRunTokenVariable = "TESSER_RUN_TOKEN";
// 32 random hexadecimal digits.
std::string make_run_token();

// The coordinator's end. `answer` is called on the server's threads, several at a time; an error from it reaches the
// client as the error of its request.
class ControlServer {
 public:
  using Answer = std::function<Result<std::string>(const std::string& path, const std::string& body)>;

  // Listens at "HOST:PORT" (port 0: the system chooses) for up to `clients` clients that keep their connections.
  static Result<std::unique_ptr<ControlServer>> open(const std::string& address, const std::string& token, int clients,
                                                     Answer answer);
  virtual ~ControlServer() = default;  // waits for requests in work

  virtual int port() const = 0;
};

// A worker's end. One thread at a time.
class ControlClient {
 public:
  // `url` is "http://HOST:PORT".
  static Result<std::unique_ptr<ControlClient>> open(const std::string& url, const std::string& token,
                                                     std::chrono::milliseconds patience);
  virtual ~ControlClient() = default;

  // kNotFound when nobody listens there, kFailed when there is no answer within the patience, kInvalidInput with the
  // coordinator's words when it refuses.
  virtual Result<std::string> post(const std::string& path, const std::string& body) = 0;
  // The address of this machine by which the coordinator is reached; peers on its network reach this machine there.
  virtual Result<std::string> own_host() const = 0;
};

}  // namespace tesser::control
