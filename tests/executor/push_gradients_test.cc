#include "runtime/passes/push_gradients.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program_text.h"
#include "runtime/passes/passes.h"

namespace tesser::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::step_program;

constexpr const char* kInputs = R"({"name":"w","role":"parameter","dtype":"float32","shape":[4,4],"trainable":true},)"
                                R"({"name":"v","role":"parameter","dtype":"float32","shape":[4,4],"trainable":true},)"
                                R"({"name":"x","role":"batch","dtype":"float32","shape":[4,4]},)"
                                R"({"name":"step","role":"step","dtype":"int64","shape":[]},)"
                                R"({"name":"lr","role":"learning_rate","dtype":"float64","shape":[],"schedule":0})";

std::string node(const std::string& name, const std::string& op, const std::string& args, const std::string& phase,
                 const std::string& shape = "[4,4]") {
  return R"({"name":")" + name + R"(","op":")" + op + R"(","args":[)" + args + R"(],"out":[[")" + name +
         R"(","float32",)" + shape + R"(]],"phase":")" + phase + R"("},)";
}

std::string update(const std::string& parameter, const std::string& gradient, const std::string& decay = "0.0") {
  return R"({"name":"update/)" + parameter + R"(","op":"tesser::sgd","args":["%)" + parameter + R"(","%)" + gradient +
         R"(",null,"%lr","%step",0.0,0.0,)" + decay + R"(,false,false],"out":[[")" + parameter +
         R"(.new","float32",[4,4]],null],"phase":"update"})";
}

constexpr const char* kOutputs =
    R"({"role":"loss","value":"%loss"},{"role":"state","name":"w","value":"%w.new"},{"role":"state","name":"v","value":"%v.new"})";

// The gradient of w is there before the last reader of w.
std::string passes_of_a_step() {
  return node("a", "aten::mm", R"("%x","%w")", "forward") + node("b", "aten::mm", R"("%a","%v")", "forward") +
         node("loss", "aten::sum", R"("%b")", "forward", "[]") + node("gw", "aten::mm", R"("%x","%a")", "backward") +
         node("dx", "aten::mm", R"("%gw","%w")", "backward") + node("gv", "aten::mm", R"("%dx","%x")", "backward");
}

// As capture writes it; `norms` are those of which the norm is made, `gw` the gradient of w.
std::string clipping(const std::string& norms, const std::string& limit = "0.25", const std::string& most = "1.0",
                     const std::string& gw = "gw") {
  return node("nw", "aten::linalg_vector_norm", "\"%" + gw + R"(",2.0)", "clip", "[]") +
         node("nv", "aten::linalg_vector_norm", R"("%gv",2.0)", "clip", "[]") +
         node("norms", "aten::stack", "[" + norms + "]", "clip", "[2]") +
         node("norm", "aten::linalg_vector_norm", R"("%norms",2.0)", "clip", "[]") +
         node("sum", "aten::add.Scalar", R"("%norm",1e-06)", "clip", "[]") +
         node("inverse", "aten::reciprocal", R"("%sum")", "clip", "[]") +
         node("ratio", "aten::mul.Scalar", R"("%inverse",)" + limit, "clip", "[]") +
         node("factor", "aten::clamp", R"("%ratio",null,)" + most, "clip", "[]") +
         node("cw", "aten::mul.Tensor", "\"%" + gw + R"(","%factor")", "clip") +
         node("cv", "aten::mul.Tensor", R"("%gv","%factor")", "clip");
}

std::vector<std::string> names(const graph::Program& program) {
  std::vector<std::string> found;
  for (const graph::Node& node : program.nodes) found.push_back(node.name);
  return found;
}

TEST(PushGradients, WeightsAreWaitedForBeforeTheyAreReadAndPushedAfter) {
  graph::Program program =
      step_program(kInputs, passes_of_a_step() + update("v", "gv") + "," + update("w", "gw", "0.5"), kOutputs);
  const Result<Updates> updates = find_updates(program);
  ASSERT_TRUE(updates.has_value()) << updates.error().message;
  ASSERT_EQ(updates->parameters.size(), 2U);
  EXPECT_EQ(program.value(updates->parameters[0].parameter).name, "w");
  EXPECT_EQ(updates->rules[updates->parameters[0].rule].weight_decay, 0.5);
  EXPECT_EQ(updates->rules[updates->parameters[1].rule].weight_decay, 0.0);

  const graph::Program pushed = push_gradients(schedule_updates(program), *updates);
  EXPECT_THAT(names(pushed), ElementsAre("w/wait", "a", "v/wait", "b", "loss", "gw", "dx", "w/push", "gv", "v/push"));
  EXPECT_TRUE(pushed.state_outputs.empty());
  EXPECT_EQ(std::get<std::int64_t>(pushed.nodes.back().args[2]), 1) << "the number of v";
}

// The gradient may lie where the hub reads it, and so must not be made before the hub has done with the last one.
TEST(PushGradients, AWeightIsWaitedForBeforeTheMemoryOfItsGradientIsMade) {
  graph::Program program = step_program(
      kInputs,
      node("g", "aten::mm", R"("%x","%x")", "forward") + node("gt", "aten::t", R"("%g")", "forward") +
          node("a", "aten::mm", R"("%g","%w")", "forward") + node("b", "aten::mm", R"("%a","%v")", "forward") +
          node("loss", "aten::sum", R"("%b")", "forward", "[]") + update("v", "gt") + "," + update("w", "g"),
      kOutputs);
  const Result<Updates> updates = find_updates(program);
  ASSERT_TRUE(updates.has_value()) << updates.error().message;
  const graph::Program pushed = push_gradients(schedule_updates(program), *updates);
  EXPECT_THAT(names(pushed), ElementsAre("w/wait", "v/wait", "g", "gt", "a", "w/push", "b", "v/push", "loss"));
  const std::vector<graph::ValueId> owners = gradient_storages(pushed, memory::analyze_liveness(pushed));
  ASSERT_EQ(owners.size(), 1U) << "one memory that two parameters share";
  EXPECT_EQ(pushed.value(owners[0]).name, "g");
}

TEST(PushGradients, TakesClippingByTheNormOfAllGradientsOut) {
  const std::string updated = update("v", "cv") + "," + update("w", "cw");
  graph::Program program = step_program(kInputs, passes_of_a_step() + clipping(R"("%nw","%nv")") + updated, kOutputs);
  const Result<double> limit = take_clipping(program);
  ASSERT_TRUE(limit.has_value()) << limit.error().message;
  EXPECT_EQ(*limit, 0.25);
  EXPECT_THAT(names(program), ElementsAre("a", "b", "loss", "gw", "dx", "gv", "update/v", "update/w"));
  EXPECT_EQ(program.value(graph::value_argument(program.nodes.back(), 1)).name, "gw");
}

TEST(PushGradients, RefusesOtherClipping) {
  const std::string updated = update("v", "cv") + "," + update("w", "cw");
  const std::string unclipped = update("v", "gv") + "," + update("w", "cw");
  for (const std::string& rest :
       {clipping(R"("%nw","%nw")") + updated, clipping(R"("%nw","%nv")", "0.25", "2.0") + updated,
        clipping(R"("%nw","%nv")") + unclipped}) {
    graph::Program program = step_program(kInputs, passes_of_a_step() + rest, kOutputs);
    const Result<double> limit = take_clipping(program);
    ASSERT_FALSE(limit.has_value()) << rest;
    EXPECT_THAT(limit.error().message, HasSubstr("clips gradients by the 2-norm of all of them"));
  }
}

TEST(PushGradients, RefusesClippingByValueBeforeThatByTheNorm) {
  const std::string by_value = node("bw", "aten::clamp", R"("%gw",-0.1,0.1)", "clip");
  const std::string by_norm = clipping(R"("%nw","%nv")", "0.25", "1.0", "bw");
  const std::string updated = update("v", "cv") + "," + update("w", "cw");
  graph::Program program = step_program(kInputs, passes_of_a_step() + by_value + by_norm + updated, kOutputs);
  const Result<double> limit = take_clipping(program);
  ASSERT_FALSE(limit.has_value());
  EXPECT_THAT(limit.error().message, HasSubstr("clips gradients by the 2-norm of all of them"));
}

TEST(PushGradients, RefusesUpdatesOfWhatIsNotTheWorkersState) {
  graph::Program program = step_program(
      kInputs,
      passes_of_a_step() + node("part", "aten::clone", R"("%w")", "update") + update("v", "gv") + "," +
          R"({"name":"update/w","op":"tesser::sgd","args":["%part","%gw",null,"%lr","%step",0.0,0.0,0.0,false,false],)"
          R"("out":[["w.new","float32",[4,4]],null],"phase":"update"})",
      kOutputs);
  EXPECT_THAT(find_updates(program).error().message, HasSubstr("workers update parts of 'part' for one another"));
}

}  // namespace
}  // namespace tesser::runtime
