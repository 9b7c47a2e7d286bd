// The platform's API as people's programs use it (docs/platform.md, HTTP).
//
// One thread at a time per object; calls block. Errors say what to do: kNotFound when nobody listens at the URL or no
// such job is there, kFailed when the server does not answer in time or says that it cannot, kInvalidInput when it
// refuses (token, manifest, state), in its words.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/client/answers.h"
#include "platform/job/secrets.h"

namespace tesser::platform {

struct ClientOptions {
  std::string url;                    // "http://HOST:PORT"
  std::string token;                  // may be empty: the server then has to take anybody
  std::filesystem::path authorities;  // PEM file of whom to trust to be the server, with https://; empty: the system's
  std::chrono::milliseconds patience{30'000};
  std::chrono::milliseconds submit_time{10'000};  // for which a submission is tried again
};

struct NewSubmission {
  std::string manifest;        // without secrets: Submission::text
  Secrets secrets;             // all that it names
  std::filesystem::path code;  // a ZIP file; empty: none
  std::string key;             // the same key gives the same job; empty: a random one
};

struct JobsQuery {
  std::string state;  // empty: all
  std::string team;
  int limit = 100;
  std::string after;  // JobsAnswer::next of the page before
};

struct FollowQuery {
  std::optional<int> learner;
  std::string name;    // of metrics; empty: all
  std::string cursor;  // of the answer before; empty: from the beginning
  int limit = 1000;
  std::chrono::seconds wait{0};  // for something new
};

// What of a job can be had as a TAR.
enum class Download : std::uint8_t { kDefinition, kResults, kCheckpoints };

class Client {
 public:
  static Result<std::unique_ptr<Client>> open(ClientOptions options);
  virtual ~Client() = default;

  // Whether the last call failed because nobody listens there or nothing answers: the same call may go through later.
  virtual bool is_out_of_reach() const = 0;

  // Tries again while the server is out of reach, with the same key, for ClientOptions::submit_time.
  virtual Result<JobAnswer> submit(const NewSubmission& submission) = 0;
  virtual Result<JobsAnswer> jobs(const JobsQuery& query) = 0;
  virtual Result<JobAnswer> job(const std::string& id) = 0;
  virtual Result<JobAnswer> halt(const std::string& id) = 0;
  virtual Result<JobAnswer> resume(const std::string& id, std::optional<int> learners) = 0;
  virtual Result<void> remove(const std::string& id) = 0;
  virtual Result<std::vector<ChangeAnswer>> history(const std::string& id) = 0;
  virtual Result<LinesAnswer> logs(const std::string& id, const FollowQuery& query) = 0;
  virtual Result<MetricsAnswer> metrics(const std::string& id, const FollowQuery& query) = 0;
  // Gives the bytes of a TAR to `take`, piece by piece.
  virtual Result<void> download(const std::string& id, Download what,
                                const std::function<Result<void>(std::string_view)>& take) = 0;
  // The body of any GET below /v1/, as it came.
  virtual Result<std::string> get(const std::string& path) = 0;
  // Any other request below /v1/, with JSON or nothing as its body.
  virtual Result<std::string> ask(const std::string& method, const std::string& path, const std::string& body) = 0;
  virtual Result<std::vector<NodeAnswer>> nodes() = 0;
  virtual Result<std::vector<QuotaAnswer>> quota() = 0;
};

}  // namespace tesser::platform
