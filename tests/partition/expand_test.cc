#include "partition/expand.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/print.h"
#include "graph/write.h"
#include "step_program.h"

namespace tesser::partition {
namespace {

using testing::ElementsAre;

graph::Program expanded(const graph::Program& program) {
  Result<graph::Program> result = expand(program);
  EXPECT_TRUE(result.has_value()) << (result.has_value() ? "" : result.error().message);
  return std::move(result).value();
}

std::vector<std::string> lines(const graph::Program& program) {
  std::vector<std::string> all;
  for (const graph::Node& node : program.nodes) all.push_back(graph::print_node(program, node));
  return all;
}

constexpr const char* kInputs = R"({"name":"x","role":"batch","dtype":"float32","shape":[4,6]},
{"name":"t","role":"batch","dtype":"int64","shape":[4]})";

TEST(Expand, AMeanIsASumAndADivision) {
  const graph::Program program = expanded(parsed(step_text(
      kInputs,
      R"({"name":"m","op":"aten::mean.dim","args":["%x",[-1],true],"out":[["m","float32",[4,1]]],"phase":"forward","module":"norm","source":"a.py:3"},
{"name":"loss","op":"aten::mean","args":["%m"],"out":[["l","float32",[]]],"phase":"forward"},
{"name":"g","op":"aten::expand","args":["%l",[4,1]],"out":[["g","float32",[4,1]]],"phase":"backward","forward":"m"}
)",
      R"({"role":"loss","value":"%l"})")));
  EXPECT_THAT(lines(program),
              ElementsAre("%m/sum = aten::sum.dim_IntList(%x, [1], true)  float32[4, 1]  # module norm a.py:3",
                          "%m = aten::div.Scalar(%m/sum, 6)  float32[4, 1]  # module norm a.py:3",
                          "%loss/sum = aten::sum.dim_IntList(%m, [0, 1], false)  float32[]",
                          "%l = aten::div.Scalar(%loss/sum, 4)  float32[]",
                          "%g = aten::expand(%l, [4, 1])  float32[4, 1]  # backward of m/sum"));
  EXPECT_EQ(program.node(1).name, "m");
  EXPECT_EQ(program.node(program.nodes.back().forward).name, "m/sum");  // where the sum is
  EXPECT_EQ(program.value(program.loss).name, "l");
}

TEST(Expand, NamesOfTheProgramAreNotTakenAgain) {
  const graph::Program program = expanded(parsed(
      step_text(kInputs,
                R"({"name":"m/sum","op":"aten::relu","args":["%x"],"out":[["m/sum","float32",[4,6]]],"phase":"forward"},
{"name":"m","op":"aten::mean","args":["%m/sum"],"out":[["m","float32",[]]],"phase":"forward"}
)",
                R"({"role":"loss","value":"%m"})")));
  EXPECT_EQ(program.node(1).name, "m/sum_2");
  EXPECT_EQ(program.value(program.node(1).outputs[0]).name, "m/sum_2");
}

TEST(Expand, OnlyPartsOfListsThatAreReadAreTaken) {
  const graph::Program program = expanded(parsed(step_text(
      kInputs,
      R"({"name":"s","op":"aten::split.Tensor","args":["%x",4,-1],"out":[["a","float32",[4,4]],["b","float32",[4,2]]],"phase":"forward"},
{"name":"u","op":"aten::unbind.int","args":["%b",1],"out":[["c","float32",[4]],["d","float32",[4]]],"phase":"forward"},
{"name":"loss","op":"aten::sum","args":["%d"],"out":[["l","float32",[]]],"phase":"forward"},
{"name":"back","op":"aten::relu","args":["%d"],"out":[["e","float32",[4]]],"phase":"backward","forward":"s"}
)",
      R"({"role":"loss","value":"%l"},{"role":"metric","name":"m","value":"%l"})")));
  EXPECT_THAT(lines(program),
              ElementsAre("%b = aten::slice.Tensor(%x, 1, 4, 6, 1)  float32[4, 2]",
                          "%d = aten::select.int(%b, 1, 1)  float32[4]", "%l = aten::sum(%d)  float32[]",
                          "%e = aten::relu(%d)  float32[4]  # backward of s/1"));
}

TEST(Expand, ABackwardNodeOfAListThatNobodyReadsLosesItsForwardNode) {
  const graph::Program program = expanded(parsed(step_text(
      kInputs,
      R"({"name":"s","op":"aten::unbind.int","args":["%x",1],"out":[["a","float32",[4]],["b","float32",[4]],["c","float32",[4]],["d","float32",[4]],["e","float32",[4]],["f","float32",[4]]],"phase":"forward"},
{"name":"loss","op":"aten::sum","args":["%x"],"out":[["l","float32",[]]],"phase":"forward"},
{"name":"back","op":"aten::relu","args":["%x"],"out":[["g","float32",[4,6]]],"phase":"backward","forward":"s"}
)",
      R"({"role":"loss","value":"%l"})")));
  ASSERT_EQ(program.nodes.size(), 2u);
  EXPECT_EQ(program.node(1).forward, graph::kNone);
}

TEST(Expand, AnAveragedLossIsDividedByTheWeightOfAllTargets) {
  const graph::Program program = expanded(parsed(step_text(
      kInputs,
      R"({"name":"nll","op":"aten::nll_loss_forward","args":["%x","%t",null,1,-100],"out":[["l","float32",[]],["w","float32",[]]],"phase":"forward"},
{"name":"one","op":"aten::ones_like","args":["%l"],"out":[["g","float32",[]]],"phase":"backward"},
{"name":"back","op":"aten::nll_loss_backward","args":["%g","%x","%t",null,1,-100,"%w"],"out":[["dx","float32",[4,6]]],"phase":"backward","forward":"nll","micro_batch":2}
)",
      R"({"role":"loss","value":"%l"})")));
  EXPECT_THAT(
      lines(program),
      ElementsAre("%nll/sum, %w = aten::nll_loss_forward(%x, %t, None, 2, -100)  float32[], float32[]",
                  "%l = aten::div.Tensor(%nll/sum, %w)  float32[]", "%g = aten::ones_like(%l)  float32[]  # backward",
                  "%back/share = aten::div.Tensor(%g, %w)  float32[]  # backward of nll/sum micro-batch 2",
                  "%dx = aten::nll_loss_backward(%back/share, %x, %t, None, 2, -100, %w)  float32[4, 6]  # backward of "
                  "nll/sum micro-batch 2"));
}

TEST(Expand, BatchNormalisationBecomesSumsStatisticsAndTheirUse) {
  const graph::Program program = expanded(parsed(step_text(
      R"({"name":"x","role":"batch","dtype":"float32","shape":[4,3,5]},
{"name":"mean","role":"buffer","dtype":"float32","shape":[3],"persistent":true},
{"name":"var","role":"buffer","dtype":"float32","shape":[3],"persistent":true})",
      R"({"name":"bn","op":"aten::_native_batch_norm_legit_functional","args":["%x",null,null,"%mean","%var",true,0.1,1e-05],"out":[["y","float32",[4,3,5]],["m","float32",[3]],["r","float32",[3]],["mean.new","float32",[3]],["var.new","float32",[3]]],"phase":"forward"},
{"name":"loss","op":"aten::sum","args":["%y"],"out":[["l","float32",[]]],"phase":"forward"},
{"name":"back","op":"aten::native_batch_norm_backward","args":["%y","%x",null,"%mean","%var","%m","%r",true,1e-05,[true,false,false]],"out":[["dx","float32",[4,3,5]],null,null],"phase":"backward","forward":"bn"},
{"name":"use","op":"aten::relu","args":["%dx"],"out":[["z","float32",[4,3,5]]],"phase":"backward"}
)",
      R"({"role":"loss","value":"%l"},{"role":"state","name":"mean","value":"%mean.new"},{"role":"state","name":"var","value":"%var.new"})")));
  std::vector<std::string> operators;
  for (const graph::Node& node : program.nodes) operators.push_back(node.name + " " + node.op);
  EXPECT_THAT(operators,
              ElementsAre("bn/sums tesser::batch_norm_sums", "bn/statistics tesser::batch_norm_statistics",
                          "bn tesser::batch_norm_apply", "loss aten::sum", "back/sums tesser::batch_norm_backward_sums",
                          "back tesser::batch_norm_backward_apply", "use aten::relu"));
  EXPECT_EQ(std::get<std::int64_t>(program.node(1).args[4]), 20);
  EXPECT_EQ(program.value(program.state_outputs[0].value).name, "mean.new");
}

TEST(Expand, IsDeterministicAndLeavesWhatIsExpanded) {
  const graph::Program program = layer_step();
  EXPECT_EQ(graph::program_text(expanded(program)), graph::program_text(program));
}

}  // namespace
}  // namespace tesser::partition
