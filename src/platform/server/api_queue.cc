// Who waits for places, in the order in which they will get them.
#include <algorithm>
#include <string>
#include <vector>

#include "base/json_members.h"
#include "platform/server/api.h"

namespace tesser::platform {
namespace {

constexpr std::int64_t kMostListed = 1'000;

}  // namespace

control::HttpResponse Api::queue(const Call& call) {
  std::string wrong;
  const std::int64_t limit = number_of(call.request, "limit", 1, kMostListed, wrong).value_or(100);
  std::int64_t after = 0;
  if (const std::string* given = call.request.argument("after"); given != nullptr && !given->empty()) {
    after = number_of(call.request, "after", 1, INT64_MAX, wrong).value_or(0);
  }
  if (!wrong.empty()) {
    return error(400, "U_REQUEST", wrong);
  }
  const auto ids = dispatcher_.queue([&](const std::string& team) { return call.caller.sees(team); });
  const auto waiting = static_cast<std::int64_t>(ids.size());
  std::vector<std::string> jobs;
  std::int64_t at = std::min(after, waiting);
  for (; at < waiting && static_cast<std::int64_t>(jobs.size()) < limit; ++at) {
    const auto job = store_.job(ids[static_cast<std::size_t>(at)]);
    if (job && waits_for_places(job->state)) {  // it may have gone on meanwhile
      jobs.push_back(describe(*job, call.caller, false));
    }
  }
  Response response;
  response.body = JsonMembers()
                      .add_text("jobs", json_list(jobs, [](const std::string& text) { return text; }))
                      .add("waiting", waiting)
                      .add("next", at < waiting ? std::to_string(at) : std::string())
                      .object();
  return response;
}

}  // namespace tesser::platform
