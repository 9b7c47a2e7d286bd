#include "runtime/distributed_checkpoint.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/checkpoint_writer.h"

namespace tesser::runtime {
namespace {

struct Holders {
  Rectangle place;
  std::vector<std::size_t> workers;
};

Rectangle place_of(const graph::Value& value) {
  return value.whole_shape.empty() ? whole_rectangle(value.shape) : Rectangle{value.region_begin, value.shape};
}

// By value: its rectangles and who has them.
Result<std::vector<std::vector<Holders>>> find_holders(const std::vector<StateValue>& values,
                                                       const std::vector<graph::Program>& programs) {
  std::unordered_map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < values.size(); ++i) {
    numbers.emplace(values[i].name, i);
  }
  std::vector<std::vector<Holders>> holders(values.size());
  for (std::size_t worker = 0; worker < programs.size(); ++worker) {
    for (const graph::ValueId id : programs[worker].inputs) {
      const graph::Value& value = programs[worker].value(id);
      const auto number = numbers.find(value.name);
      if (!value.is_state() || number == numbers.end()) {
        continue;
      }
      std::vector<Holders>& of_value = holders[number->second];
      const Rectangle place = place_of(value);
      auto same =
          std::find_if(of_value.begin(), of_value.end(), [&](const Holders& each) { return each.place == place; });
      if (same == of_value.end()) {
        same = of_value.insert(of_value.end(), {place, {}});
      }
      same->workers.push_back(worker);
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t elements = 0;
    for (const Holders& each : holders[i]) {
      elements += element_count(each.place.size);
    }
    if (elements != element_count(values[i].shape)) {
      return failed(fmt::format("the workers' programs have {} elements of '{}', which has {}", elements,
                                values[i].name, element_count(values[i].shape)));
    }
  }
  return holders;
}

}  // namespace

Result<SharedState> share_state(const std::vector<StateValue>& values, const std::vector<graph::Program>& programs,
                                std::int64_t largest_shard_bytes) {
  TESSER_ASSIGN_OR_RETURN(const auto holders, find_holders(values, programs));
  std::vector<std::vector<StatePart>> written(programs.size());
  std::vector<std::vector<std::int64_t>> bytes(programs.size());
  std::vector<std::int64_t> total(programs.size(), 0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const Holders& each : holders[i]) {
      const std::size_t worker = *std::min_element(each.workers.begin(), each.workers.end(),
                                                   [&](std::size_t a, std::size_t b) { return total[a] < total[b]; });
      const std::int64_t size =
          element_count(each.place.size) * static_cast<std::int64_t>(element_size(values[i].dtype));
      written[worker].push_back({i, 0, each.place});
      bytes[worker].push_back(size);
      total[worker] += size;
    }
  }
  SharedState shared;
  shared.manifest.values = values;
  shared.shards.resize(programs.size());
  for (std::size_t worker = 0; worker < programs.size(); ++worker) {
    if (written[worker].empty()) {
      continue;
    }
    const std::vector<std::size_t> bounds = shard_bounds(bytes[worker], largest_shard_bytes);
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      ShardTask task;
      for (std::size_t k = bounds[i]; k < bounds[i + 1]; ++k) {
        StatePart& part = written[worker][k];
        part.shard = shared.manifest.shards.size();
        task.values.push_back(values[part.value].name);
        shared.manifest.parts.push_back(part);
      }
      shared.manifest.shards.emplace_back();
      shared.shards[worker].push_back(std::move(task));
    }
  }
  const std::size_t count = shared.manifest.shards.size();
  std::size_t number = 0;
  for (std::vector<ShardTask>& tasks : shared.shards) {
    for (ShardTask& task : tasks) {
      task.file = shard_name(number, count);
      shared.manifest.shards[number++].file = task.file;
    }
  }
  std::stable_sort(shared.manifest.parts.begin(), shared.manifest.parts.end(),
                   [](const StatePart& a, const StatePart& b) { return a.value < b.value; });
  return shared;
}

std::optional<Manifest> ShardCollection::add(int worker, const WrittenShards& written) {
  if (newest_ && written.step <= *newest_) {
    return std::nullopt;
  }
  Unfinished& unfinished = unfinished_.try_emplace(written.step, Unfinished{manifest_, {}}).first->second;
  unfinished.workers.insert(worker);
  for (const ShardDescription& shard : written.shards) {
    for (ShardDescription& known : unfinished.manifest.shards) {
      if (known.file == shard.file) {
        known = shard;
      }
    }
  }
  if (static_cast<int>(unfinished.workers.size()) < workers_) {
    return std::nullopt;
  }
  Manifest complete = std::move(unfinished.manifest);
  unfinished_.erase(written.step);
  newest_ = written.step;
  return complete;
}

}  // namespace tesser::runtime
