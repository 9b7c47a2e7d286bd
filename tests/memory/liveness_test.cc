#include "memory/liveness.h"

#include <gtest/gtest.h>

#include "layout/program_builder.h"

namespace tesser::memory {
namespace {

using graph::kNone;
using graph::Role;
using graph::ValueId;

const Storage& storage(const Liveness& liveness, ValueId id) {
  return liveness.storages[static_cast<std::size_t>(liveness.storage_of[static_cast<std::size_t>(id)])];
}

void expect_storage(const Liveness& liveness, ValueId id, ValueId owner, int first, int last) {
  const Storage& found = storage(liveness, id);
  EXPECT_EQ(found.owner, owner) << "value " << id;
  EXPECT_EQ(found.first_node, first) << "value " << id;
  EXPECT_EQ(found.last_node, last) << "value " << id;
}

TEST(LivenessTest, LastsFromTheNodeToItsLastReader) {
  ProgramBuilder build;
  const ValueId x = build.input(Role::kBatch, {4, 8});
  const ValueId a = build.one("aten::relu", {value(x)}, {4, 8});
  const ValueId b = build.one("aten::relu", {value(a)}, {4, 8});
  const ValueId unread = build.one("aten::neg", {value(b)}, {4, 8});
  const ValueId c = build.one("aten::add.Tensor", {value(a), value(b)}, {4, 8});
  const ValueId d = build.one("aten::cat", {std::vector<graph::ValueRef>{{c}, {kNone}, {c}}}, {8, 8});
  build.program().results = {{"d", d}};
  build.one("aten::neg", {value(x)}, {4, 8});
  const Liveness liveness = analyze_liveness(build.program());
  expect_storage(liveness, x, x, 0, 5);
  EXPECT_TRUE(storage(liveness, x).is_input);
  expect_storage(liveness, a, a, 0, 3);
  expect_storage(liveness, b, b, 1, 3);
  expect_storage(liveness, unread, unread, 2, 2);
  expect_storage(liveness, c, c, 3, 4);
  expect_storage(liveness, d, d, 4, 5);  // an output lasts to the end
  EXPECT_EQ(storage(liveness, d).bytes, 4 * 64);
  EXPECT_FALSE(storage(liveness, d).is_input);
}

TEST(LivenessTest, ViewsKeepTheirSourceAlive) {
  ProgramBuilder build;
  const ValueId x = build.input(Role::kBatch, {4, 8});
  const ValueId a = build.one("aten::relu", {value(x)}, {4, 8});
  const ValueId t = build.one("aten::t", {value(a)}, {8, 4});
  const ValueId row = build.one("aten::select.int", {value(t), integer(0), integer(1)}, {4});
  const ValueId pieces = build.node("aten::split.Tensor", {value(a), integer(2)}, {{2, 8}, {2, 8}})[1];
  const ValueId sum = build.one("aten::sum", {value(row)}, {});
  const ValueId sum2 = build.one("aten::sum", {value(pieces)}, {});
  const ValueId input_view = build.one("aten::view", {value(x), integers({32})}, {32});
  const Liveness liveness = analyze_liveness(build.program());
  for (const ValueId id : {a, t, row, pieces}) {
    expect_storage(liveness, id, a, 0, 5);
  }
  expect_storage(liveness, sum, sum, 4, 4);
  expect_storage(liveness, sum2, sum2, 5, 5);
  EXPECT_TRUE(storage(liveness, input_view).is_input);
}

TEST(LivenessTest, CopiesWhereAViewIsNotPossible) {
  ProgramBuilder build;
  const ValueId x = build.input(Role::kBatch, {4, 8});
  const ValueId t = build.one("aten::t", {value(x)}, {8, 4});
  const ValueId flat = build.one("aten::view", {value(t), integers({32})}, {32});
  const ValueId same = build.one("aten::view", {value(t), integers({8, 2, 2})}, {8, 2, 2});
  const ValueId contiguous = build.one("aten::contiguous", {value(t)}, {8, 4});
  const ValueId already = build.one("aten::contiguous", {value(x)}, {4, 8});
  const Liveness liveness = analyze_liveness(build.program());
  EXPECT_EQ(storage(liveness, flat).owner, flat);
  EXPECT_EQ(storage(liveness, same).owner, x);
  EXPECT_EQ(storage(liveness, contiguous).owner, contiguous);
  EXPECT_EQ(storage(liveness, already).owner, x);
}

TEST(LivenessTest, UpdatesLieInTheirState) {
  ProgramBuilder build;
  const ValueId w = build.input(Role::kParameter, {8});
  const ValueId momentum = build.input(Role::kOptimizerState, {8});
  const ValueId exp_avg = build.input(Role::kOptimizerState, {8});
  const ValueId exp_avg_sq = build.input(Role::kOptimizerState, {8});
  const ValueId largest = build.input(Role::kOptimizerState, {8});
  const ValueId running = build.input(Role::kBuffer, {8});
  const ValueId g = build.one("aten::neg", {value(w)}, {8});
  const auto sgd = build.node("tesser::sgd", {value(w), value(g), value(momentum)}, {{8}, {8}});
  const auto adam = build.node("tesser::adam", {value(w), value(g), value(exp_avg), value(exp_avg_sq), value(largest)},
                               {{8}, {8}, {8}, {8}});
  const ValueId mean = build.one("aten::mul.Tensor", {value(running), value(running)}, {8});
  build.one("aten::neg", {value(w)}, {8});
  build.program().state_outputs = {{w, sgd[0]}, {running, mean}};
  const Liveness liveness = analyze_liveness(build.program());
  EXPECT_EQ(storage(liveness, sgd[0]).owner, w);
  EXPECT_EQ(storage(liveness, sgd[1]).owner, momentum);
  EXPECT_EQ(storage(liveness, adam[0]).owner, w);
  EXPECT_EQ(storage(liveness, adam[1]).owner, exp_avg);
  EXPECT_EQ(storage(liveness, adam[2]).owner, exp_avg_sq);
  EXPECT_EQ(storage(liveness, adam[3]).owner, largest);
  expect_storage(liveness, g, g, 0, 2);
  expect_storage(liveness, mean, mean, 3, 4);  // copied into its buffer after the last node
}

TEST(LivenessTest, UpdatesWithoutStateMakeNone) {
  ProgramBuilder build;
  const ValueId w = build.input(Role::kParameter, {8});
  build.program().nodes.emplace_back();
  const auto sgd = build.node("tesser::sgd", {value(w), value(w), graph::None{}}, {{8}});
  build.program().nodes.back().outputs.push_back(kNone);
  EXPECT_EQ(storage(analyze_liveness(build.program()), sgd[0]).owner, w);
}

TEST(LivenessTest, LeavesOutValuesThatAPassRemoved) {
  ProgramBuilder build;
  const ValueId x = build.input(Role::kBatch, {4});
  const ValueId a = build.one("aten::relu", {value(x)}, {4});
  const ValueId b = build.one("aten::neg", {value(a)}, {4});
  auto& nodes = build.program().nodes;
  nodes[1].args[0] = value(x);
  nodes.erase(nodes.begin());
  const Liveness liveness = analyze_liveness(build.program());
  EXPECT_EQ(liveness.storage_of[static_cast<std::size_t>(a)], kNone);
  expect_storage(liveness, b, b, 0, 0);
}

}  // namespace
}  // namespace tesser::memory
