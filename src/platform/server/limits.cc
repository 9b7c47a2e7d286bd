#include "platform/server/limits.h"

#include <algorithm>

namespace tesser::platform {
namespace {

constexpr double kSecondsSaved = 2;
constexpr std::size_t kMostBuckets = 10'000;  // beyond which full ones, which say nothing, are forgotten

}  // namespace

std::optional<std::chrono::milliseconds> RateLimits::take(const std::string& key, int per_second,
                                                          Clock::time_point now) {
  if (per_second == 0) {
    return std::nullopt;
  }
  const double most = kSecondsSaved * per_second;
  const std::lock_guard lock(mutex_);
  if (buckets_.size() > kMostBuckets) {
    std::erase_if(buckets_, [&](const auto& entry) {
      return std::chrono::duration<double>(now - entry.second.at).count() > kSecondsSaved;
    });
  }
  Bucket& bucket = buckets_.try_emplace(key, Bucket{most, now}).first->second;
  bucket.left = std::min(most, bucket.left + std::chrono::duration<double>(now - bucket.at).count() * per_second);
  bucket.at = now;
  if (bucket.left < 1) {
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>((1 - bucket.left) / per_second));
  }
  bucket.left -= 1;
  return std::nullopt;
}

std::shared_ptr<const void> RequestPlaces::take(const std::string& user, int most) {
  const std::lock_guard lock(mutex_);
  int& count = taken_[user];
  if ((most != 0 && count >= most) || taken_in_all_ >= most_of_all_) {
    return nullptr;
  }
  ++count;
  ++taken_in_all_;
  return {this, [this, user](const void*) { give_back(user); }};
}

void RequestPlaces::give_back(const std::string& user) {
  const std::lock_guard lock(mutex_);
  --taken_in_all_;
  const auto found = taken_.find(user);
  if (found != taken_.end() && --found->second == 0) {
    taken_.erase(found);
  }
}

}  // namespace tesser::platform
