#include "runtime/loader.h"

#include <cstring>
#include <numeric>

#include "base/check.h"
#include "runtime/data_order.h"

namespace tesser::runtime {

Loader::Loader(const DataSet& data, const LoaderOptions& options) : data_(data), options_(options) {
  for (const BatchValue& value : data_.values()) {
    staging_.emplace_back(static_cast<std::size_t>(element_count(value.shape)) * element_size(value.dtype));
  }
  thread_ = std::thread([this] { prepare(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

DataPosition Loader::next(std::span<const MutableTensorView> targets) {
  TESSER_CHECK(targets.size() == staging_.size(), std::to_string(targets.size()) + " targets");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return staged_; });
  for (std::size_t i = 0; i < targets.size(); ++i) {
    TESSER_CHECK(targets[i].bytes() == staging_[i].size(), std::to_string(targets[i].bytes()) + " bytes");
    if (!staging_[i].empty()) {
      std::memcpy(targets[i].data, staging_[i].data(), staging_[i].size());
    }
  }
  const DataPosition position = staged_position_;
  staged_ = false;
  lock.unlock();
  changed_.notify_all();
  return position;
}

void Loader::prepare() {
  const auto batch_size = static_cast<std::size_t>(data_.batch_size());
  std::vector<std::uint32_t> order;
  std::vector<std::uint32_t> unshuffled(batch_size);
  std::int64_t order_epoch = -1;
  DataPosition position = options_.start;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !staged_; });
      if (stopping_) {
        return;
      }
    }
    std::span<const std::uint32_t> samples;
    if (options_.shuffle) {
      if (position.epoch != order_epoch) {
        order = shuffled_order(options_.seed, position.epoch, data_.samples());
        order_epoch = position.epoch;
      }
      samples = std::span(order).subspan(static_cast<std::size_t>(position.batch) * batch_size, batch_size);
    } else {
      std::iota(unshuffled.begin(), unshuffled.end(), static_cast<std::uint32_t>(position.batch * data_.batch_size()));
      samples = unshuffled;
    }
    for (std::size_t i = 0; i < staging_.size(); ++i) {
      data_.gather(i, samples, staging_[i].data());
    }
    {
      const std::lock_guard lock(mutex_);
      staged_position_ = position;
      staged_ = true;
    }
    changed_.notify_all();
    position = following(position, data_);
  }
}

DataPosition following(DataPosition position, const DataSet& data) {
  if (++position.batch == data.batches()) {
    return {position.epoch + 1, 0};
  }
  return position;
}

}  // namespace tesser::runtime
