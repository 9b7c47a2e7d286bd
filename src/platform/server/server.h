// The platform's server (docs/platform.md): takes jobs, stores every change, places jobs on nodes, starts guardians and
// looks after them, answers people.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "platform/engine/engine.h"
#include "platform/scheduler/gang_placement.h"
#include "platform/server/limits.h"

namespace tesser::platform {

// As whom learners run. Where the server is root: each team's as a user of its own, by the system's number, out of
// first to last. Where it is not, or as `same` says: as the server itself.
struct LearnerUsers {
  bool same = false;
  int first = 0;  // 0: nothing was said; root then takes a range that systems leave free
  int last = 0;
};

struct ServerOptions {
  std::filesystem::path data;  // made where there is none; on a file system that all nodes share
  std::string listen = "127.0.0.1:8470";
  std::string advertise;  // "http://HOST:PORT" by which guardians reach this server; empty: where it listens
  // PEM files: the server speaks TLS, and guardians trust this certificate. Both or none.
  std::filesystem::path tls_certificate;
  std::filesystem::path tls_key;
  TenantLimits limits;
  LearnerUsers learner_users;
  // Data stores of type host lie below one of these; empty: anywhere that learners may go.
  std::vector<std::filesystem::path> host_data;
  EngineSettings engine;
  PlacementSettings placement;
  std::filesystem::path tesser;  // the program, which guardians run
  std::filesystem::path python;  // what learners capture steps with; without a folder it is not looked at
  std::string version;
  std::chrono::milliseconds lease_time{5000};
  std::function<void(const std::string&)> log;  // called on several threads
};

class Server {
 public:
  // kInvalidInput when it cannot listen there, or another server has the data; kFailed when the store or the disk
  // refuses. From then on it works on threads of its own.
  static Result<std::unique_ptr<Server>> open(ServerOptions options);
  virtual ~Server() = default;  // jobs and their guardians go on

  virtual std::string url() const = 0;
  virtual std::filesystem::path admin_token_file() const = 0;
};

}  // namespace tesser::platform
