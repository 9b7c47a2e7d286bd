// What people do with jobs.
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "platform/job/times.h"
#include "platform/scheduler/room.h"
#include "platform/server/api.h"
#include "platform/server/job_json.h"
#include "platform/server/submission.h"

namespace tesser::platform {
namespace {

constexpr std::int64_t kMostListed = 1'000;
constexpr std::int64_t kMostLearners = 10'000;

control::HttpResponse json_response(std::string body, int status = 200) {
  control::HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

// "QUEUED,RESUMED".
std::vector<JobState> states_of(std::string_view names, std::string& wrong) {
  std::vector<JobState> states;
  while (true) {
    const std::size_t end = names.find(',');
    const auto state = job_state_named(names.substr(0, end));
    if (!state) {
      wrong = fmt::format("there is no state '{}'; states are written as QUEUED, PROCESSING, FAILED",
                          names.substr(0, std::min(end, std::size_t{40})));
      return {};
    }
    states.push_back(*state);
    if (end == std::string_view::npos) {
      return states;
    }
    names.remove_prefix(end + 1);
  }
}

}  // namespace

control::HttpResponse Api::submit(const Call& call) {
  auto made = platform::submit(call.request, call.caller,
                               {options_.data, store_, dispatcher_.engine().nodes, options_.code, options_.engine,
                                options_.limits, options_.learner_users, options_.host_data});
  if (!made) {
    return error(made.error().status, made.error().code, made.error().message);
  }
  Response response = json_response(describe(made->job, call.caller, true), 201);
  response.headers.emplace_back("Location", "/v1/jobs/" + made->job.id);
  return response;
}

control::HttpResponse Api::list(const Call& call) {
  JobFilter filter;
  std::string wrong;
  filter.limit = static_cast<std::size_t>(number_of(call.request, "limit", 1, kMostListed, wrong).value_or(100));
  if (const std::string* states = call.request.argument("state"); states != nullptr && !states->empty()) {
    filter.states = states_of(*states, wrong);
  }
  if (const std::string* text = call.request.argument("text")) {
    filter.text = *text;
  }
  if (const std::string* team = call.request.argument("team")) {
    filter.team = *team;
  }
  if (const std::string* after = call.request.argument("after"); after != nullptr && !after->empty()) {
    filter.before = number_of(call.request, "after", 1, INT64_MAX, wrong).value_or(0);
  }
  if (!wrong.empty()) {
    return error(400, "U_REQUEST", wrong);
  }
  filter.teams = call.caller.seen_teams();
  const auto jobs = store_.jobs(filter);
  if (!jobs) {
    return error(jobs.error());
  }
  const bool has_more = jobs->size() == filter.limit;
  return json_response(
      JsonMembers()
          .add_text("jobs", json_list(*jobs, [&](const JobRecord& job) { return describe(job, call.caller, false); }))
          .add("next", has_more ? std::to_string(jobs->back().number) : std::string())
          .object());
}

control::HttpResponse Api::show(const Call& call) {
  const auto job = job_of(call);
  return job ? json_response(describe(*job, call.caller, true)) : job.error();
}

control::HttpResponse Api::want(const Call& call) {
  const auto body = body_of(call, {"wanted", "learners"});
  if (!body) {
    return body.error();
  }
  const auto job = own_job_of(call);
  if (!job) {
    return job.error();
  }
  JsonReader reader(*body, "the body");
  const auto wanted = wanted_named(reader.string("wanted"));
  const std::int64_t learners = reader.has("learners") ? reader.integer("learners", 1) : job->learners;
  if (wanted != Wanted::kHalt && wanted != Wanted::kRun) {
    reader.fail("'wanted' is \"halt\" or \"run\"");
  } else if (learners > kMostLearners) {
    reader.fail(fmt::format("'learners' is {} at most", kMostLearners));
  }
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  Result<JobRecord> changed = *job;
  if (*wanted == Wanted::kRun && job->state == JobState::kHalted) {
    const auto nodes = dispatcher_.engine().nodes;
    if (const std::string why = nodes.empty() ? "" : why_never(learners, job->each, nodes); !why.empty()) {
      return error(422, "U_SIZE", fmt::format("job {} {}", job->id, why));
    }
    changed = store_.resume(job->id, static_cast<int>(learners), now_microseconds());
  } else if (learners != job->learners) {
    return error(409, "U_STATE",
                 fmt::format("job {} is {}; only a halted job can go on with another number of learners", job->id,
                             name_of(job->state)));
  } else {
    changed = store_.want(job->id, *wanted);
  }
  if (!changed) {
    return error(changed.error());
  }
  return json_response(describe(*changed, call.caller, true));
}

control::HttpResponse Api::remove(const Call& call) {
  const auto job = own_job_of(call);
  if (!job) {
    return job.error();
  }
  const auto changed = store_.want(job->id, Wanted::kDelete);
  if (!changed) {
    return error(changed.error());
  }
  return json_response(describe(*changed, call.caller, true), 202);
}

control::HttpResponse Api::history(const Call& call) {
  const auto job = job_of(call);
  if (!job) {
    return job.error();
  }
  auto changes = store_.history(job->id);
  if (!changes) {
    return error(changes.error());
  }
  for (StateChange& change : *changes) {
    change.reason = shown_reason(std::move(change.reason), job->id, call.caller);
  }
  return json_response(JsonMembers().add_text("changes", json_list(*changes, change_json)).object());
}

}  // namespace tesser::platform
