#include "platform/guardian/guardian.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/guardian/attempt_view.h"
#include "platform/guardian/data_steps.h"
#include "platform/guardian/journal.h"
#include "platform/guardian/next_step.h"
#include "platform/guardian/server_link.h"
#include "platform/guardian/watches.h"
#include "platform/job/learner_user.h"
#include "platform/job/manifest.h"
#include "platform/learner/collector.h"

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long the predecessor's lock on the journal may outlive it.
constexpr milliseconds kLockPatience{10'000};
// Learners that go on while another has failed get so long to end by themselves: what they write meanwhile is nothing
// that the next attempt needs.
constexpr milliseconds kOthersEnd{300};
// A learner's process kills its command after the grace; so much longer it may take to say so.
constexpr milliseconds kAfterGrace{5000};
constexpr milliseconds kAfterOthersEnd{500};
constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{5000};
constexpr milliseconds kIdle{1000};
// On file systems that nodes share: how often markers are looked for, and how much later than the engine's word a
// marker may show where it cannot be asked for.
constexpr milliseconds kSharedPoll{50};
constexpr milliseconds kSharedDelay{1000};

bool is_released(JobState state) { return state == JobState::kQueued || state == JobState::kHalted || is_final(state); }

class Guardian {
 public:
  explicit Guardian(const GuardianOptions& options)
      : options_(options), volume_(options.volume), job_(options.volume.filename().string()) {}

  Result<void> run() {
    TESSER_RETURN_IF_ERROR(prepare());
    while (true) {
      const JournalSummary now = summary_of(journal_->records());
      if (now.state && is_released(*now.state) && !has_new_places_) {
        return until_said();
      }
      if (now.last && !now.last->is_removed) {
        if (now.last->is_alive()) {
          run_attempt(now);
        } else {
          end_attempt(*now.last);
        }
        continue;
      }
      take_next_step(now);
    }
  }

 private:
  // --- before anything of the job is done

  Result<void> prepare() {
    const auto lock_until = steady_clock::now() + kLockPatience;
    while (true) {
      auto journal = Journal::open(volume_.journal());
      if (journal) {
        journal_ = std::move(*journal);
        break;
      }
      if (journal.error().code != ErrorCode::kNotFound || steady_clock::now() > lock_until) {
        return tl::unexpected(journal.error());
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(volume_.job()));
    TESSER_ASSIGN_OR_RETURN(manifest_, manifest_from_json(text));
    TESSER_ASSIGN_OR_RETURN(std::string token, read_file(volume_.token()));
    token.erase(std::find(token.begin(), token.end(), '\n'), token.end());
    TESSER_ASSIGN_OR_RETURN(engine_, make_engine(options_.engine));
    TESSER_ASSIGN_OR_RETURN(auto watching, make_engine(options_.engine));

    ServerLink::Options way;
    way.url = options_.server;
    way.job = job_;
    way.token = token;
    way.authorities = options_.authorities;
    way.log = options_.log;
    TESSER_ASSIGN_OR_RETURN(link_, ServerLink::open(std::move(way), *journal_, *bell_));
    const JournalSummary before = summary_of(journal_->records());
    // Reported as halted or queued: since then it has got places again, for which this guardian was started.
    has_new_places_ =
        before.state && is_released(*before.state) && !is_final(*before.state) && before.unreported.empty();
    JournalRecord lease;
    lease.kind = RecordKind::kLease;
    note(std::move(lease));
    remove_strays(before);
    engine_watch_ = std::make_unique<EngineWatch>(std::move(watching), job_, manifest_.team, bell_, options_.log);
    return {};
  }

  // What the engine has of the job and the journal does not know as alive.
  void remove_strays(const JournalSummary& before) {
    std::set<int> strays(before.not_removed.begin(), before.not_removed.end());
    if (before.last) {
      const auto learners = engine_->learners(job_, manifest_.team);
      for (const LearnerStatus& each : learners ? *learners : std::vector<LearnerStatus>{}) {
        strays.insert(each.attempt);
      }
      strays.erase(before.last->number);  // which has a way of its own
    }
    for (const int attempt : strays) {
      remove(attempt);
    }
  }

  // --- when nothing of the job runs

  void take_next_step(const JournalSummary& now) {
    const NextStep step = next_step(now, has_new_places_, link_->wanted(), manifest_, microseconds_since_1970());
    if (step.kind == NextStep::Kind::kMove) {
      move_to(step.state, step.reason);
    } else if (step.kind == NextStep::Kind::kStore) {
      store(now);
    } else if (!step.rests || rest_after_rollback()) {
      deploy(now, step.reason);
    }
  }

  // Longer after each rollback in a row; false when the owner wants something meanwhile.
  bool rest_after_rollback() {
    const auto until = steady_clock::now() + rollback_pause_;
    rollback_pause_ = std::min(rollback_pause_ * 2, kLongestPause);
    while (steady_clock::now() < until) {
      bell_->wait_until(until);
      if (link_->wanted() != Wanted::kRun) {
        return false;
      }
    }
    return true;
  }

  void deploy(const JournalSummary& now, const Reason& why) {
    const Lease& lease = link_->lease();
    if (lease.nodes.empty()) {
      return move_to(JobState::kQueued, {codes::kNode, "the job has no places on nodes"});
    }
    Deployment deployment;
    deployment.job = job_;
    deployment.team = manifest_.team;
    deployment.attempt = std::max(now.last ? now.last->number : 0, lease.attempt) + 1;
    deployment.command = {options_.tesser.string(), "learner",   "--volume",
                          volume_.root().string(),  "--attempt", std::to_string(deployment.attempt)};
    if (const char* python = std::getenv("TESSER_PYTHON")) {
      deployment.environment["TESSER_PYTHON"] = python;
    }
    deployment.volume = volume_.root();
    deployment.each = manifest_.each;
    deployment.nodes = lease.nodes;

    attempt_ = deployment.attempt;
    move_to(JobState::kDeploying, why);
    JournalRecord begins = record(RecordKind::kDeploy, deployment.attempt);
    begins.nodes = deployment.nodes;
    note(std::move(begins));
    Result<void> outcome;
    {
      const ActingAs learner(learner_);
      std::error_code ignored;
      std::filesystem::create_directories(volume_.attempt(deployment.attempt), ignored);
      outcome = write_file_atomically(volume_.deployment(deployment.attempt), to_json(deployment));
    }
    if (!outcome) {
      return end(deployment.attempt, EndCause::kRollback, {codes::kVolume, outcome.error().message});
    }
    link_->wait_for_right_to_act();
    outcome = engine_->deploy(deployment);
    if (outcome) {
      has_vacated_ = false;
      deployed_at_ = steady_clock::now();
      return note(record(RecordKind::kDeployed, deployment.attempt));
    }
    const Error& error = outcome.error();
    if (const auto lost = lost_node(deployment.nodes)) {
      return end(deployment.attempt, EndCause::kRequeue, {codes::kNode, *lost});
    }
    if (error.code == ErrorCode::kFailed) {
      return end(deployment.attempt, EndCause::kRollback, {codes::kEngine, error.message});
    }
    end(deployment.attempt, EndCause::kFail, {codes::kDeployment, error.message});
  }

  // One of the nodes that is not ready, in words; none when all are, or the engine does not say.
  std::optional<std::string> lost_node(const Placement& places) {
    const auto nodes = engine_->nodes();
    if (!nodes) {
      return std::nullopt;
    }
    for (const std::string& place : places) {
      const auto found =
          std::find_if(nodes->begin(), nodes->end(), [&](const Node& node) { return node.name == place; });
      if (!place.empty() && found == nodes->end()) {
        return fmt::format("node {} is there no more", place);
      }
      if (!place.empty() && !found->is_ready) {
        return fmt::format("node {} is not ready: {}", place, found->not_ready);
      }
    }
    return std::nullopt;
  }

  void store(const JournalSummary& now) {
    attempt_ = now.last->number;
    move_to(JobState::kStoring, {});
    const auto begin = steady_clock::now();
    milliseconds pause = kFirstPause;
    while (true) {
      Task task([this](const std::atomic<bool>& stop) { return store_results(manifest_, volume_, stop); }, *bell_);
      while (!task.outcome() && link_->wanted() != Wanted::kDelete) {
        bell_->wait_for(kIdle);
      }
      const auto outcome = task.outcome();
      if (outcome && *outcome) {
        note(record(RecordKind::kStored, attempt_));
        return;
      }
      if (is_owners(link_->wanted())) {
        return;  // what is wanted comes before another try
      }
      const Error& error = outcome->error();
      if (error.code != ErrorCode::kFailed || steady_clock::now() - begin > manifest_.start_limit) {
        return move_to(JobState::kFailed, {codes::kResults, error.message});
      }
      options_.log(fmt::format("results are not stored yet, trying on: {}", error.message));
      bell_->wait_for(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
  }

  // --- an attempt that runs

  void run_attempt(const JournalSummary& before) {
    const JournalSummary::Attempt& attempt = *before.last;
    attempt_ = attempt.number;
    bool has_gone = attempt.has_gone;
    bool has_data = before.has_data;
    const MarkerWatch markers(volume_.attempt(attempt.number), is_shared() ? kSharedPoll : kIdle, *bell_);
    std::unique_ptr<Task> fetch;
    auto fetch_again = steady_clock::now();
    milliseconds fetch_pause = kFirstPause;
    std::optional<steady_clock::time_point> gone_since;
    if (has_gone) {
      go(attempt);
    }
    while (true) {
      auto next_look = steady_clock::now() + kIdle;
      const auto seen = engine_watch_->seen();
      const bool is_recent = seen && seen->asked >= deployed_at_;
      const auto look_now = [&] { return look_at(attempt, has_gone, is_recent ? &seen->learners : nullptr); };
      AttemptView view = look_now();
      auto found = verdict_of(view);
      // Between nodes a marker may show later than the engine's word that its learner has ended.
      gone_since = view.gone.empty() ? std::nullopt : std::optional(gone_since.value_or(steady_clock::now()));
      if (found && is_shared() && !view.gone.empty()) {
        if (forget_what_is_in(volume_.attempt(attempt.number))) {
          view = look_now();
          found = verdict_of(view);
        } else if (steady_clock::now() < *gone_since + kSharedDelay) {
          next_look = *gone_since + kSharedDelay;
          found.reset();
        }
      }
      if (found) {
        return end(attempt.number, found->cause, found->reason);
      }
      if (const Wanted wanted = link_->wanted(); wanted != Wanted::kRun) {
        return wanted == Wanted::kYield  ? end(attempt.number, EndCause::kYield, {codes::kPreempted, wish_text(wanted)})
               : wanted == Wanted::kHalt ? end(attempt.number, EndCause::kHalt, {"", wish_text(wanted)})
                                         : end(attempt.number, EndCause::kDelete, {"", wish_text(wanted)});
      }
      if (has_gone) {
        if (const auto left = time_left(); left && *left <= milliseconds(0)) {
          return end(
              attempt.number, EndCause::kFail,
              {codes::kTimeLimit, fmt::format("the job ran for its time limit of {} s", manifest_.time_limit.count())});
        } else if (left) {
          next_look = std::min(next_look, steady_clock::now() + *left);
        }
        bell_->wait_until(next_look);
        continue;
      }
      if (const auto late = too_late_to_start(summary_of(journal_->records()), manifest_, microseconds_since_1970())) {
        return end(attempt.number, EndCause::kFail, {codes::kStart, *late + waiting_text(view, seen)});
      }
      if (!has_data && fetch == nullptr && steady_clock::now() >= fetch_again) {
        fetch = std::make_unique<Task>(
            [this](const std::atomic<bool>& stop) { return fetch_stores(manifest_, volume_, stop); }, *bell_);
      }
      if (const auto outcome = fetch != nullptr ? fetch->outcome() : std::nullopt) {
        fetch.reset();
        if (*outcome) {
          has_data = true;
          note(record(RecordKind::kFetched, 0));
        } else if (outcome->error().code != ErrorCode::kFailed) {
          return end(attempt.number, EndCause::kFail, {codes::kData, outcome->error().message});
        } else {
          options_.log(fmt::format("data is not there yet, trying on: {}", outcome->error().message));
          fetch_again = steady_clock::now() + fetch_pause;
          fetch_pause = std::min(fetch_pause * 2, kLongestPause);
          next_look = std::min(next_look, fetch_again);
        }
      }
      if (view.all_up()) {
        move_to(JobState::kDownloading, {});
        if (has_data) {
          note(record(RecordKind::kGo, attempt.number));
          has_gone = true;
          rollback_pause_ = kFirstPause;
          go(attempt);
          continue;
        }
      }
      bell_->wait_until(next_look);
    }
  }

  // What learners have written is read as one of them.
  AttemptView look_at(const JournalSummary::Attempt& attempt, bool has_gone,
                      const std::vector<LearnerStatus>* statuses) const {
    const ActingAs learner(learner_);
    return look(volume_, attempt.number, attempt.nodes, has_gone, statuses);
  }
  std::optional<Verdict> verdict_of(const AttemptView& view) const {
    const ActingAs learner(learner_);
    return verdict(volume_, view);
  }

  // Lets the learners of an attempt begin. May be repeated.
  void go(const JournalSummary::Attempt& attempt) {
    {
      const ActingAs learner(learner_);
      let_begin(attempt);
    }
    move_to(JobState::kProcessing, {});
  }

  void let_begin(const JournalSummary::Attempt& attempt) {
    std::vector<LearnerUp> learners;
    for (std::size_t rank = 0; rank < attempt.nodes.size(); ++rank) {
      auto up = read_learner_up(volume_.learner_up(attempt.number, static_cast<int>(rank)));
      if (!up) {
        break;
      }
      learners.push_back(std::move(*up));
    }
    if (learners.size() == attempt.nodes.size()) {
      retry("go.json", [&]() -> Result<void> {
        TESSER_ASSIGN_OR_RETURN([[maybe_unused]] const bool is_first,
                                write_marker_once(volume_.go(attempt.number), to_json(meeting_place(learners))));
        return {};
      });
    }
  }

  // What the job may still run; none without a limit.
  std::optional<milliseconds> time_left() const {
    if (manifest_.time_limit.count() == 0) {
      return std::nullopt;
    }
    const JournalSummary now = summary_of(journal_->records());
    const std::int64_t used =
        now.processed_microseconds + (now.processing_since ? microseconds_since_1970() - *now.processing_since : 0);
    return manifest_.time_limit - std::chrono::ceil<milliseconds>(std::chrono::microseconds(used));
  }

  static std::string waiting_text(const AttemptView& view, const std::optional<EngineWatch::Seen>& seen) {
    for (const LearnerStatus& each : seen ? seen->learners : std::vector<LearnerStatus>{}) {
      if (each.attempt == view.attempt && each.state == LearnerState::kWaiting) {
        return fmt::format(": learner {} waits{}", each.rank, each.reason.empty() ? "" : ": " + each.reason);
      }
    }
    for (std::size_t rank = 0; rank < view.up.size(); ++rank) {
      if (!view.up[rank]) {
        return fmt::format(": learner {} is not up", rank);
      }
    }
    return ": its data was still being fetched";
  }

  // --- the end of an attempt

  // Decides it; the next round does it.
  void end(int attempt, EndCause cause, const Reason& reason) {
    JournalRecord record = this->record(RecordKind::kEnd, attempt);
    record.cause = cause;
    record.code = reason.code;
    record.reason = reason.text;
    options_.log(fmt::format("attempt {} ends: {}", attempt, reason.text.empty() ? "done" : reason.text));
    note(std::move(record));
  }

  void end_attempt(const JournalSummary::Attempt& attempt) {
    attempt_ = attempt.number;
    if (!attempt.end) {  // a predecessor died before all of it was deployed
      return end(attempt.number, EndCause::kRollback,
                 {codes::kEngine, "the guardian died while learners were being deployed"});
    }
    if (attempt.is_deployed) {
      let_end(attempt);
    }
    const EndCause cause = attempt.end->cause;
    remove(attempt.number, cause == EndCause::kRestart || cause == EndCause::kRollback);
    if (attempt.has_gone) {
      for (std::size_t rank = 0; rank < attempt.nodes.size(); ++rank) {
        // Lines of learners that were killed before they had their output in the log.
        const ActingAs learner(learner_);
        const auto collected = collect_remaining(volume_, manifest_, static_cast<int>(rank), milliseconds(2000));
        if (!collected) {
          options_.log(fmt::format("log of learner {}: {}", rank, collected.error().message));
        }
      }
    }
  }

  // Tells learners to end and gives them the time for it that the cause allows.
  void let_end(const JournalSummary::Attempt& attempt) {
    const EndCause cause = attempt.end->cause;
    const bool is_gentle =
        cause == EndCause::kHalt || cause == EndCause::kYield || (cause == EndCause::kFail && attempt.has_gone);
    const bool is_awaited = cause != EndCause::kDelete && attempt.has_gone;
    if (cause == EndCause::kDone) {
      return;
    }
    const milliseconds grace = is_gentle ? milliseconds(manifest_.grace) : is_awaited ? kOthersEnd : milliseconds(0);
    const milliseconds time = grace + (is_gentle ? kAfterGrace : kAfterOthersEnd);
    {
      const ActingAs learner(learner_);
      (void)write_file_atomically(volume_.stop(attempt.number), to_json(Stop{grace}));
    }
    if (!is_awaited) {
      return;
    }
    const auto already = std::chrono::microseconds(microseconds_since_1970() - attempt.end->time);
    const auto until = steady_clock::now() + std::max(time - std::chrono::ceil<milliseconds>(already), milliseconds(0));
    const MarkerWatch markers(volume_.attempt(attempt.number), is_shared() ? kSharedPoll : kIdle, *bell_);
    while (steady_clock::now() < until) {
      const auto seen = engine_watch_ != nullptr ? engine_watch_->seen() : std::nullopt;
      const bool is_recent = seen && seen->asked >= deployed_at_;
      if (look_at(attempt, true, is_recent ? &seen->learners : nullptr).all_ended() ||
          link_->wanted() == Wanted::kDelete) {
        return;
      }
      bell_->wait_until(std::min(until, steady_clock::now() + kIdle));
    }
  }

  // Returns when nothing of the attempt runs; tries on as long as that takes.
  void remove(int attempt, bool another_follows = false) {
    retry("removal of learners", [&] {
      link_->wait_for_right_to_act();
      return another_follows ? engine_->vacate(job_, manifest_.team, attempt)
                             : engine_->remove(job_, manifest_.team, attempt);
    });
    has_vacated_ = another_follows;
    note(record(RecordKind::kRemoved, attempt));
  }

  // Gives back what the engine has kept for an attempt that does not come.
  void give_places_back() {
    retry("giving places back", [&] {
      link_->wait_for_right_to_act();
      return engine_->remove(job_, manifest_.team, std::nullopt);
    });
    has_vacated_ = false;
  }

  // --- journal and states

  JournalRecord record(RecordKind kind, int attempt) const {
    JournalRecord made;
    made.kind = kind;
    made.attempt = attempt;
    return made;
  }

  // Until the disk takes it: nothing may happen that does not stand there.
  void note(JournalRecord record) {
    record.epoch = link_->lease().epoch;
    retry("journal", [&]() -> Result<void> {
      TESSER_ASSIGN_OR_RETURN([[maybe_unused]] const std::uint64_t sequence, journal_->append(record));
      return {};
    });
  }

  template <typename Do>
  void retry(const char* what, const Do& attempt_it) {
    milliseconds pause = kFirstPause;
    std::string trouble;
    while (true) {
      const Result<void> outcome = attempt_it();
      if (outcome) {
        return;
      }
      if (outcome.error().message != trouble) {
        trouble = outcome.error().message;
        options_.log(fmt::format("{}: trying on: {}", what, trouble));
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(1000));
    }
  }

  void move_to(JobState state, const Reason& reason) {
    const auto last = summary_of(journal_->records()).state;
    const JobState now = !last || has_new_places_ ? JobState::kPending : *last;
    if (now == state) {
      return;
    }
    if (has_vacated_ && is_released(state)) {
      give_places_back();
    }
    for (const JobState each : way_to(now, state)) {
      JournalRecord change = record(RecordKind::kState, attempt_);
      change.state = each;
      if (each == state) {
        change.code = reason.code;
        change.reason = reason.text;
      }
      note(std::move(change));
      has_new_places_ = false;
    }
    options_.log(fmt::format("{}{}{}", name_of(state), reason.text.empty() ? "" : ": ", reason.text));
    link_->say_states();
  }

  Result<void> until_said() {
    link_->say_states();
    while (!link_->has_said_all()) {
      bell_->wait_for(kIdle);
    }
    return {};
  }

  bool is_shared() const { return options_.engine.kind != "local"; }

  const GuardianOptions& options_;
  const Volume volume_;
  const std::string job_;
  const LearnerUser learner_ = learner_user_of(volume_);
  Manifest manifest_;
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ServerLink> link_;
  std::unique_ptr<EngineWatch> engine_watch_;
  bool has_new_places_ = false;
  bool has_vacated_ = false;  // the last attempt, for another
  int attempt_ = 0;           // of which states are said
  steady_clock::time_point deployed_at_{};
  milliseconds rollback_pause_ = kFirstPause;
};

}  // namespace

Result<void> guard(const GuardianOptions& options) { return Guardian(options).run(); }

}  // namespace tesser::platform
