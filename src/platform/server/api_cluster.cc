// What the cluster has and each team may have of it.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"
#include "platform/job/resources_json.h"
#include "platform/server/api.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kMostTypes = 100;
constexpr std::size_t kMostTypeName = 100;

control::HttpResponse json_response(std::string body) {
  control::HttpResponse response;
  response.body = std::move(body);
  return response;
}

void add(Resources& to, const Resources& each, std::int64_t times) {
  to.millicpus += each.millicpus * times;
  to.memory_bytes += each.memory_bytes * times;
  for (const auto& [type, count] : each.accelerators) {
    to.accelerators[type] += count * times;
  }
}

struct TeamUse {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  Resources held{0, 0, {}};
  Resources borrowed{0, 0, {}};
  const Resources* quota = nullptr;
};

std::string team_json(const std::string& name, const TeamUse& use) {
  return JsonMembers()
      .add("team", name)
      .add("running", use.running)
      .add("waiting", use.waiting)
      .add_text("held", resources_json(use.held))
      .add_text("borrowed", resources_json(use.borrowed))
      .add_text("quota", use.quota != nullptr ? resources_json(*use.quota) : "null")
      .object();
}

struct Uses {
  std::map<std::string, Resources> quotas;
  std::map<std::string, TeamUse> teams;
};

Result<Uses> uses_of(const Store& store) {
  Uses uses;
  TESSER_ASSIGN_OR_RETURN(uses.quotas, store.quotas());
  TESSER_ASSIGN_OR_RETURN(const auto placed, store.placed_jobs());
  TESSER_ASSIGN_OR_RETURN(const auto waiting, store.count_waiting_by_team());
  for (const JobRecord& job : placed) {
    TeamUse& team = uses.teams[job.team];
    ++team.running;
    add(team.held, job.each, job.learners);
    if (job.is_borrowed) {
      add(team.borrowed, job.each, job.learners);
    }
  }
  for (const auto& [team, count] : waiting) {
    uses.teams[team].waiting = count;
  }
  for (const auto& [team, quota] : uses.quotas) {
    uses.teams[team].quota = &quota;
  }
  return uses;
}

struct NodeUse {
  struct Share {
    Resources held{0, 0, {}};
    std::vector<std::string> jobs;
  };
  Resources held{0, 0, {}};
  std::vector<std::string> jobs;
  std::map<std::string, Share> shares;  // of teams
};

std::string node_json(const Node& node, const NodeUse& use, bool is_draining) {
  std::string shares;
  for (const auto& [team, share] : use.shares) {
    shares += (shares.empty() ? "" : ",") + JsonMembers()
                                                .add("team", team)
                                                .add_text("held", resources_json(share.held))
                                                .add_text("jobs", json_list(share.jobs))
                                                .object();
  }
  return JsonMembers()
      .add("name", node.name)
      .add("is_ready", node.is_ready)
      .add("not_ready", node.not_ready)
      .add("is_draining", is_draining)
      .add_text("capacity", resources_json(node.capacity))
      .add_text("held", resources_json(use.held))
      .add_text("jobs", json_list(use.jobs))
      .add_text("shares", "[" + shares + "]")
      .object();
}

// What stands in a request as a quota: each kind may be missing, and is not bounded then.
Resources read_quota(JsonReader& reader) {
  Resources quota{0, 0, {}};
  quota.millicpus = reader.has("millicpus") ? reader.integer("millicpus", 0) : 0;
  quota.memory_bytes = reader.has("memory_bytes") ? reader.integer("memory_bytes", 0) : 0;
  if (reader.has("accelerators")) {
    quota.accelerators = reader.map<std::int64_t>("accelerators");
  }
  const bool is_wrong = std::any_of(quota.accelerators.begin(), quota.accelerators.end(), [](const auto& each) {
    return each.second < 1 || each.first.empty() || each.first.size() > kMostTypeName;
  });
  if (is_wrong || quota.accelerators.size() > kMostTypes) {
    reader.fail("'accelerators' has a count of 1 or more for each type");
  }
  if (quota.millicpus == 0 && quota.memory_bytes == 0 && quota.accelerators.empty()) {
    reader.fail(
        "a quota bounds processors ('millicpus'), memory ('memory_bytes') or 'accelerators'; a team without "
        "one only borrows (DELETE)");
  }
  return quota;
}

}  // namespace

tl::expected<void, control::HttpResponse> Api::check_administration(const Call& call) const {
  if (!call.caller.is_administrator) {
    return tl::unexpected(error(403, "U_ROLE", "only administrators of the platform may do this"));
  }
  if (dispatcher_.system_places()) {
    return tl::unexpected(
        error(409, "U_STATE",
              fmt::format("this server leaves quotas and nodes to {} (--{}-places); they are set there",
                          options_.engine, options_.engine)));
  }
  return {};
}

control::HttpResponse Api::nodes(const Call& call) {
  const auto placed = store_.placed_jobs();
  const auto draining = store_.draining_nodes();
  if (!placed || !draining) {
    return error(!placed ? placed.error() : draining.error());
  }
  const EngineView view = dispatcher_.engine();
  if (!view.has_answered && !view.error.empty()) {
    return error(503, "S_ENGINE", view.error);
  }
  std::map<std::string, NodeUse> uses;
  for (const JobRecord& job : *placed) {
    for (const std::string& name : std::set<std::string>(job.placement.begin(), job.placement.end())) {
      const auto learners = std::count(job.placement.begin(), job.placement.end(), name);
      NodeUse& use = uses[name];
      add(use.held, job.each, learners);
      // Names of jobs that are not theirs are nobody's business.
      if (call.caller.sees(job.team)) {
        use.jobs.push_back(job.id);
        add(use.shares[job.team].held, job.each, learners);
        use.shares[job.team].jobs.push_back(job.id);
      }
    }
  }
  return json_response(JsonMembers()
                           .add_text("nodes", json_list(view.nodes,
                                                        [&](const Node& node) {
                                                          return node_json(node, uses[node.name],
                                                                           draining->contains(node.name));
                                                        }))
                           .object());
}

control::HttpResponse Api::drain(const Call& call) {
  const auto body = body_of(call, {"drain"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  const bool drains = reader.boolean("drain");
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  if (const auto checked = check_administration(call); !checked) {
    return checked.error();
  }
  const std::string& name = call.id();
  const auto draining = store_.draining_nodes();
  if (!draining) {
    return error(draining.error());
  }
  const EngineView view = dispatcher_.engine();
  const bool is_known =
      std::any_of(view.nodes.begin(), view.nodes.end(), [&](const Node& node) { return node.name == name; });
  if (!is_known && !draining->contains(name)) {
    return error(404, "U_NOT_FOUND", fmt::format("there is no node '{}'; `tesser nodes` shows those there are", name));
  }
  if (const auto set = store_.set_draining(name, drains); !set) {
    return error(set.error());
  }
  dispatcher_.cluster_has_changed();
  return json_response(JsonMembers().add("name", name).add("is_draining", drains).object());
}

control::HttpResponse Api::quota(const Call& call) {
  const auto uses = uses_of(store_);
  if (!uses) {
    return error(uses.error());
  }
  std::vector<std::string> list;
  for (const auto& [name, use] : uses->teams) {
    if (call.caller.sees(name)) {
      list.push_back(team_json(name, use));
    }
  }
  return json_response(
      JsonMembers().add_text("teams", json_list(list, [](const std::string& text) { return text; })).object());
}

control::HttpResponse Api::team_quota(const std::string& team) const {
  auto uses = uses_of(store_);
  return uses ? json_response(team_json(team, uses->teams[team])) : error(uses.error());
}

control::HttpResponse Api::set_quota(const Call& call) {
  const auto body = body_of(call, {"millicpus", "memory_bytes", "accelerators"});
  if (!body) {
    return body.error();
  }
  JsonReader reader(*body, "the body");
  const Resources quota = read_quota(reader);
  if (const auto outcome = reader.outcome(); !outcome) {
    return error(400, "U_REQUEST", outcome.error().message);
  }
  if (const auto checked = check_administration(call); !checked) {
    return checked.error();
  }
  if (const auto set = store_.set_quota(call.id(), quota); !set) {
    return error(set.error());
  }
  dispatcher_.cluster_has_changed();
  return team_quota(call.id());
}

control::HttpResponse Api::remove_quota(const Call& call) {
  if (const auto checked = check_administration(call); !checked) {
    return checked.error();
  }
  const auto quotas = store_.quotas();
  if (!quotas) {
    return error(quotas.error());
  }
  if (!quotas->contains(call.id())) {
    return error(404, "U_NOT_FOUND", fmt::format("team '{}' has no quota", call.id()));
  }
  if (const auto set = store_.set_quota(call.id(), std::nullopt); !set) {
    return error(set.error());
  }
  dispatcher_.cluster_has_changed();
  return team_quota(call.id());
}

}  // namespace tesser::platform
