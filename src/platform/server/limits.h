// How much of the server each may use. Internal to this folder.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace tesser::platform {

// What administrators of the platform are not held to, and guardians only for rates. 0: no limit.
struct TenantLimits {
  int requests_per_second = 100;  // of a user, over some seconds; twice as many at once
  int strangers_per_second = 50;  // likewise, of an address without a token that is known
  int requests_at_once = 64;      // of a user: follows, downloads and uploads count as long as they last
  int waiting_jobs_of_user = 1'000;
  int waiting_jobs_of_team = 5'000;
};

// Any thread.
class RateLimits {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes one of `key`'s, which has `per_second` of them and saves up those of two seconds. Nothing: it may; else how
  // long it has to wait for the next.
  std::optional<std::chrono::milliseconds> take(const std::string& key, int per_second,
                                                Clock::time_point now = Clock::now());

 private:
  struct Bucket {
    double left = 0;
    Clock::time_point at;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

// Any thread; outlives what it gives.
class RequestPlaces {
 public:
  explicit RequestPlaces(int most_of_all) : most_of_all_(most_of_all) {}

  // One of `user`'s places, of which there are `most` (0: any number), until it is let go of. Nothing when all are
  // taken: the user's, or everybody's.
  std::shared_ptr<const void> take(const std::string& user, int most);

 private:
  void give_back(const std::string& user);

  const int most_of_all_;
  std::mutex mutex_;
  std::unordered_map<std::string, int> taken_;
  int taken_in_all_ = 0;
};

}  // namespace tesser::platform
