#include "partition/step_time.h"

#include <gtest/gtest.h>

#include "step_program.h"

namespace tesser::partition {
namespace {

// A megabyte a second, and one byte read or written takes a microsecond.
Topology slow_machines() {
  Topology topology;
  topology.links = {{"", 2, 1e6, 0.001}};
  topology.flops = 1e30;
  topology.memory_bandwidth = 1e6;
  return topology;
}

StepTime time_of(const graph::Program& program, const Plan& plan, const Topology& topology = slow_machines()) {
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  return step_time(program, semantics, plan, topology, plan_traffic(program, semantics, plan));
}

// x[4, 6], of which each worker has half, is needed whole by the last operator; before it stand `count` others.
graph::Program late_reader(int count) {
  std::string nodes;
  std::string last = "c";
  for (int index = 0; index < count; ++index) {
    const std::string name = "y" + std::to_string(index);
    nodes += R"({"name":")" + name + R"(","op":"aten::relu","args":["%)" + last + R"("],"out":[[")" + name +
             R"(","float32",[4,6]]],"phase":"forward"},)";
    last = name;
  }
  return parsed(step_text(
      R"({"name":"x","role":"batch","dtype":"float32","shape":[4,6]},
{"name":"c","role":"batch","dtype":"float32","shape":[4,6]})",
      nodes + R"({"name":"z","op":"aten::add.Tensor","args":["%x","%)" + last +
          R"("],"out":[["z","float32",[4,6]]],"phase":"forward"},
{"name":"sum","op":"aten::sum","args":["%z"],"out":[["loss","float32",[]]],"phase":"forward"})",
      R"({"role":"loss","value":"%loss"})"));
}

constexpr double kElementwise = 2 * 24 * 4 * 1e-6;          // of reading one tensor and writing another
constexpr double kTransfer = 12 * 4 * 1e-6 + 0.001;         // of half a tensor
constexpr double kLast = (3 * 24 * 4 + 24 * 4 + 4) * 1e-6;  // the sum of two tensors, and of its elements

StepTime time_with(int operators_before, const Topology& topology = slow_machines()) {
  const graph::Program program = late_reader(operators_before);
  Plan plan = replicated_plan(program, {2});
  plan.layouts[static_cast<std::size_t>(program.find("x"))][0].axis = 0;
  return time_of(program, plan, topology);
}

TEST(StepTime, TheProcessorsTimeForBytesCountsAsFarAsNoWaitingHidesIt) {
  Topology topology = slow_machines();
  topology.links[0].processor_time = 1e-6;
  EXPECT_NEAR(time_with(0, topology).total(), time_with(0).total(), 1e-12) << "nothing to do but to wait";
  topology.links[0].latency = 0;  // so the tensor is there before it is needed
  Topology free = topology;
  free.links[0].processor_time = 0;
  ASSERT_NEAR(time_with(4, free).receiving, 0, 1e-12);
  EXPECT_NEAR(time_with(4, topology).receiving, 12 * 4 * 1e-6, 1e-12) << "half a tensor";
  EXPECT_NEAR(time_with(4, topology).computing, time_with(4).computing, 1e-12);
}

TEST(StepTime, AnOperandTravelsBesideWhatIsComputedBeforeItsUse) {
  const StepTime at_once = time_with(0);
  EXPECT_NEAR(at_once.receiving, kTransfer, 1e-12);
  EXPECT_NEAR(at_once.computing, kLast, 1e-12);
  const StepTime after_two = time_with(2);
  EXPECT_NEAR(after_two.receiving, kTransfer - 2 * kElementwise, 1e-12);
  EXPECT_NEAR(after_two.computing, kLast + 2 * kElementwise, 1e-12);
  // It is sent no more than four operators ahead.
  const StepTime after_ten = time_with(10);
  EXPECT_NEAR(after_ten.receiving, kTransfer - kPrefetch * kElementwise, 1e-12);
  EXPECT_NEAR(after_ten.computing, kLast + 10 * kElementwise, 1e-12);
}

// Each worker has half of the samples; the loss's two parts are exchanged, waited for, and added.
TEST(StepTime, AResultIsWaitedForWhereItIsMade) {
  const graph::Program program = late_reader(2);
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  Plan plan = replicated_plan(program, {2});
  for (const char* const name : {"x", "c", "y0", "y1", "z"}) {
    plan.layouts[static_cast<std::size_t>(program.find(name))][0].axis = 0;
  }
  for (std::size_t node = 0; node < program.nodes.size(); ++node) {
    plan.nodes[node][0].axis = semantics[node].strategies().front().variable;
  }
  const StepTime time = time_of(program, plan);
  EXPECT_NEAR(time.receiving, 4 * 1e-6 + 0.001, 1e-12);
  constexpr double kAdded = 3 * 4 * 1e-6;  // two parts read, one sum written
  EXPECT_NEAR(time.computing, (kLast + 2 * kElementwise) / 2 + kAdded, 1e-12);
}

TEST(StepTime, OneWorkerReceivesNothing) {
  const graph::Program program = late_reader(1);
  const StepTime time = time_of(program, replicated_plan(program, {}));
  EXPECT_EQ(time.receiving, 0);
  EXPECT_NEAR(time.computing, kLast + kElementwise, 1e-12);
}

}  // namespace
}  // namespace tesser::partition
