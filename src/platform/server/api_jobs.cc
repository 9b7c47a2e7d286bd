// What people do with jobs.
#include <charconv>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "platform/job/placement.h"
#include "platform/job/resources_json.h"
#include "platform/job/times.h"
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
                               {options_.data, store_, dispatcher_.engine().nodes, options_.code, options_.engine});
  if (!made) {
    return error(made.error().status, made.error().code, made.error().message);
  }
  dispatcher_.look();
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
  if (!wanted || *wanted == Wanted::kDelete) {
    reader.fail("'wanted' is \"halt\" or \"run\"");
  } else if (learners > kMostLearners) {
    reader.fail(fmt::format("'learners' is {} at most", kMostLearners));
  }
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  Result<JobRecord> changed = *job;
  if (*wanted == Wanted::kRun && job->state == JobState::kHalted) {
    WaitingJob size;
    size.learners = static_cast<int>(learners);
    size.each = job->each;
    const auto nodes = dispatcher_.engine().nodes;
    if (const std::string why = nodes.empty() ? "" : why_never(size, nodes); !why.empty()) {
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
  bells_.ring(job->id);
  dispatcher_.look();
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
  bells_.ring(job->id);
  dispatcher_.look();
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

control::HttpResponse Api::nodes(const Call& call) {
  const auto live = store_.live_jobs();
  if (!live) {
    return error(live.error());
  }
  const EngineView view = dispatcher_.engine();
  if (!view.has_answered && !view.error.empty()) {
    return error(503, "S_ENGINE", view.error);
  }
  return json_response(JsonMembers()
                           .add_text("nodes", json_list(view.nodes,
                                                        [&](const Node& node) {
                                                          Resources held;
                                                          held.millicpus = 0;
                                                          std::vector<std::string> jobs;
                                                          for (const JobRecord& job : *live) {
                                                            const auto count = std::count(
                                                                job.placement.begin(), job.placement.end(), node.name);
                                                            if (count == 0) {
                                                              continue;
                                                            }
                                                            held.millicpus += job.each.millicpus * count;
                                                            held.memory_bytes += job.each.memory_bytes * count;
                                                            for (const auto& [type, each] : job.each.accelerators) {
                                                              held.accelerators[type] += each * count;
                                                            }
                                                            // Names of jobs that are not theirs are nobody's business.
                                                            if (call.caller.sees(job.team)) {
                                                              jobs.push_back(job.id);
                                                            }
                                                          }
                                                          return JsonMembers()
                                                              .add("name", node.name)
                                                              .add("is_ready", node.is_ready)
                                                              .add("not_ready", node.not_ready)
                                                              .add_text("capacity", resources_json(node.capacity))
                                                              .add_text("held", resources_json(held))
                                                              .add_text("jobs", json_list(jobs))
                                                              .object();
                                                        }))
                           .object());
}

control::HttpResponse Api::quota(const Call& call) {
  const auto live = store_.live_jobs();
  if (!live) {
    return error(live.error());
  }
  struct Team {
    std::int64_t running = 0;
    std::int64_t waiting = 0;
    Resources held{0, 0, {}};
  };
  std::map<std::string, Team> teams;
  for (const JobRecord& job : *live) {
    if (!call.caller.sees(job.team)) {
      continue;
    }
    Team& team = teams[job.team];
    if (waits_for_places(job.state)) {
      ++team.waiting;
    } else if (holds_places(job.state)) {
      ++team.running;
      team.held.millicpus += job.each.millicpus * job.learners;
      team.held.memory_bytes += job.each.memory_bytes * job.learners;
      for (const auto& [type, count] : job.each.accelerators) {
        team.held.accelerators[type] += count * job.learners;
      }
    }
  }
  std::vector<std::string> list;
  for (const auto& [name, team] : teams) {
    list.push_back(JsonMembers()
                       .add("team", name)
                       .add("running", team.running)
                       .add("waiting", team.waiting)
                       .add_text("held", resources_json(team.held))
                       .add_text("quota", "null")
                       .object());
  }
  return json_response(
      JsonMembers().add_text("teams", json_list(list, [](const std::string& text) { return text; })).object());
}

}  // namespace tesser::platform
