#include "partition/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "step_program.h"

namespace tesser::partition {
namespace {

using testing::HasSubstr;

TEST(Summary, LayoutsInWords) {
  const std::vector<Level> levels = {{2, ""}, {3, ""}};
  EXPECT_EQ(layout_text({{0, 1}, {1, 1}}, levels, 2), "rows / 2, columns / 3");
  EXPECT_EQ(layout_text({{0, 1}, {0, 1}}, levels, 2), "rows / 6");
  EXPECT_EQ(layout_text({{1, 1}, {}}, levels, 3), "dim 1 of 3 / 2, 3 copies");
  EXPECT_EQ(layout_text({{0, 16}, {}}, levels, 1), "elements / 2 in blocks of 16, 3 copies");
  EXPECT_EQ(layout_text({{}, {}}, levels, 2), "whole on every worker");
  EXPECT_EQ(layout_text({}, {}, 2), "whole");
}

TEST(Summary, NumbersInNamesAreStars) {
  EXPECT_EQ(pattern("blocks.12.fc1.weight"), "blocks.*.fc1.weight");
  EXPECT_EQ(pattern("0.weight/1"), "*.weight/*");
  EXPECT_EQ(pattern("conv1"), "conv1");
  EXPECT_EQ(pattern(""), "");
}

class SummaryOfAPlan : public testing::Test {
 protected:
  graph::Program program_ = layer_step();
  std::vector<tdl::NodeSemantics> semantics_ = semantics_of(program_);
  Plan plan_ = batch_plan(program_, semantics_, 4);
};

TEST_F(SummaryOfAPlan, TheGradientIsReducedOverTheBatch) {
  const PlanCost cost = plan_cost(program_, semantics_, plan_, {});
  const std::vector<TransferRow> transfers = transfer_rows(program_, semantics_, plan_, cost.traffic);
  ASSERT_FALSE(transfers.empty());
  EXPECT_THAT(transfers[0].what, HasSubstr("all-reduce of the gradient of w (whole on every worker): its parts are "
                                           "summed over dimension 1 of "));
  std::int64_t total = 0;
  for (const TransferRow& row : transfers) total += row.bytes;
  EXPECT_EQ(total, cost.traffic.total);
}

TEST_F(SummaryOfAPlan, RowsHoldWhatMoves) {
  const PlanCost cost = plan_cost(program_, semantics_, plan_, {});
  std::int64_t by_module = 0;
  for (const ModuleRow& row : module_rows(program_, plan_, cost.traffic)) {
    by_module += row.forward_bytes + row.backward_bytes + row.other_bytes;
  }
  EXPECT_EQ(by_module, cost.traffic.total);
  std::int64_t by_operator = 0;
  std::int64_t nodes = 0;
  for (const OperatorRow& row : operator_rows(program_, semantics_, plan_, cost.traffic)) {
    by_operator += row.bytes;
    nodes += row.nodes;
  }
  EXPECT_EQ(by_operator, cost.traffic.total);
  EXPECT_EQ(nodes, static_cast<std::int64_t>(program_.nodes.size()));
  const std::vector<TensorRow> tensors = parameter_rows(program_, plan_);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].layout, "whole on every worker");
  EXPECT_EQ(tensors[1].layout, "rows / 4");
  EXPECT_EQ(tensors[1].worker_bytes, 2 * 64 * 4);
}

TEST_F(SummaryOfAPlan, TimeFallsWithTheWorkersShareAndRisesWithWhatTheyReceive) {
  const PlanCost whole = plan_cost(program_, semantics_, replicated_plan(program_, {4}), {});
  const PlanCost cut = plan_cost(program_, semantics_, plan_, {});
  EXPECT_EQ(whole.time.receiving, 0);
  EXPECT_LT(cut.time.computing, whole.time.computing);
  EXPECT_GT(cut.time.receiving, 0);
  Topology slow;
  slow.links = {{"", 4, 1e6, 0}};
  const PlanCost slower = plan_cost(program_, semantics_, plan_, slow);
  EXPECT_DOUBLE_EQ(slower.time.receiving, static_cast<double>(cut.traffic.total) / 4 / 1e6);
}

TEST_F(SummaryOfAPlan, OperatorsWithoutDescriptionAreCounted) {
  graph::Program program = program_;
  program.nodes[1].op = "aten::special_unheard_of";
  program.nodes[4].op = "aten::special_unheard_of";
  program.nodes[1].module = "block.0";
  program.nodes[1].source = "model.py:12";
  const std::vector<Undescribed> undescribed = undescribed_operators(program, semantics_of(program));
  ASSERT_EQ(undescribed.size(), 1u);
  EXPECT_EQ(undescribed[0].op, "aten::special_unheard_of");
  EXPECT_EQ(undescribed[0].nodes, 2);
  EXPECT_EQ(warning_text(undescribed[0]),
            "aten::special_unheard_of has no description, so every worker computes all of it (2 nodes, first node " +
                program.nodes[1].name +
                " in block.0 at model.py:12); describe it in a .tdl file and give that with --tdl");
}

TEST_F(SummaryOfAPlan, ADescriptionThatDoesNotFitIsNamedWithItsReason) {
  tdl::Catalogue catalogue = tdl::Catalogue::shipped();
  ASSERT_TRUE(catalogue.add(program_.nodes[1].op + "(x) -> y:\n    y[i, j, k] = x[i, j, k]\n", "my.tdl").has_value());
  const std::vector<Undescribed> undescribed = undescribed_operators(program_, analyze_nodes(program_, catalogue));
  ASSERT_EQ(undescribed.size(), 1u);
  EXPECT_EQ(undescribed[0].nodes, 1);
  EXPECT_NE(undescribed[0].misfit.find("described in my.tdl:1"), std::string::npos) << undescribed[0].misfit;
  EXPECT_NE(warning_text(undescribed[0]).find(" has no description that fits (" + undescribed[0].misfit + "), so "),
            std::string::npos);
}

}  // namespace
}  // namespace tesser::partition
