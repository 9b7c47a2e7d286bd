#include "graph/summary.h"

#include <gtest/gtest.h>

#include "sample_program.h"

namespace tesser::graph {
namespace {

template <typename Array, typename Key>
std::int64_t at(const Array& array, Key key) {
  return array[static_cast<std::size_t>(key)];
}

TEST(SummaryTest, CountsTheWhole) {
  const Summary summary = summarize(sample("step.json"));
  EXPECT_EQ(summary.parameters, 72 + 80);
  EXPECT_EQ(summary.trainable_parameters, 72);
  EXPECT_EQ(at(summary.values, Role::kParameter), 2);
  EXPECT_EQ(at(summary.bytes, Role::kParameter), 4 * (72 + 80));
  EXPECT_EQ(at(summary.values, Role::kOptimizerState), 2);
  EXPECT_EQ(at(summary.bytes, Role::kOptimizerState), 4 * 72 + 4);
  EXPECT_EQ(at(summary.bytes, Role::kBuffer), 8 + 8 * 26 * 26);
  EXPECT_EQ(at(summary.bytes, Role::kBatch), 4 * 4 * 28 * 28 + 4 * 8);
  EXPECT_EQ(at(summary.nodes, Phase::kForward), 9);
  EXPECT_EQ(at(summary.nodes, Phase::kBackward), 1);
  EXPECT_EQ(at(summary.nodes, Phase::kClip), 1);
  EXPECT_EQ(at(summary.nodes, Phase::kUpdate), 1);
  const std::int64_t convolution = 2 * (4 * 8 * 26 * 26) * 9;
  EXPECT_EQ(at(summary.floating_point_operations, Phase::kBackward), convolution);
  EXPECT_EQ(at(summary.floating_point_operations, Phase::kUpdate), 72);
  EXPECT_EQ(summary.operators.size(), 12U);
  EXPECT_EQ(summary.operators.at("tesser::sgd"), 1);
}

TEST(SummaryTest, AddsUpModules) {
  Program program = sample("forward.json");
  program.nodes[0].module = "a.b";
  program.nodes[1].module = "a.c.d";
  program.values[0].name = "a.b.weight";
  const Summary whole = summarize(program);
  ASSERT_EQ(whole.modules.size(), 5U);
  const char* const kPaths[] = {"", "a", "a.b", "a.c", "a.c.d"};
  const int kDepths[] = {0, 1, 2, 2, 3};
  const std::int64_t kNodes[] = {2, 2, 1, 1, 1};
  const std::int64_t kParameters[] = {80, 80, 80, 0, 0};
  const std::int64_t product = 2 * 4 * 8 * 10;
  const std::int64_t kOperations[] = {product, product, 0, product, product};
  for (std::size_t place = 0; place < 5; ++place) {
    EXPECT_EQ(whole.modules[place].path, kPaths[place]);
    EXPECT_EQ(whole.modules[place].depth, kDepths[place]);
    EXPECT_EQ(whole.modules[place].nodes, kNodes[place]);
    EXPECT_EQ(whole.modules[place].parameters, kParameters[place]);
    EXPECT_EQ(at(whole.modules[place].floating_point_operations, Phase::kForward), kOperations[place]);
  }
  const Summary shallow = summarize(program, 1);
  ASSERT_EQ(shallow.modules.size(), 2U);
  EXPECT_EQ(shallow.modules[1].path, "a");
  EXPECT_EQ(at(shallow.modules[1].floating_point_operations, Phase::kForward), product);
  EXPECT_EQ(summarize(program, 0).modules.size(), 1U);
}

TEST(SummaryTest, SurvivesOddModulePaths) {
  Program program = sample("forward.json");
  program.nodes[0].module = "..";
  program.nodes[1].module = "a.";
  std::int64_t nodes = 0;
  for (const ModuleSummary& module : summarize(program).modules) {
    nodes += module.depth == 0 ? module.nodes : 0;
  }
  EXPECT_EQ(nodes, 2);
}

}  // namespace
}  // namespace tesser::graph
