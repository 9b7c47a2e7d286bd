#include "platform/server/api.h"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "platform/job/times.h"
#include "platform/server/job_json.h"
#include "platform/server/new_volume.h"
#include "platform/server/submission.h"

namespace tesser::platform {
namespace {

std::vector<std::string> pieces_of(std::string_view path) {
  std::vector<std::string> pieces;
  while (!path.empty()) {
    const std::size_t end = path.find('/', 1);
    pieces.emplace_back(path.substr(1, end == std::string_view::npos ? end : end - 1));
    path = end == std::string_view::npos ? "" : path.substr(end);
  }
  return pieces;
}

}  // namespace

const std::vector<Api::Route>& Api::routes() {
  using enum Access;
  static const std::vector<Route> kRoutes = {
      {"POST", "/v1/jobs", kPeople, &Api::submit},
      {"GET", "/v1/jobs", kPeople, &Api::list},
      {"GET", "/v1/jobs/{}", kPeople, &Api::show},
      {"PATCH", "/v1/jobs/{}", kPeople, &Api::want},
      {"DELETE", "/v1/jobs/{}", kPeople, &Api::remove},
      {"GET", "/v1/jobs/{}/history", kPeople, &Api::history},
      {"GET", "/v1/jobs/{}/logs", kPeople, &Api::logs},
      {"GET", "/v1/jobs/{}/metrics", kPeople, &Api::metrics},
      {"GET", "/v1/jobs/{}/definition", kPeople, &Api::definition},
      {"GET", "/v1/jobs/{}/results", kPeople, &Api::results},
      {"GET", "/v1/jobs/{}/checkpoints", kPeople, &Api::checkpoints},
      {"GET", "/v1/queue", kPeople, &Api::queue},
      {"GET", "/v1/nodes", kPeople, &Api::nodes},
      {"PATCH", "/v1/nodes/{}", kPeople, &Api::drain},
      {"GET", "/v1/quota", kPeople, &Api::quota},
      {"PUT", "/v1/teams/{}/quota", kPeople, &Api::set_quota},
      {"DELETE", "/v1/teams/{}/quota", kPeople, &Api::remove_quota},
      {"GET", "/metrics", kPeople, &Api::figures},
      {"GET", "/v1/health", kEverybody, &Api::health},
      {"GET", "/v1/openapi.json", kEverybody, &Api::openapi},
      {"GET", "/", kEverybody, &Api::page},
      {"GET", "/assets/{}/{}", kEverybody, &Api::page_asset},
      {"GET", "/v1/me", kPeople, &Api::me},
      {"GET", "/v1/users", kPeople, &Api::users},
      {"POST", "/v1/users", kPeople, &Api::add_user},
      {"DELETE", "/v1/users/{}", kPeople, &Api::remove_user},
      {"GET", "/v1/teams", kPeople, &Api::teams},
      {"POST", "/v1/teams", kPeople, &Api::add_team},
      {"DELETE", "/v1/teams/{}", kPeople, &Api::remove_team},
      {"PUT", "/v1/teams/{}/members/{}", kPeople, &Api::set_member},
      {"DELETE", "/v1/teams/{}/members/{}", kPeople, &Api::remove_member},
      {"GET", "/v1/tokens", kPeople, &Api::tokens},
      {"POST", "/v1/tokens", kPeople, &Api::add_token},
      {"DELETE", "/v1/tokens/{}", kPeople, &Api::revoke_token},
      {"POST", "/v1/guardian/{}/lease", kGuardian, &Api::take_lease},
      {"POST", "/v1/guardian/{}/renew", kGuardian, &Api::renew},
      {"POST", "/v1/guardian/{}/state", kGuardian, &Api::report},
  };
  return kRoutes;
}

const Api::Route* Api::route_of(const Request& request, std::vector<std::string>& values, std::string& allowed) const {
  const auto given = pieces_of(request.path);
  for (const Route& route : routes()) {
    const auto pieces = pieces_of(route.path);
    if (pieces.size() != given.size()) {
      continue;
    }
    std::vector<std::string> found;
    bool fits = true;
    for (std::size_t i = 0; i < pieces.size() && fits; ++i) {
      if (pieces[i] == "{}") {
        found.push_back(given[i]);
        fits = !given[i].empty();
      } else {
        fits = pieces[i] == given[i];
      }
    }
    if (fits && route.method == request.method) {
      values = std::move(found);
      return &route;
    }
    if (fits) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
    }
  }
  return nullptr;
}

Result<std::optional<Caller>> Api::caller_of(const Request& request) const {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string* given = request.header("Authorization");
  if (given == nullptr || !given->starts_with(kBearer)) {
    return std::optional<Caller>();
  }
  return store_.tenants().caller(std::string_view(*given).substr(kBearer.size()), now_microseconds());
}

std::optional<control::HttpResponse> Api::too_much(const Request& request, const std::optional<Caller>& caller,
                                                   bool is_open, std::shared_ptr<const void>& place) {
  const TenantLimits& limits = options_.limits;
  std::optional<std::chrono::milliseconds> wait;
  std::string message;
  if (caller && caller->is_administrator) {
    place = places_.take(caller->user, 0);
  } else if (caller) {
    wait =
        rates_.take(caller->is_guardian() ? "job " + caller->job : "user " + caller->user, limits.requests_per_second);
    message = fmt::format("you send more than {} requests a second", limits.requests_per_second);
    if (!wait && !caller->is_guardian() && (place = places_.take(caller->user, limits.requests_at_once)) == nullptr) {
      wait = std::chrono::seconds(1);
      message = "too many of your requests, or of all, are answered at this moment";
    }
  } else {
    wait = rates_.take("address " + request.address, limits.strangers_per_second);
    message = is_open ? "this address sends too many requests without a token"
                      : "this address sends too many requests without a token that the server knows";
  }
  if (!wait) {
    return std::nullopt;
  }
  const auto seconds = std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(*wait).count());
  Response refusal = error(429, "U_RATE", fmt::format("{}; try again in {} s", message, seconds));
  refusal.headers.emplace_back("Retry-After", std::to_string(seconds));
  return refusal;
}

control::HttpAdmission Api::admit(const Request& request) {
  control::HttpAdmission admission;
  admission.most_body_bytes = options_.most_body_bytes;
  std::vector<std::string> values;
  std::string allowed;
  const Route* route = route_of(request, values, allowed);
  if (route == nullptr) {
    if (allowed.empty()) {
      admission.refusal =
          error(404, "U_NOT_FOUND", fmt::format("there is no {}; /v1/openapi.json says what there is", request.path));
    } else {
      admission.refusal =
          error(405, "U_METHOD", fmt::format("{} takes {}, not {}", request.path, allowed, request.method));
      admission.refusal->headers.emplace_back("Allow", allowed);
    }
    return admission;
  }
  std::shared_ptr<const void> place;
  if (route->access == Access::kEverybody) {
    // Files of the page, of which a browser takes dozens at once, cost no more than a refusal.
    if (route->handle != &Api::page && route->handle != &Api::page_asset) {
      admission.refusal = too_much(request, std::nullopt, true, place);
    }
    return admission;
  }
  const auto caller = caller_of(request);
  if (!caller) {
    admission.refusal = error(caller.error());
    return admission;
  }
  admission.refusal = too_much(request, *caller, false, place);
  if (*caller) {
    admission.held = std::make_shared<const Admitted>(Admitted{**caller, std::move(place)});
  }
  if (admission.refusal) {
    return admission;
  }
  if (!*caller) {
    admission.refusal = error(401, "U_TOKEN",
                              "this request carries no token that the server knows (Authorization: "
                              "Bearer TOKEN); `tesser login` keeps one for you");
    admission.refusal->headers.emplace_back("WWW-Authenticate", "Bearer");
  } else if (route->access == Access::kGuardian ? (*caller)->job != values.front() : (*caller)->is_guardian()) {
    admission.refusal = error(403, "U_TOKEN", "this token is not for that");
  } else if (route->handle == &Api::submit) {
    admission.most_body_bytes = options_.most_upload_bytes;
    admission.parts_directory = options_.data / "incoming";
  }
  return admission;
}

control::HttpResponse Api::answer(const Request& request) {
  std::vector<std::string> values;
  std::string allowed;
  const Route* route = route_of(request, values, allowed);
  if (route == nullptr) {
    return error(404, "U_NOT_FOUND", "there is nothing here");
  }
  const auto* admitted = static_cast<const Admitted*>(request.admitted.get());
  Response response =
      (this->*route->handle)(Call{request, std::move(values), admitted == nullptr ? Caller() : admitted->caller});
  finish(&request, response);
  return response;
}

void Api::note(const Request& request, const Response& answer) {
  const auto* admitted = static_cast<const Admitted*>(request.admitted.get());
  const bool is_guardian = admitted != nullptr && admitted->caller.is_guardian();
  const bool is_change = answer.status < 300 && !request.method.empty() && request.method != "GET" && !is_guardian;
  // 404 and 409 come with honest work; what is hidden from who asks is noted where that is found.
  const bool is_refusal = answer.status >= 400 && answer.status < 500 && answer.status != 404 && answer.status != 409 &&
                          answer.status != 422;
  if (!is_change && !is_refusal) {
    return;
  }
  AuditRecord record;
  record.address = request.address;
  if (admitted != nullptr) {
    record.user = is_guardian ? "guardian of " + admitted->caller.job : admitted->caller.user;
    record.token = admitted->caller.token;
  }
  record.method = request.method;
  record.path = request.path;
  record.status = answer.status;
  for (const auto& [name, value] : answer.headers) {
    record.message = name == "Location" ? "made " + value : record.message;
  }
  if (is_refusal) {
    const auto json = parse_json(answer.body);
    const Json* error = json ? json->find("error") : nullptr;
    const Json* message = error != nullptr ? error->find("message") : nullptr;
    record.message = message != nullptr && message->string() != nullptr ? *message->string() : record.message;
  }
  audit_.note(record);
}

control::HttpResponse Api::error(int status, const std::string& code, const std::string& message) {
  Response response;
  response.status = status;
  response.body =
      JsonMembers().add_text("error", JsonMembers().add("code", code).add("message", message).object()).object();
  finish(nullptr, response);
  return response;
}

control::HttpResponse Api::error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
      return Api::error(404, "U_NOT_FOUND", error.message);
    case ErrorCode::kInvalidInput:
      return Api::error(409, "U_STATE", error.message);
    case ErrorCode::kFailed:
      break;
  }
  return Api::error(503, "S_STORE", error.message);
}

tl::expected<JobRecord, control::HttpResponse> Api::job_of(const Call& call) const {
  auto job = store_.job(call.id());
  if (!job) {
    return tl::unexpected(error(job.error()));
  }
  if (!call.caller.sees(job->team)) {  // as if there were none
    audit_.note({call.request.address, call.caller.user, call.caller.token, call.request.method, call.request.path, 404,
                 fmt::format("job {} is of team '{}', which this user is not in", job->id, job->team)});
    return tl::unexpected(
        error(404, "U_NOT_FOUND", fmt::format("there is no job '{}'; `tesser list` shows those there are", call.id())));
  }
  return std::move(*job);
}

tl::expected<JobRecord, control::HttpResponse> Api::own_job_of(const Call& call) const {
  auto job = job_of(call);
  if (job && !call.caller.may_change(job->user, job->team)) {
    return tl::unexpected(
        error(403, "U_ROLE",
              fmt::format("job {} is {}'s; who submitted it and administrators of team '{}' may change it", job->id,
                          job->user, job->team)));
  }
  return job;
}

tl::expected<Json, control::HttpResponse> Api::body_of(const Call& call,
                                                       const std::vector<std::string_view>& members) const {
  auto json = parse_json(call.request.body, {16, 10'000});
  if (!json) {
    return tl::unexpected(error(400, "U_REQUEST", fmt::format("the body is no JSON: {}", json.error().message)));
  }
  if (json->object() == nullptr) {
    return tl::unexpected(error(400, "U_REQUEST", "the body is a JSON object"));
  }
  for (const auto& [key, value] : *json->object()) {
    if (std::find(members.begin(), members.end(), key) == members.end()) {
      return tl::unexpected(error(400, "U_REQUEST", fmt::format("the body has an unknown member '{}'", key)));
    }
  }
  return std::move(*json);
}

std::optional<std::int64_t> number_of(const control::HttpRequest& request, std::string_view name, std::int64_t least,
                                      std::int64_t most, std::string& wrong) {
  const std::string* text = request.argument(name);
  if (text == nullptr) {
    return std::nullopt;
  }
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < least || number > most) {
    wrong = fmt::format("'{}' is a whole number from {} to {}", name, least, most);
    return std::nullopt;
  }
  return number;
}

std::string Api::describe(const JobRecord& job, const Caller& caller, bool looks_closer) const {
  auto waiting = dispatcher_.waiting(job.id);
  if (caller.is_administrator) {
    return job_json(job, waiting, volume_of(job.id), looks_closer);
  }
  JobRecord shown = job;
  shown.reason = shown_reason(job.reason, job.id, caller);
  if (waiting) {
    waiting->reason = shown_reason(waiting->reason, job.id, caller);
  }
  return job_json(shown, waiting, volume_of(job.id), looks_closer);
}

std::string Api::shown_reason(std::string reason, const std::string& own, const Caller& caller) const {
  constexpr std::string_view kOfIds = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (caller.is_administrator) {
    return reason;
  }
  std::string shown;
  for (std::size_t at = 0; at < reason.size();) {
    const std::size_t begin = std::min(reason.find_first_of(kOfIds, at), reason.size());
    const std::size_t end = std::min(reason.find_first_not_of(kOfIds, begin), reason.size());
    std::string word = reason.substr(begin, end - begin);
    shown += reason.substr(at, begin - at);
    if (word != own && looks_like_identifier(word)) {
      const auto job = store_.job(word);
      // What cannot be looked up is hidden, too, where it is said to be a job.
      if (job ? !caller.sees(job->team) : shown.ends_with("job ")) {
        word = shown.ends_with("job ") ? "of another team" : "a job of another team";
      }
    }
    shown += word;
    at = end;
  }
  return shown;
}

}  // namespace tesser::platform
