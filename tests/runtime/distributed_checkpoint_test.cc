#include "runtime/distributed_checkpoint.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::runtime {
namespace {

using ::testing::HasSubstr;

// A worker's program that has only state.
class WorkerState {
 public:
  WorkerState& part(const std::string& name, const Shape& whole, const Rectangle& place) {
    graph::Value value;
    value.name = name;
    value.role = graph::Role::kParameter;
    value.shape = place.size;
    if (place != whole_rectangle(whole)) {
      value.region_begin = place.begin;
      value.whole_shape = whole;
    }
    program_.inputs.push_back(static_cast<graph::ValueId>(program_.values.size()));
    program_.values.push_back(std::move(value));
    return *this;
  }
  operator graph::Program() const { return program_; }

 private:
  graph::Program program_;
};

StateValue state(const std::string& name, const Shape& shape) {
  return {name, graph::Role::kParameter, DType::kFloat32, shape, true, {}};
}

TEST(DistributedCheckpointTest, EveryRectangleIsWrittenOnceAndTheWorkIsShared) {
  const Shape matrix{4, 6};
  std::vector<StateValue> values{state("cut", matrix)};
  std::vector<WorkerState> workers(3);
  for (std::int64_t worker = 0; worker < 3; ++worker) {
    workers[static_cast<std::size_t>(worker)].part("cut", matrix, {{0, 2 * worker}, {4, 2}});
  }
  for (int copy = 0; copy < 6; ++copy) {  // values that all have
    const std::string name = "copied" + std::to_string(copy);
    values.push_back(state(name, {5}));
    for (WorkerState& worker : workers) {
      worker.part(name, {5}, {{0}, {5}});
    }
  }
  const auto shared = share_state(values, {workers[0], workers[1], workers[2]}, 1 << 20);
  ASSERT_TRUE(shared.has_value()) << shared.error().message;
  ASSERT_EQ(shared->manifest.shards.size(), 3U);
  EXPECT_EQ(shared->manifest.shards[2].file, "state-00002-of-00003.safetensors");
  EXPECT_EQ(shared->manifest.parts.size(), 9U);
  for (const auto& shards : shared->shards) {
    ASSERT_EQ(shards.size(), 1U);
    EXPECT_EQ(shards[0].values.size(), 3U);  // its part of one, and two of the copies
  }
  std::size_t last = 0;
  for (const StatePart& part : shared->manifest.parts) {
    EXPECT_GE(part.value, last);
    last = part.value;
  }
  // A shard that would be too large is closed, and numbers go on.
  const auto small = share_state(values, {workers[0], workers[1], workers[2]}, 40);
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->manifest.shards.size(), 6U);
  EXPECT_EQ(small->shards[1][0].file, "state-00002-of-00006.safetensors");
}

TEST(DistributedCheckpointTest, WhatNobodyHasIsNoticed) {
  const WorkerState worker = WorkerState().part("w", {4, 6}, {{0, 0}, {4, 3}});
  const auto shared = share_state({state("w", {4, 6})}, {worker}, 1 << 20);
  ASSERT_FALSE(shared.has_value());
  EXPECT_THAT(shared.error().message, HasSubstr("12 elements of 'w', which has 24"));
}

TEST(DistributedCheckpointTest, IsCompleteWithTheLastWorkersShards) {
  Manifest manifest;
  manifest.shards = {{"a", 0, 0}, {"b", 0, 0}};
  ShardCollection shards(manifest, 3);
  const WrittenShards first{8, 0.1, {{"a", 10, 1}}};
  EXPECT_FALSE(shards.add(0, first).has_value());
  EXPECT_FALSE(shards.add(0, first).has_value()) << "told again";
  EXPECT_FALSE(shards.add(2, {8, 0.1, {}}).has_value()) << "has nothing to write";
  EXPECT_FALSE(shards.add(1, {12, 0.1, {{"b", 30, 3}}}).has_value()) << "of the next checkpoint";
  const auto complete = shards.add(1, {8, 0.1, {{"b", 20, 2}}});
  ASSERT_TRUE(complete.has_value());
  EXPECT_EQ(complete->shards[0].bytes, 10U);
  EXPECT_EQ(complete->shards[1].bytes, 20U);
  EXPECT_EQ(complete->shards[1].checksum, 2U);
  EXPECT_FALSE(shards.add(1, {8, 0.1, {{"b", 20, 2}}}).has_value()) << "after its end";
}

}  // namespace
}  // namespace tesser::runtime
