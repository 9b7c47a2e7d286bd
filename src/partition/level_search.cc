#include "partition/level_search.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "partition/elimination.h"

namespace tesser::partition {
namespace {

// Larger tables are not built for one class at once; its strategy becomes a variable of the model instead.
constexpr std::size_t kLargestClassTable = 1 << 14;

// Costs of one class by its option and the options of the groups that it uses, each group once.
struct ClassTable {
  std::vector<int> groups;                              // ascending
  std::vector<std::vector<std::vector<double>>> costs;  // by option of the class, by group, by option of the group
  std::vector<double> own;                              // by option of the class
};

ClassTable class_table(const NodeClass& nodes, const ClassCosts& costs, const Prices& prices, double work) {
  ClassTable table;
  for (const auto* groups : {&nodes.operand_groups, &nodes.result_groups}) {
    std::copy_if(groups->begin(), groups->end(), std::back_inserter(table.groups),
                 [](int group) { return group >= 0; });
  }
  std::sort(table.groups.begin(), table.groups.end());
  table.groups.erase(std::unique(table.groups.begin(), table.groups.end()), table.groups.end());
  const auto count = static_cast<double>(nodes.nodes);
  table.costs.resize(costs.work.size());
  for (std::size_t option = 0; option < costs.work.size(); ++option) {
    table.own.push_back(count * work * costs.work[option]);
    table.costs[option].resize(table.groups.size());
    const auto add = [&](int group, const std::vector<double>& bytes) {
      const auto place = static_cast<std::size_t>(std::lower_bound(table.groups.begin(), table.groups.end(), group) -
                                                  table.groups.begin());
      std::vector<double>& sum = table.costs[option][place];
      sum.resize(bytes.size(), 0.0);
      for (std::size_t layout = 0; layout < bytes.size(); ++layout) {
        sum[layout] += count * (bytes[layout] * prices.byte + (bytes[layout] > 0 ? prices.transfer : 0.0));
      }
    };
    for (std::size_t operand = 0; operand < nodes.operand_groups.size(); ++operand) {
      add(nodes.operand_groups[operand], costs.operands[operand][option]);
    }
    for (std::size_t result = 0; result < nodes.result_groups.size(); ++result) {
      if (nodes.result_groups[result] >= 0) {
        add(nodes.result_groups[result], costs.results[result][option]);
      }
    }
  }
  return table;
}

// The cheapest option of a class for given layouts; of equal ones the one with the smallest parts.
int best_option(const ClassTable& table, const ClassCosts& costs, const std::vector<int>& layouts) {
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t option = 0; option < table.costs.size(); ++option) {
    double cost = table.own[option];
    for (std::size_t place = 0; place < table.groups.size(); ++place) {
      cost +=
          table.costs[option][place][static_cast<std::size_t>(layouts[static_cast<std::size_t>(table.groups[place])])];
    }
    if (cost < least || (cost == least && costs.work[option] < costs.work[static_cast<std::size_t>(best)])) {
      least = cost;
      best = static_cast<int>(option);
    }
  }
  return best;
}

// Table over the layouts of the class's groups that have a choice, the class's own option chosen best for each.
std::vector<double> minimum_over_options(const ClassTable& table, const std::vector<std::size_t>& free_places,
                                         const std::vector<std::size_t>& sizes) {
  std::size_t entries = 1;
  for (const std::size_t size : sizes) {
    entries *= size;
  }
  std::vector<double> minimum(entries, std::numeric_limits<double>::infinity());
  std::vector<double> sums;
  for (std::size_t option = 0; option < table.costs.size(); ++option) {
    double fixed = table.own[option];
    for (std::size_t place = 0; place < table.groups.size(); ++place) {
      if (std::find(free_places.begin(), free_places.end(), place) == free_places.end()) {
        fixed += table.costs[option][place].front();
      }
    }
    sums.assign(1, fixed);
    for (const std::size_t place : free_places) {
      std::vector<double> wider;
      wider.reserve(sums.size() * table.costs[option][place].size());
      for (const double sum : sums) {
        for (const double cost : table.costs[option][place]) {
          wider.push_back(sum + cost);
        }
      }
      sums = std::move(wider);
    }
    for (std::size_t entry = 0; entry < entries; ++entry) {
      minimum[entry] = std::min(minimum[entry], sums[entry]);
    }
  }
  return minimum;
}

// The model's variables: groups that have a choice, and classes too wide for a table of their own.
class ModelBuilder {
 public:
  ModelBuilder(const Candidates& candidates, const Prices& prices) : candidates_(candidates) {
    for (std::size_t group = 0; group < candidates.groups.size(); ++group) {
      const std::size_t options = candidates.groups[group].size();
      variables_.push_back(options > 1 ? model_.add_variable(static_cast<int>(options)) : -1);
      if (options > 1 && !prices.keeping.empty()) {
        model_.add({{variables_.back()}, prices.keeping[group]});
      }
    }
  }

  void add(const ClassTable& table) {
    std::vector<std::size_t> free_places;
    std::vector<std::size_t> sizes;
    CostTable joint;
    std::size_t entries = 1;
    for (std::size_t place = 0; place < table.groups.size(); ++place) {
      const auto group = static_cast<std::size_t>(table.groups[place]);
      if (variables_[group] >= 0) {
        free_places.push_back(place);
        sizes.push_back(candidates_.groups[group].size());
        joint.scope.push_back(variables_[group]);
        entries = std::min(entries * sizes.back(), kLargestClassTable + 1);
      }
    }
    if (free_places.empty()) {
      return;
    }
    if (entries <= kLargestClassTable) {
      joint.costs = minimum_over_options(table, free_places, sizes);
      model_.add(std::move(joint));
      return;
    }
    const int own = model_.add_variable(static_cast<int>(table.costs.size()));
    model_.add({{own}, table.own});
    for (std::size_t place = 0; place < table.groups.size(); ++place) {
      const int variable = variables_[static_cast<std::size_t>(table.groups[place])];
      CostTable pair;
      pair.scope = variable >= 0 ? std::vector<int>{variable, own} : std::vector<int>{own};
      const std::size_t layouts = variable >= 0 ? table.costs.front()[place].size() : 1;
      for (std::size_t layout = 0; layout < layouts; ++layout) {
        for (const auto& option : table.costs) {
          pair.costs.push_back(option[place][layout]);
        }
      }
      model_.add(std::move(pair));
    }
  }

  CostModel::Solution solve() const { return model_.solve(); }
  int variable(std::size_t group) const { return variables_[group]; }

 private:
  const Candidates& candidates_;
  CostModel model_;
  std::vector<int> variables_;  // by group; -1 without a choice
};

std::vector<ClassTable> class_tables(const Coarsening& coarsening,
                                     const std::vector<std::shared_ptr<const ClassCosts>>& costs,
                                     const Prices& prices) {
  std::vector<ClassTable> tables;
  tables.reserve(coarsening.classes.size());
  for (std::size_t number = 0; number < coarsening.classes.size(); ++number) {
    tables.push_back(class_table(coarsening.classes[number], *costs[number], prices,
                                 prices.work.empty() ? 0.0 : prices.work[number]));
  }
  return tables;
}

std::vector<std::shared_ptr<const ClassCosts>> all_costs(const Coarsening& coarsening, LevelCosts& costs,
                                                         const Level& level, const Decided& decided,
                                                         const Candidates& candidates) {
  std::vector<std::shared_ptr<const ClassCosts>> all;
  all.reserve(coarsening.classes.size());
  for (std::size_t number = 0; number < coarsening.classes.size(); ++number) {
    all.push_back(costs.of(number, level, decided, candidates));
  }
  return all;
}

}  // namespace

Candidates candidates_at(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                         const Coarsening& coarsening, const Alignment& alignment, const Decided& decided, int parts,
                         const Rules& rules) {
  Candidates candidates;
  // A cut in whole units where enough of them are left, so that neighbours can be cut at the same places.
  const auto cut_of = [parts](int axis, const tdl::Interval& left, std::int64_t unit) {
    const bool in_units = left.size() / unit >= parts;
    return Cut{axis, in_units ? unit : 1};
  };
  const auto first_part = [&](tdl::Region whole, const std::vector<Cut>& cuts) {
    for (std::size_t level = 0; level < cuts.size(); ++level) {
      if (cuts[level].axis != kReplicated) {
        tdl::Interval& interval = whole[static_cast<std::size_t>(cuts[level].axis)];
        interval = tdl::part_of(interval, decided.levels[level].parts, 0, cuts[level].granularity);
      }
    }
    return whole;
  };
  for (std::size_t group = 0; group < coarsening.groups.size(); ++group) {
    const Shape& shape = program.value(coarsening.groups[group].front()).shape;
    const tdl::Region left = first_part(tdl::whole(shape), decided.groups[group]);
    std::vector<Cut> cuts;
    for (std::size_t dimension = 0; dimension < left.size(); ++dimension) {
      const int axis = static_cast<int>(dimension);
      if (left[dimension].size() >= parts && rules.may_cut(static_cast<int>(group), axis)) {
        cuts.push_back(cut_of(axis, left[dimension], alignment.dimensions[group][dimension].unit));
      }
    }
    if (rules.even_cuts_first) {
      const auto divides = [&](const Cut& cut) { return left[static_cast<std::size_t>(cut.axis)].size() % parts == 0; };
      if (std::any_of(cuts.begin(), cuts.end(), divides)) {
        std::erase_if(cuts, [&](const Cut& cut) { return !divides(cut); });
        for (Cut& cut : cuts) {  // exactly equal parts, whatever the units are
          const std::int64_t size = left[static_cast<std::size_t>(cut.axis)].size();
          cut.granularity = size / parts % cut.granularity == 0 ? cut.granularity : 1;
        }
      }
    }
    if (cuts.empty() || (rules.replicate_tensors && rules.may_replicate(static_cast<int>(group)))) {
      cuts.push_back({});
    }
    candidates.groups.push_back(std::move(cuts));
  }
  for (std::size_t number = 0; number < coarsening.classes.size(); ++number) {
    const NodeClass& nodes = coarsening.classes[number];
    const tdl::NodeSemantics& meaning = semantics[static_cast<std::size_t>(nodes.representative)];
    const tdl::Box left = first_part(meaning.whole_box(), decided.classes[number]);
    std::vector<Cut> cuts;
    for (const tdl::Strategy& strategy : meaning.strategies()) {
      const auto variable = static_cast<std::size_t>(strategy.variable);
      bool allowed = left[variable].size() >= parts;
      for (std::size_t result = 0; result < nodes.result_groups.size() && !rules.reductions; ++result) {
        allowed =
            allowed && (nodes.result_groups[result] < 0 || strategy.outcomes[result] == tdl::Outcome::kConcatenate ||
                        strategy.outcomes[result] == tdl::Outcome::kReplicated);
      }
      if (allowed) {
        cuts.push_back(cut_of(strategy.variable, left[variable], alignment.variables[number][variable].unit));
      }
    }
    if (cuts.empty() || rules.replicate_work) {
      cuts.push_back({});
    }
    candidates.classes.push_back(std::move(cuts));
  }
  return candidates;
}

LevelChoice choose_best(const Coarsening& coarsening, LevelCosts& costs, const Level& level, const Decided& decided,
                        const Candidates& candidates, const Prices& prices) {
  const auto all = all_costs(coarsening, costs, level, decided, candidates);
  const std::vector<ClassTable> tables = class_tables(coarsening, all, prices);
  ModelBuilder model(candidates, prices);
  for (const ClassTable& table : tables) {
    model.add(table);
  }
  const CostModel::Solution solution = model.solve();
  LevelChoice choice;
  choice.cost = solution.cost;
  choice.widest_table = solution.widest_table;
  choice.exact = solution.exact;
  for (std::size_t group = 0; group < coarsening.groups.size(); ++group) {
    const int variable = model.variable(group);
    choice.groups.push_back(variable < 0 ? 0 : solution.choice[static_cast<std::size_t>(variable)]);
  }
  for (std::size_t number = 0; number < tables.size(); ++number) {
    choice.classes.push_back(best_option(tables[number], *all[number], choice.groups));
  }
  return choice;
}

LevelChoice choose_largest_first(const Coarsening& coarsening, LevelCosts& costs, const Level& level,
                                 const Decided& decided, const Candidates& candidates, const Prices& prices,
                                 const std::vector<double>& group_bytes) {
  const auto all = all_costs(coarsening, costs, level, decided, candidates);
  const std::vector<ClassTable> tables = class_tables(coarsening, all, prices);
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> uses(coarsening.groups.size());  // class, place
  for (std::size_t number = 0; number < tables.size(); ++number) {
    for (std::size_t place = 0; place < tables[number].groups.size(); ++place) {
      uses[static_cast<std::size_t>(tables[number].groups[place])].emplace_back(number, place);
    }
  }
  std::vector<std::size_t> order(coarsening.groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return group_bytes[a] > group_bytes[b]; });
  // By class and option: what the groups decided so far cost.
  std::vector<std::vector<double>> so_far;
  for (const ClassTable& table : tables) {
    so_far.push_back(table.own);
  }
  LevelChoice choice;
  choice.groups.assign(coarsening.groups.size(), 0);
  for (const std::size_t group : order) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t layout = 0; layout < candidates.groups[group].size(); ++layout) {
      double cost = 0;
      for (const auto& [number, place] : uses[group]) {
        double cheapest = std::numeric_limits<double>::infinity();
        for (std::size_t option = 0; option < so_far[number].size(); ++option) {
          cheapest = std::min(cheapest, so_far[number][option] + tables[number].costs[option][place][layout]);
        }
        cost += cheapest;
      }
      if (cost < least) {
        least = cost;
        choice.groups[group] = static_cast<int>(layout);
      }
    }
    for (const auto& [number, place] : uses[group]) {
      for (std::size_t option = 0; option < so_far[number].size(); ++option) {
        so_far[number][option] += tables[number].costs[option][place][static_cast<std::size_t>(choice.groups[group])];
      }
    }
  }
  for (std::size_t number = 0; number < tables.size(); ++number) {
    choice.classes.push_back(best_option(tables[number], *all[number], choice.groups));
    choice.cost += so_far[number][static_cast<std::size_t>(choice.classes.back())];
  }
  return choice;
}

}  // namespace tesser::partition
