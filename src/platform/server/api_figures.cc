// How the platform is doing.
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "platform/job/learner_user.h"
#include "platform/learner/metrics_reader.h"
#include "platform/server/api.h"

namespace tesser::platform {

control::HttpResponse Api::health(const Call&) {
  const auto counts = store_.count_by_state();
  if (!counts) {
    return error(counts.error());
  }
  const EngineView view = dispatcher_.engine();
  Response response;
  response.body = JsonMembers()
                      .add("status", std::string(view.error.empty() ? "ok" : "engine out of reach"))
                      .add("version", options_.version)
                      .add("engine", options_.engine)
                      .object();
  return response;
}

control::HttpResponse Api::openapi(const Call&) {
  Response response;
  response.body = openapi_text();
  return response;
}

control::HttpResponse Api::figures(const Call& call) {
  const auto counts = store_.count_by_state(call.caller.seen_teams());
  const auto live = store_.placed_jobs();
  if (!counts || !live) {
    return error(!counts ? counts.error() : live.error());
  }
  const EngineView view = dispatcher_.engine();
  std::string text = "# HELP tesser_jobs Jobs by state.\n# TYPE tesser_jobs gauge\n";
  for (const auto& [state, count] : *counts) {
    text += fmt::format("tesser_jobs{{state=\"{}\"}} {}\n", name_of(state), count);
  }
  const auto add = [&](const char* name, const char* type, const char* help, std::int64_t value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  };
  add("tesser_nodes", "gauge", "Nodes that the engine has.", static_cast<std::int64_t>(view.nodes.size()));
  add("tesser_nodes_ready", "gauge", "Nodes that take learners.",
      std::count_if(view.nodes.begin(), view.nodes.end(), [](const Node& node) { return node.is_ready; }));
  add("tesser_engine_up", "gauge", "Whether the engine is within reach.", view.error.empty() && view.has_answered);
  add("tesser_guardians", "gauge", "Processes of guardians on this machine.", dispatcher_.guardians());
  add("tesser_guardian_starts_total", "counter", "Guardians that this server has started.",
      dispatcher_.guardian_starts());
  std::vector<JobFigures> jobs;
  for (const JobRecord& job : *live) {
    if (holds_places(job.state) && call.caller.sees(job.team)) {
      const ActingAs learner(volume_of(job.id));
      if (auto figures = last_figures(job.id, volume_of(job.id))) {
        jobs.push_back(std::move(*figures));
      }
    }
  }
  Response response;
  response.content_type = "text/plain; version=0.0.4";
  response.body = text + prometheus_text(jobs);
  return response;
}

}  // namespace tesser::platform
