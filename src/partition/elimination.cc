#include "partition/elimination.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "base/check.h"

namespace tesser::partition {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Strides of the variables of `scope` in a table over `inner`; 0 for those that are not in it.
std::vector<std::size_t> strides_in(const std::vector<int>& scope, const std::vector<int>& inner,
                                    const std::vector<int>& options) {
  std::vector<std::size_t> strides(scope.size(), 0);
  std::size_t stride = 1;
  for (std::size_t place = inner.size(); place-- > 0;) {
    const auto found = std::lower_bound(scope.begin(), scope.end(), inner[place]);
    if (found != scope.end() && *found == inner[place]) {
      strides[static_cast<std::size_t>(found - scope.begin())] = stride;
    }
    stride *= static_cast<std::size_t>(options[static_cast<std::size_t>(inner[place])]);
  }
  return strides;
}

std::size_t entries(const std::vector<int>& scope, const std::vector<int>& options) {
  std::size_t product = 1;
  for (const int variable : scope) {
    const auto factor = static_cast<std::size_t>(options[static_cast<std::size_t>(variable)]);
    if (product > std::numeric_limits<std::size_t>::max() / factor) {
      return std::numeric_limits<std::size_t>::max();
    }
    product *= factor;
  }
  return product;
}

// A variable that is gone: its best option for every combination of the variables that were left with it.
struct Eliminated {
  int variable = 0;
  std::vector<int> scope;
  std::vector<int> best;
};

class Eliminator {
 public:
  Eliminator(const std::vector<int>& options, const std::vector<CostTable>& tables, std::size_t limit)
      : options_(options), limit_(limit), tables_of_(options.size()), neighbours_(options.size()) {
    for (const CostTable& table : tables) {
      keep(table);
    }
  }

  CostModel::Solution run() {
    for (std::size_t variable = 0; variable < options_.size(); ++variable) {
      queue(static_cast<int>(variable));
    }
    while (!queue_.empty()) {
      const auto [size, variable] = queue_.top();
      queue_.pop();
      if (gone_.contains(variable) || size != queued_size_[variable]) {
        continue;
      }
      if (size > limit_) {
        fix(widest_variable());
        queue(variable);
        continue;
      }
      eliminate(variable);
    }
    solution_.choice.assign(options_.size(), 0);
    for (auto step = order_.rbegin(); step != order_.rend(); ++step) {
      std::size_t entry = 0;
      for (const int variable : step->scope) {
        entry = entry * static_cast<std::size_t>(options_[static_cast<std::size_t>(variable)]) +
                static_cast<std::size_t>(solution_.choice[static_cast<std::size_t>(variable)]);
      }
      solution_.choice[static_cast<std::size_t>(step->variable)] = step->best[entry];
    }
    return std::move(solution_);
  }

 private:
  // Adds a table, into the one of the same scope if there is one.
  void keep(CostTable table) {
    if (table.scope.empty()) {
      solution_.cost += table.costs.front();
      return;
    }
    solution_.widest_table = std::max(solution_.widest_table, table.costs.size());
    const auto same = by_scope_.find(table.scope);
    if (same != by_scope_.end()) {
      std::vector<double>& sum = tables_[same->second].costs;
      for (std::size_t entry = 0; entry < sum.size(); ++entry) {
        sum[entry] += table.costs[entry];
      }
      return;
    }
    const std::size_t number = tables_.size();
    for (const int variable : table.scope) {
      tables_of_[static_cast<std::size_t>(variable)].insert(number);
      neighbours_[static_cast<std::size_t>(variable)].insert(table.scope.begin(), table.scope.end());
    }
    by_scope_.emplace(table.scope, number);
    tables_.push_back(std::move(table));
  }

  CostTable take(std::size_t number) {
    CostTable table = std::move(tables_[number]);
    for (const int variable : table.scope) {
      tables_of_[static_cast<std::size_t>(variable)].erase(number);
    }
    by_scope_.erase(table.scope);
    return table;
  }

  std::vector<int> neighbours_without(int variable) const {
    const std::set<int>& all = neighbours_[static_cast<std::size_t>(variable)];
    std::vector<int> others;
    others.reserve(all.size());
    std::copy_if(all.begin(), all.end(), std::back_inserter(others),
                 [this, variable](int other) { return other != variable && !gone_.contains(other); });
    return others;
  }

  void queue(int variable) {
    const std::size_t size = entries(neighbours_without(variable), options_);
    queued_size_[variable] = size;
    queue_.emplace(size, variable);
  }

  std::vector<std::size_t> tables_with(int variable) const {
    const std::set<std::size_t>& all = tables_of_[static_cast<std::size_t>(variable)];
    return {all.begin(), all.end()};
  }

  void eliminate(int variable) {
    const std::vector<int> scope = neighbours_without(variable);
    const auto choices = static_cast<std::size_t>(options_[static_cast<std::size_t>(variable)]);
    std::vector<CostTable> joined;
    for (const std::size_t number : tables_with(variable)) {
      joined.push_back(take(number));
    }
    std::vector<std::vector<std::size_t>> strides;
    std::vector<std::size_t> own_strides;
    for (const CostTable& table : joined) {
      strides.push_back(strides_in(scope, table.scope, options_));
      own_strides.push_back(strides_in({variable}, table.scope, options_).front());
    }

    Eliminated step{variable, scope, {}};
    CostTable rest{scope, {}};
    const std::size_t count = entries(scope, options_);
    step.best.reserve(count);
    rest.costs.reserve(count);
    std::vector<int> digits(scope.size(), 0);
    std::vector<std::size_t> offsets(joined.size(), 0);
    for (std::size_t entry = 0; entry < count; ++entry) {
      double least = kInfinity;
      int best = 0;
      for (std::size_t choice = 0; choice < choices; ++choice) {
        double cost = 0;
        for (std::size_t table = 0; table < joined.size(); ++table) {
          cost += joined[table].costs[offsets[table] + choice * own_strides[table]];
        }
        if (cost < least) {
          least = cost;
          best = static_cast<int>(choice);
        }
      }
      step.best.push_back(best);
      rest.costs.push_back(least);
      for (std::size_t place = scope.size(); place-- > 0;) {  // the next combination
        const int size = options_[static_cast<std::size_t>(scope[place])];
        const bool carries = ++digits[place] == size;
        for (std::size_t table = 0; table < joined.size(); ++table) {
          offsets[table] += strides[table][place];
          if (carries) {
            offsets[table] -= strides[table][place] * static_cast<std::size_t>(size);
          }
        }
        if (!carries) {
          break;
        }
        digits[place] = 0;
      }
    }
    gone_.insert(variable);
    order_.push_back(std::move(step));
    keep(std::move(rest));
    for (const int other : scope) {
      neighbours_[static_cast<std::size_t>(other)].erase(variable);
      queue(other);
    }
  }

  int widest_variable() const {
    int widest = -1;
    std::size_t most = 0;
    for (std::size_t variable = 0; variable < options_.size(); ++variable) {
      const std::size_t count = neighbours_without(static_cast<int>(variable)).size();
      if (!gone_.contains(static_cast<int>(variable)) && count >= most) {
        most = count;
        widest = static_cast<int>(variable);
      }
    }
    TESSER_CHECK(widest >= 0, "a variable is left");
    return widest;
  }

  // Chooses the option whose tables can become cheapest, each taken alone, and puts it in for good.
  void fix(int variable) {
    solution_.exact = false;
    const auto choices = static_cast<std::size_t>(options_[static_cast<std::size_t>(variable)]);
    const std::vector<std::size_t> numbers = tables_with(variable);
    std::vector<CostTable> joined;
    for (const std::size_t number : numbers) {
      joined.push_back(take(number));
    }
    std::vector<double> least(choices, 0);
    const auto choice_of = [&](const CostTable& table, std::size_t entry) {
      const std::size_t stride = strides_in({variable}, table.scope, options_).front();
      return entry / stride % choices;
    };
    for (const CostTable& table : joined) {
      std::vector<double> minimum(choices, kInfinity);
      for (std::size_t entry = 0; entry < table.costs.size(); ++entry) {
        double& current = minimum[choice_of(table, entry)];
        current = std::min(current, table.costs[entry]);
      }
      for (std::size_t choice = 0; choice < choices; ++choice) {
        least[choice] += minimum[choice];
      }
    }
    const auto chosen = static_cast<std::size_t>(std::min_element(least.begin(), least.end()) - least.begin());
    const std::vector<int> others = neighbours_without(variable);
    gone_.insert(variable);
    order_.push_back({variable, {}, {static_cast<int>(chosen)}});
    for (const CostTable& table : joined) {
      CostTable rest;
      std::copy_if(table.scope.begin(), table.scope.end(), std::back_inserter(rest.scope),
                   [variable](int other) { return other != variable; });
      for (std::size_t entry = 0; entry < table.costs.size(); ++entry) {
        if (choice_of(table, entry) == chosen) {
          rest.costs.push_back(table.costs[entry]);
        }
      }
      keep(std::move(rest));
    }
    for (const int other : others) {
      neighbours_[static_cast<std::size_t>(other)].erase(variable);
      queue(other);
    }
  }

  const std::vector<int>& options_;
  std::size_t limit_;
  std::vector<CostTable> tables_;
  std::map<std::vector<int>, std::size_t> by_scope_;
  std::vector<std::set<std::size_t>> tables_of_;
  std::vector<std::set<int>> neighbours_;
  std::set<int> gone_;
  std::map<int, std::size_t> queued_size_;
  std::priority_queue<std::pair<std::size_t, int>, std::vector<std::pair<std::size_t, int>>, std::greater<>> queue_;
  std::vector<Eliminated> order_;
  CostModel::Solution solution_;
};

}  // namespace

int CostModel::add_variable(int options) {
  TESSER_CHECK(options >= 1, "a variable has an option");
  options_.push_back(options);
  return variables() - 1;
}

void CostModel::add(CostTable table) {
  TESSER_CHECK(std::adjacent_find(table.scope.begin(), table.scope.end(), std::greater_equal<>()) == table.scope.end(),
               "the scope is ascending");
  TESSER_CHECK(table.costs.size() == entries(table.scope, options_), "a cost for every combination");
  tables_.push_back(std::move(table));
}

CostModel::Solution CostModel::solve(std::size_t limit) const { return Eliminator(options_, tables_, limit).run(); }

}  // namespace tesser::partition
