#include "runtime/loader.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "runtime/data_order.h"

namespace tesser::runtime {

Loader::Loader(const DataSet& data, const LoaderOptions& options) : data_(data), options_(options) {
  for (std::size_t i = 0; i < data_.values().size(); ++i) {
    const BatchValue& value = data_.values()[i];
    std::optional<Rectangle> place = whole_rectangle(value.shape);
    if (!options_.parts.empty()) {
      place = options_.parts[i];
    }
    if (!place) {
      continue;
    }
    staging_.emplace_back(static_cast<std::size_t>(element_count(place->size)) * element_size(value.dtype));
    Shape samples = value.shape;
    samples[0] = place->size[0];
    wanted_.push_back({i, *place, place->size == samples});
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

void Loader::gather(const Wanted& wanted, std::span<const std::uint32_t> samples, std::byte* target) {
  const Rectangle& place = wanted.place;
  const std::span<const std::uint32_t> of_part =
      samples.subspan(static_cast<std::size_t>(place.begin[0]), static_cast<std::size_t>(place.size[0]));
  if (wanted.is_whole_samples) {
    data_.gather(wanted.value, of_part, target);
    return;
  }
  const BatchValue& value = data_.values()[wanted.value];
  Rectangle gathered = whole_rectangle(value.shape);
  gathered.begin[0] = place.begin[0];
  gathered.size[0] = place.size[0];
  const std::size_t element_bytes = element_size(value.dtype);
  samples_memory_.resize(
      std::max(samples_memory_.size(), static_cast<std::size_t>(element_count(gathered.size)) * element_bytes));
  data_.gather(wanted.value, of_part, samples_memory_.data());
  copy_rectangle(element_bytes, place, samples_memory_.data(), gathered, target, place);
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
    const std::int64_t batch = position.batch + options_.replica;
    std::span<const std::uint32_t> samples;
    if (options_.shuffle) {
      if (position.epoch != order_epoch) {
        order = shuffled_order(options_.seed, position.epoch, data_.samples());
        order_epoch = position.epoch;
      }
      samples = std::span(order).subspan(static_cast<std::size_t>(batch) * batch_size, batch_size);
    } else {
      std::iota(unshuffled.begin(), unshuffled.end(), static_cast<std::uint32_t>(batch * data_.batch_size()));
      samples = unshuffled;
    }
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      gather(wanted_[i], samples, staging_[i].data());
    }
    {
      const std::lock_guard lock(mutex_);
      staged_position_ = position;
      staged_ = true;
    }
    changed_.notify_all();
    position = following(position, data_, options_.replicas);
  }
}

DataPosition following(DataPosition position, const DataSet& data, std::int64_t replicas) {
  position.batch += replicas;
  return with_batches(position, data, replicas);
}

DataPosition with_batches(DataPosition position, const DataSet& data, std::int64_t replicas) {
  if (position.batch + replicas > data.batches()) {
    return {position.epoch + 1, 0};
  }
  return position;
}

}  // namespace tesser::runtime
