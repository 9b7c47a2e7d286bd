#include "lowering/lower.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "graph/print.h"
#include "layout/strides.h"
#include "partition/step_program.h"

namespace tesser::lowering {
namespace {

using graph::Node;
using graph::Program;
using partition::Plan;
using testing::ElementsAre;

using Integers = std::vector<std::int64_t>;

Lowered lowered(const Program& program, const Plan& plan, int prefetch = 4) {
  LoweringOptions options;
  options.prefetch = prefetch;
  Result<Lowered> result = lower(program, partition::semantics_of(program), tdl::Catalogue::shipped(), plan, options);
  EXPECT_TRUE(result.has_value()) << (result.has_value() ? "" : result.error().message);
  return std::move(result).value();
}

Lowered lowered_layer(int workers) {
  const Program program = partition::layer_step();
  return lowered(program, partition::batch_plan(program, partition::semantics_of(program), workers));
}

// Which node is called so; fails the test when none is.
std::size_t place_of(const Program& program, std::string_view name) {
  for (std::size_t index = 0; index < program.nodes.size(); ++index) {
    if (program.nodes[index].name == name) return index;
  }
  ADD_FAILURE() << "no node " << name << " in\n" << graph::print(program);
  return 0;
}

const Node& node_of(const Program& program, std::string_view name) { return program.nodes[place_of(program, name)]; }

std::int64_t count(const Program& program, const std::string& op) {
  return std::count_if(program.nodes.begin(), program.nodes.end(), [&](const Node& node) { return node.op == op; });
}

std::vector<std::string> operands(const Program& program, const Node& node) {
  std::vector<std::string> names;
  for (const graph::ValueId id : graph::values_read(node)) names.push_back(program.value(id).name);
  return names;
}

Plan with_rows_cut(const Program& program, const std::string& value, int parts) {
  Plan plan = partition::replicated_plan(program, {parts});
  plan.layouts[static_cast<std::size_t>(program.find(value))][0].axis = 0;
  return plan;
}

TEST(Lower, AWorkersProgramIsAsTheGoldenFiles) {
  const Lowered two = lowered_layer(2);
  ASSERT_EQ(two.workers.size(), 2u);
  for (int worker = 0; worker < 2; ++worker) {
    const std::string file = TESSER_SOURCE_DIR "/tests/lowering/golden/layer-" + std::to_string(worker) + ".txt";
    EXPECT_EQ(graph::print(two.workers[static_cast<std::size_t>(worker)]), read_file(file).value_or("no " + file));
  }
  // Each worker gives the other its part of dw[64,32] and of the loss.
  EXPECT_EQ(two.transfers, 4);
  EXPECT_EQ(two.bytes, 2 * (64 * 32 + 1) * 4);
}

TEST(Lower, OneWorkerHasTheWholeProgram) {
  Program program = partition::layer_step();
  const Lowered one = lowered(program, partition::replicated_plan(program, {}));
  for (Node& node : program.nodes) node.forward = graph::kNone;  // links that workers' programs do not have
  ASSERT_EQ(one.workers.size(), 1u);
  EXPECT_EQ(one.transfers, 0);
  ASSERT_EQ(one.workers[0].nodes.size(), program.nodes.size());
  for (std::size_t index = 0; index < program.nodes.size(); ++index) {
    EXPECT_EQ(graph::print_node(one.workers[0], one.workers[0].nodes[index]),
              graph::print_node(program, program.nodes[index]));
  }
}

TEST(Lower, PartsAreAddedInOneOrderOnEveryWorker) {
  const Lowered four = lowered_layer(4);
  for (std::size_t worker = 0; worker < 4; ++worker) {
    std::vector<std::string> parts;
    for (std::size_t part = 0; part < 4; ++part) {
      parts.push_back(part == worker ? "loss/part" : "loss/part " + std::to_string(part));
    }
    const Program& program = four.workers[worker];
    EXPECT_EQ(operands(program, node_of(program, "reduce loss")), parts);
    EXPECT_EQ(std::get<std::string>(node_of(program, "reduce loss").args[1]), "sum");
  }
}

// As layer_step() for one gradient: x[8,128], dy[8,64], dw[128,64] replicated.
Program large_gradient() {
  return partition::parsed(partition::step_text(
      R"({"name":"x","role":"batch","dtype":"float32","shape":[8,128]},
{"name":"dy","role":"batch","dtype":"float32","shape":[8,64]})",
      R"({"name":"t","op":"aten::t","args":["%x"],"out":[["xt","float32",[128,8]]],"phase":"forward"},
{"name":"mm","op":"aten::mm","args":["%xt","%dy"],"out":[["dw","float32",[128,64]]],"phase":"forward"},
{"name":"loss","op":"aten::sum","args":["%dw"],"out":[["loss","float32",[]]],"phase":"forward"}
)",
      R"({"role":"loss","value":"%loss"})"));
}

TEST(Lower, TransposedViewsTravelAsTheyLie) {
  const Program program = large_gradient();
  const std::vector<tdl::NodeSemantics> semantics = partition::semantics_of(program);
  for (const bool view_is_cut : {true, false}) {  // the view's parts are moved, or those of what it shows
    Plan plan = partition::replicated_plan(program, {2});
    plan.layouts[static_cast<std::size_t>(program.find("x"))][0].axis = 0;
    for (const tdl::Strategy& strategy : semantics[0].strategies()) {
      if (view_is_cut && semantics[0].variables()[static_cast<std::size_t>(strategy.variable)].extent == 8) {
        plan.nodes[0][0].axis = strategy.variable;
      }
    }
    for (const Program& worker : lowered(program, plan).workers) {
      const auto is = [&](const std::string& op) {
        return std::find_if(worker.nodes.begin(), worker.nodes.end(), [&](const Node& node) { return node.op == op; });
      };
      ASSERT_NE(is("tesser::send"), worker.nodes.end());
      ASSERT_NE(is("tesser::open"), worker.nodes.end());
      const layout::Order order = view_is_cut ? layout::Order{1, 0} : layout::Order();
      EXPECT_EQ(std::get<layout::Order>(is("tesser::send")->args[5]), order);
      EXPECT_EQ(std::get<layout::Order>(is("tesser::open")->args[4]), order);
    }
  }
}

TEST(Lower, OwnersOfALargeSumAddAShareEach) {
  const Program program = large_gradient();
  const std::vector<tdl::NodeSemantics> semantics = partition::semantics_of(program);
  Plan plan = partition::replicated_plan(program, {4});
  for (const auto& [value, axis] : {std::pair("x", 0), {"dy", 0}, {"xt", 1}}) {
    plan.layouts[static_cast<std::size_t>(program.find(value))][0].axis = axis;
  }
  for (std::size_t node = 0; node < 2; ++node) {
    for (const tdl::Strategy& strategy : semantics[node].strategies()) {
      if (semantics[node].variables()[static_cast<std::size_t>(strategy.variable)].extent == 8) {
        plan.nodes[node][0].axis = strategy.variable;
      }
    }
  }
  const Lowered four = lowered(program, plan);
  for (const Program& worker : four.workers) {
    const Node& reduce = node_of(worker, "reduce dw/share");
    EXPECT_EQ(worker.value(reduce.outputs[0]).shape, (Shape{32, 64}));
    EXPECT_EQ(operands(worker, reduce).size(), 4u);
    EXPECT_EQ(worker.value(node_of(worker, "receive dw").outputs[0]).shape, (Shape{128, 64}));
  }
  // Three shares in, for the sum, and three out: not three times the whole of it.
  EXPECT_EQ(four.bytes, 4 * (3 + 3) * 32 * 64 * 4);
}

// x[8,4] is read by three operators; the last one belongs to the backward pass.
Program readers() {
  return partition::parsed(partition::step_text(
      R"({"name":"x","role":"batch","dtype":"float32","shape":[8,4]})",
      R"({"name":"a","op":"aten::relu","args":["%x"],"out":[["a","float32",[8,4]]],"phase":"forward"},
{"name":"b","op":"aten::neg","args":["%x"],"out":[["b","float32",[8,4]]],"phase":"forward"},
{"name":"c","op":"aten::mul.Tensor","args":["%a","%b"],"out":[["c","float32",[8,4]]],"phase":"forward"},
{"name":"loss","op":"aten::sum","args":["%c"],"out":[["loss","float32",[]]],"phase":"forward"},
{"name":"d","op":"aten::mul.Tensor","args":["%x","%c"],"out":[["d","float32",[8,4]]],"phase":"backward"},
{"name":"e","op":"aten::sum","args":["%d"],"out":[["e","float32",[]]],"phase":"backward"}
)",
      R"({"role":"loss","value":"%loss"},{"role":"metric","name":"e","value":"%e"})"));
}

// Where every worker computes all of b but owns nothing, or half, of it.
TEST(Lower, WhatNothingOnAWorkerReadsIsNotComputedThere) {
  const Program program = readers();
  Plan plan = partition::replicated_plan(program, {2});
  const auto of = [&](const char* value) { return static_cast<std::size_t>(program.find(value)); };
  plan.layouts[of("b")][0] = {0, 8};  // all of it on worker 0
  plan.nodes[2][0].axis = 0;
  plan.nodes[2][0].granularity = 8;  // c is computed on worker 0 alone, and sent
  const Lowered two = lowered(program, plan);
  EXPECT_EQ(count(two.workers[0], "aten::neg"), 1);
  EXPECT_EQ(count(two.workers[1], "aten::neg"), 0);
  EXPECT_EQ(count(two.workers[1], "aten::relu"), 0) << "a is read by c alone";
  EXPECT_EQ(count(two.workers[1], "tesser::receive"), 1);
}

TEST(Lower, ARegionIsFetchedOnceAPhase) {
  const Program program = readers();
  const Lowered two = lowered(program, with_rows_cut(program, "x", 2));
  EXPECT_EQ(two.transfers, 2 * 2);
  EXPECT_EQ(two.bytes, two.transfers * 4 * 4 * 4);
  for (const Program& worker : two.workers) {
    const std::string fetched = "x/at 0:8,0:4";
    EXPECT_THAT(operands(worker, node_of(worker, "a")), ElementsAre(fetched));
    EXPECT_THAT(operands(worker, node_of(worker, "b")), ElementsAre(fetched));
    EXPECT_EQ(operands(worker, node_of(worker, "d"))[0], fetched + "#2");
    // What the worker has of it is copied, not sent.
    EXPECT_THAT(operands(worker, node_of(worker, "receive " + fetched)), ElementsAre(fetched + "/open", "x"));
  }
}

TEST(Lower, ArgumentsAreSentAheadOfTheirUse) {
  const Program program = readers();
  Plan plan = with_rows_cut(program, "c", 2);
  plan.layouts[static_cast<std::size_t>(program.find("x"))][0].axis = 0;
  const auto distance = [&](int prefetch) {
    const Program worker = lowered(program, plan, prefetch).workers[0];
    return place_of(worker, "d") - place_of(worker, "send x/at 0:8,0:4 to 1#2");
  };
  EXPECT_LT(distance(0), distance(2));
  EXPECT_LT(distance(2), distance(4));
  EXPECT_EQ(distance(4), distance(100));  // not before there is something to send
}

// Halves of x lie at rest by the first digit of a worker's number and are taken by the second: of the two workers that
// compute a half one has it, as it lies, and the other one receives it.
TEST(Lower, WhatSomeReceiveLiesAlikeForThoseThatHaveIt) {
  const Program program = partition::parsed(partition::step_text(
      R"({"name":"x","role":"batch","dtype":"float32","shape":[6,4,16]})",
      R"({"name":"relu","op":"aten::relu","args":["%x"],"out":[["z","float32",[6,4,16]]],"phase":"forward"},
{"name":"loss","op":"aten::sum","args":["%z"],"out":[["loss","float32",[]]],"phase":"forward"}
)",
      R"({"role":"loss","value":"%loss"})"));
  const std::vector<tdl::NodeSemantics> semantics = partition::semantics_of(program);
  Plan plan = partition::replicated_plan(program, {2, 2});
  plan.layouts[static_cast<std::size_t>(program.find("x"))][0].axis = 1;
  for (const tdl::Strategy& strategy : semantics[0].strategies()) {
    if (semantics[0].variables()[static_cast<std::size_t>(strategy.variable)].extent == 4) {
      plan.nodes[0][1].axis = strategy.variable;
    }
  }
  const Lowered four = lowered(program, plan);
  std::vector<std::string> operand;
  for (const Program& worker : four.workers) operand.push_back(operands(worker, node_of(worker, "relu")).at(0));
  EXPECT_THAT(operand, ElementsAre("x/arranged", "x/at 0:6,2:4,0:16", "x/at 0:6,0:2,0:16", "x/arranged"));
}

TEST(Lower, AWorkerWithoutAPartHasNoneOfItsNodes) {
  const Lowered many = lowered_layer(10);  // of 8 samples
  const Program& last = many.workers[9];
  EXPECT_EQ(last.find("x"), graph::kNone);
  EXPECT_NE(last.find("w"), graph::kNone);
  EXPECT_EQ(count(last, "aten::mm"), 0);
  EXPECT_EQ(operands(last, node_of(last, "reduce dw/share")).size(), 8u);
  EXPECT_EQ(count(last, "tesser::send"), 9);  // its share of that sum, to all others
  EXPECT_NE(last.loss, graph::kNone);         // every worker reports it
}

TEST(Lower, InputsSayWhichPartTheyAre) {
  const Lowered four = lowered_layer(4);
  const graph::Value& x = four.workers[3].value(four.workers[3].find("x"));
  EXPECT_EQ(x.shape, (Shape{2, 64}));
  EXPECT_EQ(x.region_begin, (Shape{6, 0}));
  EXPECT_EQ(x.whole_shape, (Shape{8, 64}));
  EXPECT_TRUE(four.workers[3].value(four.workers[3].find("w")).whole_shape.empty());
}

}  // namespace
}  // namespace tesser::lowering
