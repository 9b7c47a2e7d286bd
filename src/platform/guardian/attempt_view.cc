#include "platform/guardian/attempt_view.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

namespace tesser::platform {

bool AttemptView::all_up() const {
  return std::all_of(up.begin(), up.end(), [](const auto& each) { return each.has_value(); });
}

bool AttemptView::all_ended() const {
  for (std::size_t rank = 0; rank < exit.size(); ++rank) {
    if (!exit[rank] && !gone.contains(static_cast<int>(rank))) {
      return false;
    }
  }
  return true;
}

AttemptView look(const Volume& volume, int attempt, const Placement& nodes, bool has_gone,
                 const std::vector<LearnerStatus>* statuses) {
  AttemptView view;
  view.attempt = attempt;
  view.has_gone = has_gone;
  view.nodes = nodes;
  std::map<int, LearnerStatus> known;
  if (statuses != nullptr) {
    for (const LearnerStatus& status : *statuses) {
      if (status.attempt == attempt && status.rank >= 0 && status.rank < static_cast<int>(nodes.size())) {
        known[status.rank] = status;
      }
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const int rank = static_cast<int>(i);
    auto up = read_learner_up(volume.learner_up(attempt, rank));
    auto exit = read_learner_exit(volume.learner_exit(attempt, rank));
    view.up.push_back(up ? std::optional(std::move(*up)) : std::nullopt);
    view.exit.push_back(exit ? std::optional(std::move(*exit)) : std::nullopt);
    const auto status = known.find(rank);
    if (status != known.end() && !status->second.node.empty()) {
      view.nodes[i] = status->second.node;
    }
    if (view.exit.back() || statuses == nullptr) {
      continue;
    }
    if (status == known.end()) {
      view.gone[rank] = {attempt, rank, LearnerState::kLost, nodes[i], "the system knows nothing of it any more"};
    } else if (status->second.state == LearnerState::kEnded || status->second.state == LearnerState::kLost) {
      view.gone[rank] = status->second;
    }
  }
  return view;
}

bool forget_what_is_in(const std::filesystem::path& directory) {
  const std::filesystem::path change = directory / fmt::format(".look-{}", ::getpid());
  return ::mkdir(change.c_str(), 0700) == 0 && ::rmdir(change.c_str()) == 0;
}

std::optional<Verdict> verdict(const Volume& volume, const AttemptView& view) {
  const auto node_of = [&](int rank) { return view.nodes[static_cast<std::size_t>(rank)]; };
  // Who failed first is to blame: the others mostly fail because of it.
  const LearnerExit* first = nullptr;
  bool all_succeeded = true;
  for (const auto& exit : view.exit) {
    all_succeeded = all_succeeded && exit && exit->succeeded();
    if (exit && !exit->succeeded() && (first == nullptr || exit->time < first->time)) {
      first = &*exit;
    }
  }
  if (view.has_gone && all_succeeded) {
    return Verdict{EndCause::kDone, {}};
  }
  const auto lost = std::find_if(view.gone.begin(), view.gone.end(),
                                 [](const auto& each) { return each.second.state == LearnerState::kLost; });
  if (lost != view.gone.end()) {
    const LearnerStatus& status = lost->second;
    return Verdict{EndCause::kRequeue,
                   {codes::kNode, fmt::format("learner {}{} is lost: {}", status.rank,
                                              status.node.empty() ? "" : " on " + status.node,
                                              status.reason.empty() ? "its node does not answer" : status.reason)}};
  }
  const EndCause failure = view.has_gone ? EndCause::kRestart : EndCause::kRollback;
  if (first != nullptr) {
    return Verdict{first->is_final ? EndCause::kFail : failure,
                   reason_of_exit(volume, view.attempt, *first, node_of(first->rank))};
  }
  if (!view.gone.empty()) {
    const LearnerStatus& status = view.gone.begin()->second;
    return Verdict{failure, reason_of_death(volume, view.attempt, status.rank, node_of(status.rank), status.reason)};
  }
  if (!view.has_gone && all_succeeded) {
    return Verdict{EndCause::kRollback, {codes::kLearner, "the learners ended before their commands began"}};
  }
  return std::nullopt;
}

}  // namespace tesser::platform
