// Exact minimum of a sum of cost tables over variables with a few options each: dynamic programming over the structure
// of the graph, by elimination of variables (the search of Tofu, EuroSys 2019, section 5, for graphs that are not
// chains).
#pragma once

#include <cstddef>
#include <vector>

namespace tesser::partition {

// A cost for every combination of options of the variables in `scope`; row-major, the last variable fastest.
struct CostTable {
  std::vector<int> scope;  // ascending, without repetition
  std::vector<double> costs;
};

class CostModel {
 public:
  // Returns the variable's number.
  int add_variable(int options);
  int options(int variable) const { return options_[static_cast<std::size_t>(variable)]; }
  int variables() const { return static_cast<int>(options_.size()); }

  // Tables of the same scope are added up. Infinite costs forbid a combination.
  void add(CostTable table);

  struct Solution {
    std::vector<int> choice;       // by variable
    double cost = 0;               // infinite when every combination is forbidden
    std::size_t widest_table = 0;  // entries
    bool exact = true;             // false when a table would have exceeded `limit` and a variable was fixed instead
  };
  // The same model gives the same solution; of equal ones it prefers lower options. Variables are eliminated in the
  // order of the smallest table that results. Where even that exceeds `limit` entries, the variable with the largest
  // tables is fixed to its best option for them alone.
  Solution solve(std::size_t limit = std::size_t{1} << 22) const;

 private:
  std::vector<int> options_;
  std::vector<CostTable> tables_;
};

}  // namespace tesser::partition
