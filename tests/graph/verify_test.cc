#include "graph/verify.h"

#include <functional>

#include <gtest/gtest.h>

#include "sample_program.h"

namespace tesser::graph {
namespace {

TEST(VerifyTest, AcceptsTheSamples) {
  EXPECT_TRUE(verify(sample("step.json")).has_value());
  EXPECT_TRUE(verify(sample("forward.json")).has_value());
}

// Defects that no text can have, only a pass can make.
TEST(VerifyTest, RefusesBrokenStructure) {
  struct Case {
    std::function<void(Program&)> damage;
    const char* message;
  };
  const Case kCases[] = {
      {[](Program& p) { std::swap(p.inputs[0], p.inputs[1]); },
       "inputs[0]: is value 1, but inputs are the first values, in order"},
      {[](Program& p) { p.inputs.pop_back(); },
       "node t: result 0 is value 2, but results follow the values before them in order"},
      {[](Program& p) { p.values[0].producer = 0; }, "input head.weight: is an input and the result of a node"},
      {[](Program& p) { p.values[0].role = Role::kIntermediate; }, "input head.weight: has no role of an input"},
      {[](Program& p) { p.values[0].role = Role::kOptimizerState; },
       "input head.weight: is optimizer state of no parameter"},
      {[](Program& p) { p.values[1].aliases = {"x"}; },
       "input features: has aliases, which only parameters and buffers have"},
      {[](Program& p) { p.values[1].dtype = static_cast<DType>(77); },
       "input features: dtype number 77 does not exist"},
      {[](Program& p) { p.values[2].role = Role::kBuffer; },
       "node t: result t does not name this node as its producer"},
      {[](Program& p) { p.values[2].producer = 1; }, "node t: result t does not name this node as its producer"},
      {[](Program& p) { p.values[2].output_index = 1; }, "node t: result t does not name this node as its producer"},
      {[](Program& p) {
         p.values[2].shape = {-8, 10};
       },
       "node t: result t: shape [-8, 10] has a negative dimension"},
      {[](Program& p) { p.values[3].name = "t"; }, "the value name t is used twice"},
      {[](Program& p) { p.values[3].name = ""; }, "node mm: the name of result 0 is empty"},
      {[](Program& p) { p.values.push_back(p.values[3]); }, "value mm is defined by no input and no node"},
      {[](Program& p) { p.values.pop_back(); },
       "node mm: result 0 is value 3, but results follow the values before them in order"},
      {[](Program& p) { std::swap(p.nodes[0], p.nodes[1]); },
       "node mm: argument 1 is value 2, which no input or earlier node defines"},
      {[](Program& p) { p.nodes[0].args[0] = ValueRef{2}; },
       "node t: argument 0 is value 2, which no input or earlier node defines"},
      {[](Program& p) { p.nodes[0].args[0] = ValueRef{kNone}; },
       "node t: argument 0 is value -1, which no input or earlier node defines"},
      {[](Program& p) { p.nodes[0].args[0] = ValueRef{1000}; },
       "node t: argument 0 is value 1000, which no input or earlier node defines"},
      {[](Program& p) {
         p.nodes[0].args[0] = std::vector<ValueRef>{{kNone}, {3}};
       },
       "node t: argument 0 holds value 3, which no input or earlier node defines"},
      {[](Program& p) { p.nodes[0].args[0] = std::vector<ValueRef>{}; },
       "node t: argument 0 is an empty list of values; empty lists are lists of integers"},
      {[](Program& p) { p.nodes[0].args[0] = std::vector<double>{}; },
       "node t: argument 0 is an empty list of floats; empty lists are lists of integers"},
      {[](Program& p) { p.nodes[0].args[0] = std::vector<bool>{}; },
       "node t: argument 0 is an empty list of booleans; empty lists are lists of integers"},
      {[](Program& p) { p.nodes[0].args[0] = std::string("%x"); },
       "node t: argument 0 is a string that begins with % or holds a control character"},
      {[](Program& p) {
         p.nodes[0].args[0] = Enumerator{"color", "red"};
       },
       "node t: argument 0 is color red, which does not exist"},
      {[](Program& p) { p.nodes[0].forward = 0; }, "node t: 'forward' is no earlier node"},
      {[](Program& p) { p.nodes[1].forward = -7; }, "node mm: 'forward' is no earlier node"},
      {[](Program& p) { p.nodes[1].name = "t"; }, "the node name t is used twice"},
      {[](Program& p) { p.nodes[1].name = "\n"; }, "nodes[1]: its name holds a control character"},
      {[](Program& p) { p.nodes[1].module = "\n"; }, "node mm: 'module' holds a control character"},
      {[](Program& p) { p.nodes[1].source = "\n"; }, "node mm: 'source' holds a control character"},
      {[](Program& p) { p.nodes[1].timestep = 1; }, "node mm: has only one of 'recurrence' and 'timestep'"},
      {[](Program& p) { p.nodes[1].micro_batch = -2; }, "node mm: 'timestep' or 'micro_batch' is negative"},
      {[](Program& p) { p.nodes[1].op = "aten::"; },
       "node mm: operator aten:: is not of the form aten::NAME[.OVERLOAD] or tesser::NAME[.OVERLOAD]"},
      {[](Program& p) { p.nodes[1].op = "aten::mm "; },
       "node mm: operator aten::mm  is not of the form aten::NAME[.OVERLOAD] or tesser::NAME[.OVERLOAD]"},
      {[](Program& p) { p.nodes[1].outputs[0] = 1; },
       "node mm: result 0 is value 1, but results follow the values before them in order"},
      {[](Program& p) { p.results[0].value = 4; }, "output result logits: names no value"},
      {[](Program& p) { p.results[0].value = kNone; }, "output result logits: names no value"},
      {[](Program& p) { p.results[0].name = "features"; }, "output result features: the name is used twice"},
      {[](Program& p) { p.kind = Kind::kStep; }, "output result logits: only forward programs have results"},
      {[](Program& p) { p.loss = 0; }, "a forward program has outputs of role result only"},
      {[](Program& p) { p.name = "\t"; }, "'name' holds a control character"},
  };
  for (const Case& one : kCases) {
    Program program = sample("forward.json");
    one.damage(program);
    const Result<void> verified = verify(program);
    ASSERT_FALSE(verified.has_value()) << one.message;
    EXPECT_EQ(verified.error().message, one.message);
    EXPECT_EQ(verified.error().code, ErrorCode::kInvalidInput);
  }
}

TEST(VerifyTest, RefusesBrokenStepOutputs) {
  struct Case {
    std::function<void(Program&)> damage;
    const char* message;
  };
  const Case kCases[] = {
      {[](Program& p) { p.loss = 9999; }, "output loss: names no value"},
      {[](Program& p) { p.state_outputs[0].state = kNone; }, "output state: names no state value"},
      {[](Program& p) { p.state_outputs[0].state = p.loss; }, "output state mean: names no state value"},
      {[](Program& p) { p.state_outputs[0].value = 9999; }, "output state conv.weight: names no value"},
      {[](Program& p) { p.metrics[0].name = ""; }, "output metric: its name is empty"},
      {[](Program& p) { p.schedules[0].rate = 1.0 / 0.0; }, "schedules[0]: holds a number that is not finite"},
      {[](Program& p) { p.schedules[0].kind = Schedule::Kind::kEnd; }, "schedules[0]: has no rate for step 0"},
      {[](Program& p) { p.schedules[5].parts.clear(); },
       "schedules[5]: a sequence of 0 parts has 1 milestones, expected one less than parts"},
  };
  for (const Case& one : kCases) {
    Program program = sample("step.json");
    one.damage(program);
    const Result<void> verified = verify(program);
    ASSERT_FALSE(verified.has_value()) << one.message;
    EXPECT_EQ(verified.error().message, one.message);
  }
}

}  // namespace
}  // namespace tesser::graph
