// A replica's worker at the parameter hub (docs/runtime.md, replicas): one job for each part of the step, in which the
// workers that have this part of every replica meet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "hub/client.h"
#include "runtime/exchange.h"
#include "runtime/executor.h"
#include "runtime/gradient_exchange.h"

namespace tesser::runtime {

struct HubExchangeOptions {
  std::string hub;    // http://HOST:PORT
  std::string token;  // of the hub; empty: none
  std::string job;
  std::string nonce;
  std::int64_t replica = 0;
  std::int64_t replicas = 1;
  // Clipping by the norm of the gradient of all parts of a replica: the limit (0: none), how many jobs of this group
  // have parts, which this one is, and the parameters that count here, as several workers may have equal parts.
  double clip_norm = 0;
  std::string clip_group;
  std::int64_t clip_parts = 1;
  std::int64_t clip_part = 0;
  std::set<std::string> clip_values;
  bool network = false;             // never through shared memory
  std::function<bool()> cancelled;  // whether nobody wants to wait any more; any thread
};

class HubExchange : public GradientExchange {
 public:
  // `program` is what the executor is made from, `updates` what find_updates() has found in it.
  HubExchange(const graph::Program& program, Updates updates, HubExchangeOptions options);

  // Once, with the executor made and its state written, which is after `step` steps: joins the hub, gives it weights
  // and optimizer state (those of the first replica count), and puts the executor's weights where the hub has them.
  // Blocks until all replicas have come.
  Result<void> connect(Executor& executor, std::int64_t step);
  // Before Executor::run() of the step.
  Result<void> begin_step(std::int64_t step);
  // Blocks until the weights of all steps are there.
  Result<void> wait_all();
  // After wait_all(), while this worker takes no further step: brings the optimizer state to where
  // Executor::read_state() finds it, and forgets it again.
  Result<void> fetch_state(Executor& executor);
  void forget_state(Executor& executor);
  // Says that this worker needs the hub no more. Without it the hub takes its end for a loss, as after abandon().
  Result<void> leave();
  void abandon();
  // Whether the hub has failed while steps ran: another replica may be the cause.
  bool has_failed() const { return has_failed_; }

  // Bytes that this worker has for gradients, and once connected for weights where the hub does not share its own.
  std::int64_t bytes() const { return bytes_; }
  // How the hub is reached, for people.
  std::string path() const;
  ExchangeReport take_report();

  const Updates& updates() const override { return updates_; }
  std::span<float> gradient(std::size_t number) override;
  Result<void> push(std::size_t number) override;
  Result<void> wait(std::size_t number) override;

 private:
  const std::string& name(graph::ValueId id) const { return names_[static_cast<std::size_t>(id)]; }
  hub::JobSettings settings() const;

  std::vector<std::string> names_;          // by value, of the program's inputs
  std::vector<std::int64_t> elements_;      // likewise
  std::vector<graph::Schedule> schedules_;  // learning rates
  const Updates updates_;
  const HubExchangeOptions options_;
  std::unique_ptr<hub::Client> client_;  // null before connect(), and where nothing is updated
  std::int64_t bytes_ = 0;
  bool has_failed_ = false;
  ExchangeReport report_;
};

}  // namespace tesser::runtime
