#include "partition/elimination.h"

#include <algorithm>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace tesser::partition {
namespace {

struct RandomModel {
  CostModel model;
  std::vector<CostTable> tables;
};

RandomModel random_model(std::mt19937& random) {
  RandomModel made;
  const int variables = std::uniform_int_distribution<int>(1, 7)(random);
  for (int variable = 0; variable < variables; ++variable) {
    made.model.add_variable(std::uniform_int_distribution<int>(1, 4)(random));
  }
  const int tables = std::uniform_int_distribution<int>(0, 9)(random);
  for (int number = 0; number < tables; ++number) {
    CostTable table;
    std::size_t entries = 1;
    for (int variable = 0; variable < variables; ++variable) {
      if (std::bernoulli_distribution(0.4)(random)) {
        table.scope.push_back(variable);
        entries *= static_cast<std::size_t>(made.model.options(variable));
      }
    }
    for (std::size_t entry = 0; entry < entries; ++entry) {
      const int cost = std::uniform_int_distribution<int>(0, 20)(random);
      table.costs.push_back(cost == 20 ? std::numeric_limits<double>::infinity() : cost);
    }
    made.tables.push_back(table);
    made.model.add(std::move(table));
  }
  return made;
}

double cost_of(const RandomModel& made, const std::vector<int>& choice) {
  double cost = 0;
  for (const CostTable& table : made.tables) {
    std::size_t entry = 0;
    for (const int variable : table.scope) {
      entry = entry * static_cast<std::size_t>(made.model.options(variable)) +
              static_cast<std::size_t>(choice[static_cast<std::size_t>(variable)]);
    }
    cost += table.costs[entry];
  }
  return cost;
}

double least_cost(const RandomModel& made) {
  std::vector<int> choice(static_cast<std::size_t>(made.model.variables()), 0);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    least = std::min(least, cost_of(made, choice));
    std::size_t place = 0;
    while (place < choice.size() && ++choice[place] == made.model.options(static_cast<int>(place))) {
      choice[place++] = 0;
    }
    if (place == choice.size()) {
      return least;
    }
  }
}

TEST(Elimination, FindsTheLeastCostOfRandomModels) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    const RandomModel made = random_model(random);
    const CostModel::Solution solution = made.model.solve();
    ASSERT_TRUE(solution.exact);
    ASSERT_EQ(solution.cost, least_cost(made)) << "trial " << trial;
    ASSERT_EQ(cost_of(made, solution.choice), solution.cost) << "trial " << trial;
  }
}

TEST(Elimination, AModelThatIsTooWideIsSolvedApproximatelyAndSaysSo) {
  // Every pair of twelve variables has a table: no order keeps tables small.
  CostModel model;
  for (int variable = 0; variable < 12; ++variable) {
    model.add_variable(3);
  }
  for (int a = 0; a < 12; ++a) {
    for (int b = a + 1; b < 12; ++b) {
      model.add({{a, b}, {0, 1, 1, 1, 0, 1, 1, 1, 0}});
    }
  }
  const CostModel::Solution exact = model.solve();
  EXPECT_TRUE(exact.exact);
  EXPECT_EQ(exact.cost, 0);
  const CostModel::Solution bounded = model.solve(100);
  EXPECT_FALSE(bounded.exact);
  EXPECT_LE(bounded.widest_table, 300U);
  EXPECT_EQ(bounded.cost, 0);  // this one is easy: whatever is fixed, the rest follows
}

TEST(Elimination, EqualOptionsGiveTheLowestOne) {
  CostModel model;
  const int variable = model.add_variable(3);
  model.add({{variable}, {2, 1, 1}});
  EXPECT_EQ(model.solve().choice, std::vector<int>{1});
}

TEST(Elimination, ALongChainIsFast) {
  CostModel model;
  constexpr int kLength = 20000;
  for (int variable = 0; variable < kLength; ++variable) {
    model.add_variable(4);
  }
  std::mt19937 random(3);
  for (int variable = 0; variable + 1 < kLength; ++variable) {
    CostTable table{{variable, variable + 1}, {}};
    for (int entry = 0; entry < 16; ++entry) {
      table.costs.push_back(std::uniform_int_distribution<int>(0, 9)(random));
    }
    model.add(std::move(table));
  }
  const CostModel::Solution solution = model.solve();
  EXPECT_TRUE(solution.exact);
  EXPECT_LE(solution.widest_table, 16U);
}

}  // namespace
}  // namespace tesser::partition
