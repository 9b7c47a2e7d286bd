#include "runtime/passes/passes.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "graph/verify.h"
#include "program_text.h"

namespace tesser::runtime {
namespace {

using testing::step_program;

constexpr const char* kInputs = R"({"name":"w","role":"parameter","dtype":"float32","shape":[4,4],"trainable":true},)"
                                R"({"name":"v","role":"parameter","dtype":"float32","shape":[4,4],"trainable":true},)"
                                R"({"name":"x","role":"batch","dtype":"float32","shape":[4,4]},)"
                                R"({"name":"bias","role":"batch","dtype":"float32","shape":[4]},)"
                                R"({"name":"step","role":"step","dtype":"int64","shape":[]},)"
                                R"({"name":"seed","role":"seed","dtype":"int64","shape":[]},)"
                                R"({"name":"lr","role":"learning_rate","dtype":"float64","shape":[],"schedule":0})";

std::string node(const std::string& name, const std::string& op, const std::string& args,
                 const std::string& phase = "forward", const std::string& shape = "[4,4]") {
  return R"({"name":")" + name + R"(","op":")" + op + R"(","args":[)" + args + R"(],"out":[[")" + name +
         R"(","float32",)" + shape + R"(]],"phase":")" + phase + R"("})";
}

std::string update(const std::string& parameter, const std::string& gradient) {
  return R"({"name":"update/)" + parameter + R"(","op":"tesser::sgd","args":["%)" + parameter + R"(","%)" + gradient +
         R"(",null,"%lr","%step",0.0,0.0,0.0,false,false],"out":[[")" + parameter +
         R"(.new","float32",[4,4]],null],"phase":"update"})";
}

std::string outputs() {
  return R"({"role":"loss","value":"%loss"},{"role":"state","name":"w","value":"%w.new"},{"role":"state","name":"v","value":"%v.new"})";
}

std::vector<std::string> names(const graph::Program& program) {
  std::vector<std::string> names;
  for (const auto& each : program.nodes) names.push_back(each.name);
  return names;
}

const graph::Node& find_node(const graph::Program& program, std::string_view name) {
  for (const auto& each : program.nodes) {
    if (each.name == name) return each;
  }
  ADD_FAILURE() << "no node " << name;
  return program.nodes.front();
}

TEST(ScheduleUpdates, RunsAnUpdateAfterItsGradientAndTheLastReader) {
  const auto program = schedule_updates(step_program(
      kInputs,
      node("a", "aten::mm", R"("%x","%w")") + "," + node("loss", "aten::sum", R"("%a")", "forward", "[]") + "," +
          node("gw", "aten::mm", R"("%x","%a")", "backward") + "," +
          node("gv", "aten::mm", R"("%a","%x")", "backward") + "," +
          node("dx", "aten::mm", R"("%gv","%w")", "backward") + "," +
          node("late", "aten::mm", R"("%dx","%dx")", "backward") + "," + update("v", "gv") + "," + update("w", "gw"),
      outputs()));
  EXPECT_EQ(names(program), (std::vector<std::string>{"a", "loss", "gw", "gv", "update/v", "dx", "update/w", "late"}));
  EXPECT_TRUE(graph::verify(program).has_value());
}

// `wt` shares w's memory: an update of w before its reader `dx` would give dx the new weights.
TEST(ScheduleUpdates, WaitsForReadersOfViewsOfTheState) {
  const auto program = schedule_updates(step_program(
      kInputs,
      node("a", "aten::mm", R"("%x","%w")") + "," + node("loss", "aten::sum", R"("%a")", "forward", "[]") + "," +
          node("wt", "aten::t", R"("%w")", "backward") + "," + node("gw", "aten::mm", R"("%x","%a")", "backward") +
          "," + node("dx", "aten::mm", R"("%gw","%wt")", "backward") + "," +
          node("gv", "aten::mm", R"("%dx","%dx")", "backward") + "," + update("w", "gw") + "," + update("v", "gv"),
      outputs()));
  EXPECT_EQ(names(program), (std::vector<std::string>{"a", "loss", "wt", "gw", "dx", "update/w", "gv", "update/v"}));
}

TEST(FuseElementwise, JoinsAChainWithBroadcastNumbersAndKeptIntermediates) {
  const auto program = fuse_elementwise(step_program(
      kInputs,
      node("a", "aten::add.Tensor", R"("%x","%bias")") + "," + node("b", "aten::mul.Tensor", R"("%a",2.0)") + "," +
          node("c", "aten::relu", R"("%b")") + "," + node("d", "aten::mm", R"("%c","%w")") + "," +
          node("e", "aten::mm", R"("%b","%d")") + "," + node("loss", "aten::sum", R"("%e")", "forward", "[]") + "," +
          update("w", "c") + "," + update("v", "d"),
      outputs()));
  const graph::Node& fused = find_node(program, "c/fused");
  EXPECT_EQ(std::get<std::string>(fused.args[0]), "t0 = add(i0, i1, 1); o0 = mul_number(t0, 2); o1 = relu(o0)");
  EXPECT_EQ(fused.outputs.size(), 2u);
  EXPECT_TRUE(graph::verify(program).has_value());
}

// The chain a -> b -> c may not run where c stands, since `between` needs b earlier.
TEST(FuseElementwise, StopsBeforeAReaderInBetween) {
  const auto program = fuse_elementwise(step_program(
      kInputs,
      node("a", "aten::neg", R"("%x")") + "," + node("b", "aten::relu", R"("%a")") + "," +
          node("between", "aten::mm", R"("%b","%w")") + "," + node("c", "aten::add.Tensor", R"("%b","%between")") +
          "," + node("loss", "aten::sum", R"("%c")", "forward", "[]") + "," + update("w", "c") + "," + update("v", "c"),
      outputs()));
  EXPECT_EQ(names(program), (std::vector<std::string>{"b/fused", "between", "c", "loss", "update/w", "update/v"}));
  EXPECT_TRUE(graph::verify(program).has_value());
}

TEST(FuseElementwise, LeavesOtherTypesAndPhasesApart) {
  const auto program = fuse_elementwise(step_program(
      kInputs,
      node("a", "aten::neg", R"("%x")") + "," + node("loss", "aten::sum", R"("%a")", "forward", "[]") + "," +
          node("b", "aten::relu", R"("%a")", "backward") + "," + update("w", "b") + "," + update("v", "a"),
      outputs()));
  EXPECT_EQ(names(program), (std::vector<std::string>{"a", "loss", "b", "update/w", "update/v"}));
}

TEST(AbsorbSums, AProductWithOneReaderIsAddedWhereTheSumStands) {
  const auto program = absorb_sums(step_program(
      kInputs,
      node("a", "aten::mm", R"("%x","%w")") + "," + node("b", "aten::mm", R"("%x","%v")") + "," +
          node("c", "aten::add.Tensor", R"("%b","%a")") + "," + node("d", "aten::add.Tensor", R"("%c","%a",2)") + "," +
          node("loss", "aten::sum", R"("%d")", "forward", "[]") + "," + update("w", "c") + "," + update("v", "d"),
      outputs()));
  EXPECT_EQ(names(program), (std::vector<std::string>{"a", "c", "d", "loss", "update/w", "update/v"}));
  EXPECT_EQ(find_node(program, "c").op, "aten::addmm");
  EXPECT_EQ(find_node(program, "d").op, "aten::add.Tensor");
  EXPECT_TRUE(graph::verify(program).has_value());
}

// Four products with one right operand of 64 x 64 share a packed copy, whatever their rows; three with another do not.
TEST(PackSharedWeights, ManyProductsWithOneOperandShareOneCopy) {
  std::string nodes;
  for (int i = 0; i < 3; ++i) {
    nodes += node("p" + std::to_string(i), "aten::mm", R"("%big","%right")", "forward", "[64,64]") + ",";
    nodes += node("other" + std::to_string(i), "aten::mm", R"("%big","%left")", "forward", "[64,64]") + ",";
  }
  const std::string inputs = std::string(kInputs) +
                             R"(,{"name":"big","role":"batch","dtype":"float32","shape":[64,64]},)" +
                             R"({"name":"left","role":"batch","dtype":"float32","shape":[64,64]},)" +
                             R"({"name":"right","role":"batch","dtype":"float32","shape":[64,64]},)" +
                             R"({"name":"tall","role":"batch","dtype":"float32","shape":[128,64]})";
  const auto program = pack_shared_weights(step_program(
      inputs,
      nodes + node("p3", "aten::mm", R"("%tall","%right")", "forward", "[128,64]") + "," +
          node("loss", "aten::sum", R"("%p0")", "forward", "[]") + "," + update("w", "x") + "," + update("v", "x"),
      outputs()));
  EXPECT_EQ(program.nodes[0].op, "tesser::pack_weight");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(find_node(program, "p" + std::to_string(i)).op, "tesser::packed_product");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(find_node(program, "other" + std::to_string(i)).op, "aten::mm");
  EXPECT_TRUE(graph::verify(program).has_value());
}

// GroupNorm takes rows; both of its readers here get one copy of the transposed view.
TEST(ArrangeArguments, KernelsGetLayoutsThatTheyTake) {
  const std::string group_norm = R"("%turned",null,null,2,4,16,2,1e-05)";
  const std::string inputs =
      std::string(kInputs) + R"(,{"name":"image","role":"batch","dtype":"float32","shape":[2,4,4,4]})";
  const auto program = arrange_arguments(step_program(
      inputs,
      node("turned", "aten::transpose.int", R"("%image",2,3)", "forward", "[2,4,4,4]") + "," +
          node("first", "aten::native_group_norm", group_norm, "forward", "[2,4,4,4]") + "," +
          node("second", "aten::native_group_norm", group_norm, "forward", "[2,4,4,4]") + "," +
          node("sum", "aten::add.Tensor", R"("%turned","%first")", "forward", "[2,4,4,4]") + "," +
          node("loss", "aten::sum", R"("%second")", "forward", "[]") + "," + update("w", "x") + "," + update("v", "x"),
      outputs()));
  EXPECT_EQ(names(program), (std::vector<std::string>{"turned", "turned/arranged", "first", "second", "sum", "loss",
                                                      "update/w", "update/v"}));
  EXPECT_EQ(find_node(program, "turned/arranged").op, "tesser::arrange");
  const auto argument = [&](const std::string& name) {
    return program.value(graph::value_argument(find_node(program, name), 0)).name;
  };
  EXPECT_EQ(argument("first"), "turned/arranged");
  EXPECT_EQ(argument("second"), "turned/arranged");
  EXPECT_EQ(argument("sum"), "turned");
  EXPECT_TRUE(graph::verify(program).has_value());
}

}  // namespace
}  // namespace tesser::runtime
