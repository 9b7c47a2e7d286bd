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

// The executor updates as soon as it can, so gradients do not wait for the end of the step.
TEST(MemoryOfUpdates, AGradientLivesUntilItsUpdateCanRun) {
  const std::string weight = R"(,"role":"parameter","dtype":"float32","shape":[64,32],"trainable":true})";
  const auto node = [](const std::string& name, const std::string& op, const std::string& args,
                       const std::string& shape) {
    return R"({"name":")" + name + R"(","op":")" + op + R"(","args":)" + args + R"(,"out":[[")" + name +
           R"(","float32",)" + shape + R"(]],"phase":"forward"},)";
  };
  const auto update = [](const std::string& of) {
    return R"({"name":"update/)" + of + R"(","op":"tesser::sgd","args":["%)" + of + R"(","%d)" + of +
           R"(",null,"%learning_rate/0","%step",0.0,0.0,0.0,false,false],"out":[[")" + of +
           R"(.new","float32",[64,32]],null],"phase":"update"})";
  };
  const graph::Program program = parsed(step_text(
      R"({"name":"w")" + weight + R"(,{"name":"v")" + weight +
          R"(,{"name":"x","role":"batch","dtype":"float32","shape":[8,64]})",
      node("y", "aten::mm", R"(["%x","%w"])", "[8,32]") + node("z", "aten::mm", R"(["%x","%v"])", "[8,32]") +
          node("s", "aten::mul.Tensor", R"(["%y","%z"])", "[8,32]") + node("loss", "aten::sum", R"(["%s"])", "[]") +
          node("xt", "aten::t", R"(["%x"])", "[64,8]") + node("dv", "aten::mm", R"(["%xt","%y"])", "[64,32]") +
          node("dw", "aten::mm", R"(["%xt","%z"])", "[64,32]") + update("v") + "," + update("w"),
      R"({"role":"loss","value":"%loss"},{"role":"state","name":"w","value":"%w.new"},)"
      R"({"role":"state","name":"v","value":"%v.new"})"));
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  const WorkerMemory early = worker_memory(program, semantics, replicated_plan(program, {2}));
  // y, z and the loss live beside the first gradient, z and the loss beside the second.
  EXPECT_EQ(early.peak_bytes, early.state_bytes + kWeight + 2 * kActivation + 64);
  // The new weights go to another worker, which the update waits for where it stands.
  Plan others = replicated_plan(program, {2});
  for (const graph::NodeId id : {7, 8}) others.nodes[static_cast<std::size_t>(id)] = {{0, 1}};
  EXPECT_GE(worker_memory(program, semantics, others).peak_bytes, early.state_bytes + 2 * kWeight);
}

TEST_F(Memory, GapsOfTheArenaCount) {
  const Plan plan = batch_plan(program_, semantics_, 3);
  MemoryOptions rough;
  rough.lay_out = false;
  EXPECT_GE(worst(plan).peak_bytes, worker_memory(program_, semantics_, plan, rough).peak_bytes);
}

}  // namespace
}  // namespace tesser::partition
