#include "partition/memory.h"

#include <gtest/gtest.h>

#include "memory/predict.h"
#include "step_program.h"

namespace tesser::partition {
namespace {

class Memory : public testing::Test {
 protected:
  WorkerMemory worst(const Plan& plan) const { return worker_memory(program_, semantics_, plan); }

  graph::Program program_ = layer_step();
  std::vector<tdl::NodeSemantics> semantics_ = semantics_of(program_);
};

constexpr std::int64_t kScalars = 2 * 64;      // step and learning rate
constexpr std::int64_t kWeight = 64 * 32 * 4;  // also its gradient
constexpr std::int64_t kBatch = 8 * 64 * 4;
constexpr std::int64_t kActivation = 8 * 32 * 4;  // y, a, da and dy

TEST_F(Memory, OneWorkerNeedsWhatTheWholeProgramNeeds) {
  const memory::MemoryPrediction whole = memory::predict(program_);
  for (const Plan& plan : {replicated_plan(program_, {}), replicated_plan(program_, {2, 3})}) {
    const WorkerMemory memory = worst(plan);
    EXPECT_EQ(memory.worker, 0);
    EXPECT_EQ(memory.state_bytes, whole.state_bytes);
    EXPECT_EQ(memory.peak_bytes, whole.peak_bytes);
    EXPECT_EQ(memory.at_rest_bytes, whole.state_bytes + whole.live_bytes);
    EXPECT_EQ(memory.peak_node, whole.peak_node);
  }
}

TEST_F(Memory, PartsOfTheBatchAndTheGradientsPartialSums) {
  constexpr int kParts = 4;
  const Plan plan = batch_plan(program_, semantics_, kParts);
  const WorkerMemory memory = worst(plan);
  EXPECT_EQ(memory.state_bytes, kScalars + kWeight + kBatch / kParts);
  EXPECT_EQ(program_.node(memory.peak_node).name, "dw");
  // Its own partial sum, those of the others to a quarter of 8 KiB (owners share the work), their sum, and the whole.
  const std::int64_t kShare = kWeight / kParts;
  const std::int64_t reduced = (kParts - 1) * kShare + kShare;
  EXPECT_EQ(memory.peak_bytes,
            memory.state_bytes + kWeight + kWeight + reduced + kActivation / kParts + 64 /* the loss */);
  EXPECT_EQ(memory.at_rest_bytes, memory.state_bytes + kWeight + kActivation / kParts + 64);
}

TEST_F(Memory, WhatIsFetchedIsThereFromBeforeItsUseToTheLastOne) {
  Plan plan = replicated_plan(program_, {2});
  plan.layouts[static_cast<std::size_t>(program_.find("w"))] = {{0, 1}};
  const MemoryPredictor predictor(program_, semantics_);
  const WorkerMemory memory = predictor.of_worker(plan, 1);
  EXPECT_EQ(memory.worker, 1);
  EXPECT_EQ(memory.state_bytes, kScalars + kWeight / 2 + kBatch);
  // mm needs the whole weight; the update needs it again, in another phase.
  MemoryOptions no_prefetch;
  no_prefetch.prefetch = 0;
  no_prefetch.lay_out = false;
  const WorkerMemory late = predictor.of_worker(plan, 1, no_prefetch);
  EXPECT_LE(late.peak_bytes, memory.peak_bytes);
  EXPECT_GE(memory.peak_bytes, memory.at_rest_bytes + kWeight);
}

TEST_F(Memory, UnevenPartsCountByTheirLargest) {
  Plan plan = replicated_plan(program_, {3});
  for (const char* const name : {"w", "dw", "w.new"}) {
    plan.layouts[static_cast<std::size_t>(program_.find(name))] = {{0, 1}};  // 64 rows: 22, 21, 21
  }
  const MemoryPredictor predictor(program_, semantics_);
  EXPECT_EQ(predictor.worst(plan).state_bytes, kScalars + 22 * 32 * 4 + kBatch);
  EXPECT_EQ(predictor.of_worker(plan, 2).state_bytes, kScalars + 21 * 32 * 4 + kBatch);
}

TEST_F(Memory, GapsOfTheArenaCount) {
  const Plan plan = batch_plan(program_, semantics_, 3);
  MemoryOptions rough;
  rough.lay_out = false;
  EXPECT_GE(worst(plan).peak_bytes, worker_memory(program_, semantics_, plan, rough).peak_bytes);
}

}  // namespace
}  // namespace tesser::partition
