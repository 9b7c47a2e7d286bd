// What guardians say and ask.
#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "platform/job/times.h"
#include "platform/server/api.h"

namespace tesser::platform {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostWaitSeconds = 30;
constexpr std::size_t kMostReasonBytes = 16'384;

control::HttpResponse json_response(std::string body) {
  control::HttpResponse response;
  response.body = std::move(body);
  return response;
}

}  // namespace

control::HttpResponse Api::take_lease(const Call& call) {
  const auto body = body_of(call, {"holder"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  const std::string holder = reader.string("holder");
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  dispatcher_.hear(call.id());
  const auto job = store_.take_lease(call.id(), holder);
  if (!job) {
    return error(job.error());
  }
  return json_response(JsonMembers()
                           .add("epoch", job->epoch)
                           .add("job", job->id)
                           .add("wanted", std::string(name_of(wanted_of_guardian(*job))))
                           .add_text("placement", json_list(job->placement))
                           .add("attempt", job->attempt)
                           .add("learners", job->learners)
                           .object());
}

control::HttpResponse Api::renew(const Call& call) {
  const auto body = body_of(call, {"epoch", "wanted", "wait"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  const std::int64_t epoch = reader.integer("epoch", 1);
  const auto known = wanted_named(reader.string("wanted"));
  const double wait = reader.number("wait");
  if (!known) {
    reader.fail("'wanted' is one of run, halt, delete, yield");
  } else if (!(wait >= 0 && wait <= kMostWaitSeconds)) {
    reader.fail("'wait' is 0 to 30 seconds");
  }
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait));
  std::optional<control::WaitingPlace> place;
  while (true) {
    const std::uint64_t rings = bells_.rings(call.id());
    const auto job = store_.job(call.id());
    if (!job) {
      return error(job.error());
    }
    if (job->epoch != epoch || job->holder.empty()) {
      return error(409, "U_EPOCH",
                   fmt::format("job {} has another guardian: epoch {} is over, it is {}", job->id, epoch, job->epoch));
    }
    dispatcher_.hear(call.id());
    const Wanted wanted = wanted_of_guardian(*job);
    if (wanted == *known && Clock::now() < until && !bells_.is_over() && !place) {
      place = call.request.begin_to_wait();
    }
    if (wanted != *known || Clock::now() >= until || bells_.is_over() || !place) {
      return json_response(
          JsonMembers().add("wanted", std::string(name_of(wanted))).add("learners", job->learners).object());
    }
    bells_.wait(call.id(), rings, until);
  }
}

control::HttpResponse Api::report(const Call& call) {
  const auto body = body_of(call, {"epoch", "sequence", "state", "code", "reason", "attempt", "time"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  GuardianReport report;
  report.sequence = reader.integer("sequence", 1);
  report.change.epoch = reader.integer("epoch", 1);
  report.change.code = reader.string("code");
  report.change.reason = reader.string("reason");
  report.change.attempt = static_cast<int>(std::min<std::int64_t>(reader.integer("attempt", 0), 1'000'000'000));
  const auto state = job_state_named(reader.string("state"));
  const auto time = time_from_text(reader.string("time"));
  if (!state || *state == JobState::kResumed) {
    reader.fail("'state' is none that a guardian may say");
  }
  if (!time) {
    reader.fail("'time' is written as 2026-11-29T22:40:32.123456Z");
  }
  if (report.change.reason.size() > kMostReasonBytes || report.change.code.size() > 100) {
    reader.fail("'reason' or 'code' is too long");
  }
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  report.change.state = *state;
  report.change.time = *time;
  dispatcher_.hear(call.id());
  const auto job = store_.report(call.id(), report);
  if (!job) {
    return error(job.error());
  }
  return json_response(JsonMembers().add("state", std::string(name_of(job->state))).object());
}

}  // namespace tesser::platform
