// Following a job: its log or metrics and its states, over the server's restarts.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "platform/client/client.h"

namespace tesser::cli {

struct FollowOptions {
  platform::FollowQuery query;
  bool follow = true;  // false: what is there already
  bool json = false;
  bool raw = false;                   // events of a run are shown as they were written, not in words
  bool show_states = false;           // changes of state go to standard error
  int learners = 1;                   // several: lines begin with their rank
  std::filesystem::path tensorboard;  // where export_metrics() writes
};

// Prints lines of the log, each once and in order, until nothing follows any more. While the server is out of reach it
// tries again for ten minutes.
Result<void> print_logs(platform::Client& client, const std::string& id, const FollowOptions& options);
Result<void> print_metrics(platform::Client& client, const std::string& id, const FollowOptions& options);
// Likewise into event files of TensorBoard.
Result<void> export_metrics(platform::Client& client, const std::string& id, const FollowOptions& options);

// 0 for COMPLETED, 1 for another end; says how the job ended, on standard error.
int outcome_of(const platform::JobAnswer& job);
// Whether nothing happens any more until somebody resumes the job.
bool is_at_rest(const platform::JobAnswer& job);

// Ctrl-C leaves the job alone and says how to come back to it.
void leave_on_interrupt(const std::string& id);

// Says it at the first try; sleeps a second. False when ten minutes are over.
bool wait_for_server(int tries);

// The answer of `call`, which is repeated while the server is out of reach.
template <typename Call>
auto persistently(platform::Client& client, const Call& call) -> decltype(call()) {
  for (int tries = 0;; ++tries) {
    auto answer = call();
    if (answer || !client.is_out_of_reach() || !wait_for_server(tries)) {
      return answer;
    }
  }
}

}  // namespace tesser::cli
