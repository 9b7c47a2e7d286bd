// A tenant of a hub that keeps to no rule. For tests, and for ./x bench hub --tenants.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "hub/job_settings.h"
#include "hub/queue_pair.h"
#include "transport/device.h"

namespace tesser::hub {

// A worker that joins as it should and then sends whatever notifications it is told to.
class LawlessWorker {
 public:
  // A job of one replica, at a hub with so many cores.
  static Result<std::unique_ptr<LawlessWorker>> join(const std::string& hub, int cores, const std::string& job,
                                                     const JobSettings& settings);
  // To the first core.
  void send(std::uint32_t number) { (void)queues_.front().sends.notify(number); }
  // Waits for the hub to close the connection.
  bool is_thrown_out();

 private:
  LawlessWorker() = default;

  std::unique_ptr<transport::Device> device_;
  std::shared_ptr<transport::MemoryRegion> region_;
  std::shared_ptr<transport::Channel> channel_;
  std::vector<QueuePair> queues_;  // to each core
};

// Until it is destroyed, four threads: requests that mean nothing, are huge, or name another's job without its nonce;
// connections that send bytes which are no request; workers that send notifications which mean nothing; workers that
// die in the middle of a push.
class HostileTenant {
 public:
  // `hub`: its URL on 127.0.0.1; it has `cores` cores. `foreign_job`: another tenant's.
  HostileTenant(std::string hub, int cores, std::string foreign_job);
  ~HostileTenant();

  // Requests, connections and workers so far.
  std::int64_t acts() const { return acts_.load(); }
  // What the hub should have refused and did not, or what kept this tenant from its work; empty: nothing.
  std::string surprise() const;

 private:
  void flood_requests();
  void flood_connections();
  void send_nonsense();
  void die_in_pushes();
  void note(const std::string& surprise);

  const std::string hub_;
  const int cores_;
  const std::string foreign_job_;
  std::atomic<bool> ends_{false};
  std::atomic<std::int64_t> acts_{0};
  mutable std::mutex mutex_;
  std::string surprise_;
  std::vector<std::thread> threads_;
};

}  // namespace tesser::hub
