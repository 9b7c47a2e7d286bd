// The server's answers (docs/platform.md, HTTP; openapi.json). Internal to this folder.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "control/http_server.h"
#include "platform/job/volume.h"
#include "platform/server/archive.h"
#include "platform/server/audit.h"
#include "platform/server/dispatcher.h"
#include "platform/server/job_bells.h"
#include "platform/server/limits.h"
#include "platform/store/store.h"

namespace tesser::platform {

// Of people: the rest of the server's threads are there for guardians.
inline constexpr int kMostRequestsAtOnce = 1'024;

struct ApiOptions {
  std::filesystem::path data;
  std::string version;
  std::string engine;                                    // its name
  std::size_t most_upload_bytes = std::size_t{1} << 30;  // of a submission
  std::size_t most_body_bytes = std::size_t{1} << 20;    // of every other request
  UnpackLimits code;
  TenantLimits limits;
  std::optional<std::pair<int, int>> learner_users;
  std::vector<std::filesystem::path> host_data;
};

// Any thread.
class Api {
 public:
  Api(ApiOptions options, Store& store, Dispatcher& dispatcher, JobBells& bells, Audit& audit)
      : options_(std::move(options)), store_(store), dispatcher_(dispatcher), bells_(bells), audit_(audit) {}

  control::HttpAdmission admit(const control::HttpRequest& request);
  control::HttpResponse answer(const control::HttpRequest& request);
  // Notes what is to be known later of an answer that is about to be sent.
  void note(const control::HttpRequest& request, const control::HttpResponse& answer);
  static control::HttpResponse error(int status, const std::string& code, const std::string& message);

 private:
  using Request = control::HttpRequest;
  using Response = control::HttpResponse;

  struct Route;
  struct Call;
  struct Admitted;
  static const std::vector<Route>& routes();
  const Route* route_of(const Request& request, std::vector<std::string>& values, std::string& allowed) const;
  // Who asks; nothing when the token is none, or none any more.
  Result<std::optional<Caller>> caller_of(const Request& request) const;
  Volume volume_of(const std::string& job) const { return Volume(options_.data / "jobs" / job); }
  // A refusal of a caller, or a stranger, who asks too often or too much at once; else `place` is one to hold.
  std::optional<Response> too_much(const Request& request, const std::optional<Caller>& caller, bool is_open,
                                   std::shared_ptr<const void>& place);
  // The job, if who asks may see it; else the answer.
  tl::expected<JobRecord, Response> job_of(const Call& call) const;
  // The job, if who asks may change it; else the answer.
  tl::expected<JobRecord, Response> own_job_of(const Call& call) const;
  tl::expected<Json, Response> body_of(const Call& call, const std::vector<std::string_view>& members) const;
  // To a job's log and metrics: it is over, or the server ends.
  bool nothing_follows(const std::string& id) const;
  std::string describe(const JobRecord& job, const Caller& caller, bool looks_closer) const;
  // A reason without the names of jobs that the caller may not see.
  std::string shown_reason(std::string reason, const std::string& job, const Caller& caller) const;
  // Who asks may change what is everybody's, and this server decides about it; else the answer.
  tl::expected<void, Response> check_administration(const Call& call) const;
  Response team_quota(const std::string& team) const;
  // Of the store.
  static Response error(const Error& error);
  // Headers that every answer has; 304 where who asks (null: no matter who) has it already.
  static void finish(const Request* request, Response& response);

  Response submit(const Call& call);
  Response list(const Call& call);
  Response queue(const Call& call);
  Response show(const Call& call);
  Response want(const Call& call);
  Response remove(const Call& call);
  Response history(const Call& call);
  Response logs(const Call& call);
  Response metrics(const Call& call);
  Response definition(const Call& call);
  Response results(const Call& call);
  Response checkpoints(const Call& call);
  Response download(const Call& call, const std::filesystem::path& directory, const std::string& what);
  Response nodes(const Call& call);
  Response drain(const Call& call);
  Response quota(const Call& call);
  Response set_quota(const Call& call);
  Response remove_quota(const Call& call);
  Response health(const Call& call);
  Response openapi(const Call& call);
  Response page(const Call& call);
  Response page_asset(const Call& call);
  Response figures(const Call& call);
  Response me(const Call& call);
  Response users(const Call& call);
  Response add_user(const Call& call);
  Response remove_user(const Call& call);
  Response teams(const Call& call);
  Response add_team(const Call& call);
  Response remove_team(const Call& call);
  Response set_member(const Call& call);
  Response remove_member(const Call& call);
  Response tokens(const Call& call);
  Response add_token(const Call& call);
  Response revoke_token(const Call& call);
  Response take_lease(const Call& call);
  Response renew(const Call& call);
  Response report(const Call& call);

  const ApiOptions options_;
  Store& store_;
  Dispatcher& dispatcher_;
  JobBells& bells_;
  Audit& audit_;
  RateLimits rates_;
  RequestPlaces places_{kMostRequestsAtOnce};
};

// What was found of a request when it was admitted. HttpRequest::admitted of those with a token.
struct Api::Admitted {
  Caller caller;
  std::shared_ptr<const void> place;
};

// A request on its way to its handler.
struct Api::Call {
  const Request& request;
  std::vector<std::string> values;  // of the route's places
  Caller caller;                    // empty where everybody may ask
  const std::string& id() const { return values.front(); }
};

enum class Access : std::uint8_t { kEverybody, kPeople, kGuardian };

struct Api::Route {
  std::string_view method;
  std::string_view path;  // "{}" stands for a value
  Access access;
  Response (Api::*handle)(const Call& call);
};

// A number of the query; nothing when there is none or it is out of range, then with `wrong` set.
std::optional<std::int64_t> number_of(const control::HttpRequest& request, std::string_view name, std::int64_t least,
                                      std::int64_t most, std::string& wrong);

// The OpenAPI description, as it is in openapi.json.
std::string_view openapi_text();

}  // namespace tesser::platform
