#include "partition/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partition/updates_at_rest.h"
#include "step_program.h"

namespace tesser::partition {
namespace {

using testing::ElementsAre;

TEST(Plan, WorkersAreNumberedByTheDigitsOfTheirGroups) {
  const std::vector<Level> levels = {{2, ""}, {3, ""}};
  EXPECT_THAT(worker_digits(levels, 0), ElementsAre(0, 0));
  EXPECT_THAT(worker_digits(levels, 2), ElementsAre(0, 2));
  EXPECT_THAT(worker_digits(levels, 3), ElementsAre(1, 0));
  EXPECT_THAT(worker_digits(levels, 5), ElementsAre(1, 2));
  EXPECT_TRUE(worker_digits({}, 0).empty());
}

TEST(Plan, LevelsCutWhatThoseBeforeLeft) {
  const graph::Program program = layer_step();
  Plan plan = replicated_plan(program, {2, 3});
  const graph::ValueId w = program.find("w");
  plan.layouts[static_cast<std::size_t>(w)] = {{0, 1}, {0, 1}};  // 64 rows: 32 and 32, then 11, 11 and 10
  EXPECT_EQ(plan.workers(), 6);
  const auto region = [&](std::int64_t worker) {
    return tdl::region_text(owned_region(plan, program, w, worker_digits(plan.levels, worker)));
  };
  EXPECT_EQ(region(0), "[0:11, 0:32]");
  EXPECT_EQ(region(2), "[22:32, 0:32]");
  EXPECT_EQ(region(3), "[32:43, 0:32]");
  plan.layouts[static_cast<std::size_t>(w)] = {{1, 24}, {0, 1}};  // blocks of 24 columns: 24 and 8
  EXPECT_EQ(region(1), "[22:43, 0:24]");
  EXPECT_EQ(region(4), "[22:43, 24:32]");
  plan.layouts[static_cast<std::size_t>(w)] = {{1, 32}, {}};  // one block
  EXPECT_EQ(region(0), "[0:64, 0:32]");
  EXPECT_EQ(tdl::volume(owned_region(plan, program, w, {1, 0})), 0);
}

TEST(Plan, ABoxIsCutByTheNodesVariables) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  Plan plan = replicated_plan(program, {4});
  const int inner = variable(semantics[0], "k");
  plan.nodes[0][0].axis = inner;
  const tdl::Box box = worker_box(plan, 0, semantics[0], {1});
  for (std::size_t index = 0; index < box.size(); ++index) {
    const tdl::Interval whole = semantics[0].whole_box()[index];
    EXPECT_EQ(box[index], static_cast<int>(index) == inner ? (tdl::Interval{16, 32}) : whole);
  }
}

TEST(Plan, UpdatesAreMadeWhereParametersLie) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  Plan plan = replicated_plan(program, {2, 2});
  const auto w = static_cast<std::size_t>(program.find("w"));
  const auto next = static_cast<std::size_t>(program.find("w.new"));
  const std::size_t update = program.nodes.size() - 1;
  plan.layouts[w] = {{0, 16}, {}};
  plan.layouts[next] = {{1, 1}, {1, 1}};
  plan.nodes[update] = {{1, 1}, {0, 1}};
  const Plan before = plan;
  update_where_parameters_lie(plan, program);
  EXPECT_EQ(plan.layouts[next], plan.layouts[w]);
  EXPECT_EQ(plan.nodes[update], plan.layouts[w]);
  const std::vector<int> digits = {1, 0};
  EXPECT_EQ(tdl::region_text(owned_region(plan, program, program.find("w"), digits)),
            tdl::region_text(worker_box(plan, static_cast<graph::NodeId>(update), semantics[update], digits)));
  for (std::size_t node = 0; node < update; ++node) EXPECT_EQ(plan.nodes[node], before.nodes[node]);
}

}  // namespace
}  // namespace tesser::partition
