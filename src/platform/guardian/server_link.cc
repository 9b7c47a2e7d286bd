#include "platform/guardian/server_link.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "base/json_members.h"
#include "base/json_reader.h"

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{250};
// How long the server may hold a renewal back for news of what the owner wants.
constexpr int kRenewalWait = 2;  // seconds
constexpr milliseconds kAnswerTime{2000};
constexpr int kFollowed = 409;

std::string time_text(std::int64_t microseconds) {
  const std::time_t seconds = microseconds / 1'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, microseconds % 1'000'000);
}

std::string holder() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}:{}", host, ::getpid());
}

}  // namespace

Result<HttpsAnswer> ServerLink::post(HttpsClient& client, const std::string& what, const std::string& body,
                                     milliseconds time) {
  HttpsRequest request;
  request.method = "POST";
  request.url = fmt::format("{}/v1/guardian/{}/{}", options_.url, options_.job, what);
  request.headers = {{"Authorization", "Bearer " + options_.token}, {"Content-Type", "application/json"}};
  request.body = body;
  request.limits.connect = kAnswerTime;
  request.limits.whole = time + kAnswerTime;
  return client.send(request);
}

Result<std::unique_ptr<ServerLink>> ServerLink::open(Options options, Journal& journal, Bell& bell) {
  std::unique_ptr<ServerLink> link(new ServerLink(std::move(options), journal, bell));
  HttpsOptions server;
  server.what = "tesser server";
  server.authorities_file = link->options_.authorities;
  TESSER_ASSIGN_OR_RETURN(link->renewing_, HttpsClient::open(server));
  TESSER_ASSIGN_OR_RETURN(link->saying_, HttpsClient::open(server));
  TESSER_RETURN_IF_ERROR(link->take_lease());
  link->keeper_ = std::thread([self = link.get()] { self->keep_lease(); });
  link->sayer_ = std::thread([self = link.get()] { self->say(); });
  return link;
}

ServerLink::~ServerLink() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (renewing_ != nullptr) {
    renewing_->cancel();
  }
  if (saying_ != nullptr) {
    saying_->cancel();
  }
  for (std::thread* thread : {&keeper_, &sayer_}) {
    if (thread->joinable()) {
      thread->join();
    }
  }
}

Result<void> ServerLink::take_lease() {
  milliseconds pause_time = kFirstPause;
  std::string last_trouble;
  while (true) {
    const auto sent = Clock::now();
    const auto answer = post(*renewing_, "lease", JsonMembers().add("holder", holder()).object(), milliseconds(0));
    if (answer && answer->is_success()) {
      auto lease = read_json_object<Lease>(answer->body, "lease", [](JsonReader& reader, Lease& value) {
        value.epoch = reader.integer("epoch", 1);
        const auto wanted = wanted_named(reader.string("wanted"));
        if (!wanted) {
          reader.fail("'wanted' is none of run, halt, delete, yield");
        }
        value.wanted = wanted.value_or(Wanted::kRun);
        value.nodes = reader.strings("placement");
        value.attempt = static_cast<int>(reader.integer("attempt", 0));
      });
      if (!lease) {
        return failed(fmt::format("the server's lease cannot be read: {}", lease.error().message));
      }
      lease_ = std::move(*lease);
      const std::lock_guard lock(mutex_);
      wanted_ = lease_.wanted;
      granted_ = sent;
      return {};
    }
    if (answer && answer->status == kFollowed) {
      end_as_followed(answer->body);
    }
    const std::string trouble = answer ? fmt::format("{}: {}", answer->status, answer->body) : answer.error().message;
    if (trouble != last_trouble) {
      options_.log(fmt::format("no lease yet, trying on: {}", trouble));
      last_trouble = trouble;
    }
    pause(pause_time);
    pause_time = std::min(pause_time * 2, kLongestPause);
  }
}

Wanted ServerLink::wanted() const {
  const std::lock_guard lock(mutex_);
  return wanted_;
}

void ServerLink::keep_lease() {
  milliseconds pause_time = kFirstPause;
  bool was_answered = true;
  while (true) {
    const Wanted known = wanted();
    const auto sent = Clock::now();
    const auto answer = post(*renewing_, "renew",
                             JsonMembers()
                                 .add("epoch", lease_.epoch)
                                 .add("wanted", std::string(name_of(known)))
                                 .add("wait", kRenewalWait)
                                 .object(),
                             std::chrono::seconds(kRenewalWait));
    if (answer && answer->status == kFollowed) {
      end_as_followed(answer->body);
    }
    const auto json = answer && answer->is_success() ? parse_json(answer->body) : Result<Json>(failed(""));
    const Json* member = json ? json->find("wanted") : nullptr;
    const auto now_wanted =
        member != nullptr && member->string() != nullptr ? wanted_named(*member->string()) : std::nullopt;
    if (now_wanted) {
      const std::lock_guard lock(mutex_);
      granted_ = sent;
      absent_until_ = Clock::time_point();
      wanted_ = *now_wanted;
    } else if (!answer && answer.error().code == ErrorCode::kNotFound) {
      // Longer than until the next try, which sees whether that is still so.
      const std::lock_guard lock(mutex_);
      absent_until_ = Clock::now() + 4 * kLongestPause;
    } else {
      const std::lock_guard lock(mutex_);
      absent_until_ = Clock::time_point();
    }
    const bool is_answered = now_wanted.has_value();
    if (!is_answered && !pause(milliseconds(0))) {
      return;
    }
    if (is_answered != was_answered) {
      options_.log(is_answered ? "the server answers again"
                               : fmt::format("the server does not renew the lease, going on: {}",
                                             answer ? answer->body : answer.error().message));
      was_answered = is_answered;
    }
    if (now_wanted != known) {
      bell_.ring();
    }
    changed_.notify_all();
    // A server that holds nothing back is not asked more often than it has to be.
    const bool is_early = is_answered && now_wanted == known && Clock::now() - sent < kLongestPause;
    pause_time = is_answered ? kFirstPause : std::min(pause_time * 2, kLongestPause);
    if (!pause(is_early ? kLongestPause : is_answered ? milliseconds(0) : pause_time)) {
      return;
    }
  }
}

void ServerLink::wait_for_right_to_act() {
  std::unique_lock lock(mutex_);
  bool said = false;
  const auto may_act = [&] {
    const auto now = Clock::now();
    return now < granted_ + options_.lease_time - kLongestPause || now < absent_until_;
  };
  while (!may_act()) {
    if (!said) {
      options_.log("the lease has run out: waiting for the server before anything is changed");
      said = true;
    }
    changed_.wait_for(lock, kLongestPause);
  }
}

void ServerLink::say_states() {
  {
    const std::lock_guard lock(mutex_);
    has_news_ = true;
  }
  changed_.notify_all();
}

bool ServerLink::has_said_all() const {
  const std::lock_guard lock(mutex_);
  return !has_news_ && !is_saying_;
}

void ServerLink::say() {
  milliseconds pause_time = kFirstPause;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_ending_ || has_news_; });
      if (is_ending_) {
        return;
      }
      has_news_ = false;
      is_saying_ = true;
    }
    bool went_well = true;
    for (const JournalRecord& state : summary_of(journal_.records()).unreported) {
      went_well = went_well && say_one(state);
    }
    {
      const std::lock_guard lock(mutex_);
      is_saying_ = false;
      has_news_ = has_news_ || !went_well;
    }
    if (went_well) {
      pause_time = kFirstPause;
      bell_.ring();
      continue;
    }
    if (!pause(pause_time)) {
      return;
    }
    pause_time = std::min(pause_time * 2, kLongestPause);
  }
}

bool ServerLink::say_one(const JournalRecord& state) {
  const auto answer = post(*saying_, "state",
                           JsonMembers()
                               .add("epoch", lease_.epoch)
                               .add("sequence", static_cast<std::int64_t>(state.sequence))
                               .add("state", std::string(name_of(state.state)))
                               .add("code", state.code)
                               .add("reason", state.reason)
                               .add("attempt", state.attempt)
                               .add("time", time_text(state.time))
                               .object(),
                           milliseconds(0));
  if (answer && answer->status == kFollowed) {
    end_as_followed(answer->body);
  }
  if (!answer || !answer->is_success()) {
    if (answer) {
      options_.log(
          fmt::format("the server did not take state {}: {}: {}", name_of(state.state), answer->status, answer->body));
    }
    return false;
  }
  JournalRecord reported;
  reported.kind = RecordKind::kReported;
  reported.epoch = lease_.epoch;
  reported.up_to = state.sequence;
  // If it cannot be noted it is sent again one day, which changes nothing.
  (void)journal_.append(std::move(reported));
  return true;
}

bool ServerLink::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return is_ending_; });
  return !is_ending_;
}

void ServerLink::end_as_followed(const std::string& answer) {
  options_.log(fmt::format("another guardian has the job, or it needs none; this one ends: {}", answer));
  std::_Exit(0);
}

}  // namespace tesser::platform
