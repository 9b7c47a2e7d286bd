// A guardian's way to the server (docs/platform.md, leases and HTTP): takes and keeps the lease, hears what the owner
// wants, and says the states of the journal in their order, once each. Two threads of its own do that, and nobody waits
// for them: while the server is away they try again.
//
// A guardian that another one has followed must touch nothing any more. So when the server refuses its epoch (409) the
// process ends at once, with code 0: somebody else guards the job now.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "platform/guardian/bell.h"
#include "platform/guardian/journal.h"
#include "platform/job/job_state.h"
#include "platform/job/resources.h"
#include "platform/web/https_client.h"

namespace tesser::platform {

struct Lease {
  std::int64_t epoch = 0;
  Wanted wanted = Wanted::kRun;
  Placement nodes;  // of each rank
  int attempt = 0;  // the last one the server knows of
};

class ServerLink {
 public:
  struct Options {
    std::string url;                    // "http://HOST:PORT"
    std::filesystem::path authorities;  // of https://; empty: the system's
    std::string job;
    std::string token;  // the job's
    std::chrono::milliseconds lease_time{5000};
    std::function<void(const std::string&)> log;
  };

  // Takes the lease; waits for the server as long as that takes. The journal and the bell outlive the link.
  static Result<std::unique_ptr<ServerLink>> open(Options options, Journal& journal, Bell& bell);
  ~ServerLink();

  const Lease& lease() const { return lease_; }
  // What is wanted as of the last renewal.
  Wanted wanted() const;

  // Returns when this guardian may change something in the engine: its lease is within its time, or nobody listens at
  // the server's address, so that nobody can have given the lease to another. Called before each such change.
  void wait_for_right_to_act();

  // The journal has another state to say.
  void say_states();
  bool has_said_all() const;

 private:
  using Clock = std::chrono::steady_clock;

  ServerLink(Options options, Journal& journal, Bell& bell)
      : options_(std::move(options)), journal_(journal), bell_(bell) {}
  Result<HttpsAnswer> post(HttpsClient& client, const std::string& what, const std::string& body,
                           std::chrono::milliseconds time);
  Result<void> take_lease();
  void keep_lease();
  void say();
  bool say_one(const JournalRecord& state);
  // False when the link ends.
  bool pause(std::chrono::milliseconds time);
  [[noreturn]] void end_as_followed(const std::string& answer);

  const Options options_;
  Journal& journal_;
  Bell& bell_;
  Lease lease_;
  std::unique_ptr<HttpsClient> renewing_;
  std::unique_ptr<HttpsClient> saying_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Wanted wanted_ = Wanted::kRun;
  Clock::time_point granted_;       // when the request was sent that was granted last
  Clock::time_point absent_until_;  // while nobody listens at the server's address
  bool has_news_ = true;            // states to say that say() has not begun with
  bool is_saying_ = false;
  bool is_ending_ = false;

  std::thread keeper_;
  std::thread sayer_;
};

}  // namespace tesser::platform
