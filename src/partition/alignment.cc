#include "partition/alignment.h"

#include <numeric>
#include <optional>

namespace tesser::partition {
namespace {

// Sets of slots with their sizes relative to each other: unit(slot) = numerator / denominator * unit(root).
class Families {
 public:
  struct Ratio {
    std::int64_t numerator = 1;
    std::int64_t denominator = 1;
  };

  int add() {
    parents_.push_back(static_cast<int>(parents_.size()));
    ratios_.push_back({});
    return parents_.back();
  }

  // Demands unit(slot) = factor * unit(other).
  void join(int slot, int other, std::int64_t factor) {
    const auto [root, ratio] = find(slot);
    const auto [other_root, other_ratio] = find(other);
    if (root == other_root) {
      return;
    }
    // unit(root) * ratio = factor * other_ratio * unit(other_root)
    const std::optional<Ratio> link =
        product({factor, 1}, product(other_ratio, Ratio{ratio.denominator, ratio.numerator}));
    if (link) {
      parents_[static_cast<std::size_t>(root)] = other_root;
      ratios_[static_cast<std::size_t>(root)] = *link;
    }
  }

  std::pair<int, Ratio> find(int slot) {
    const auto index = static_cast<std::size_t>(slot);
    if (parents_[index] == slot) {
      return {slot, Ratio{}};
    }
    const auto [root, above] = find(parents_[index]);
    const std::optional<Ratio> whole = product(ratios_[index], above);
    if (whole) {
      parents_[index] = root;
      ratios_[index] = *whole;
    }
    return {root, ratios_[index]};
  }

 private:
  static std::optional<Ratio> product(Ratio a, std::optional<Ratio> b) {
    if (!b) {
      return std::nullopt;
    }
    const std::int64_t across = std::gcd(a.numerator, b->denominator);
    const std::int64_t back = std::gcd(b->numerator, a.denominator);
    Ratio result;
    if (__builtin_mul_overflow(a.numerator / across, b->numerator / back, &result.numerator) ||
        __builtin_mul_overflow(a.denominator / back, b->denominator / across, &result.denominator)) {
      return std::nullopt;
    }
    return result;
  }

  std::vector<int> parents_;
  std::vector<Ratio> ratios_;
};

// Joins the dimensions of one operand or result with the variable that leads each of them.
void join_indices(Families& families, const std::vector<std::optional<tdl::AffineIndex>>& indices, const Shape& shape,
                  const std::vector<int>& dimension_slots, const tdl::NodeSemantics& semantics,
                  const std::vector<int>& variable_slots) {
  for (std::size_t dimension = 0; dimension < indices.size(); ++dimension) {
    if (!indices[dimension] || indices[dimension]->divisor != 1 || shape[dimension] < 2) {
      continue;
    }
    for (const auto& [variable, coefficient] : indices[dimension]->coefficients) {
      const tdl::Variable& description = semantics.variables()[static_cast<std::size_t>(variable)];
      if (!description.whole && description.extent > 1 && coefficient > 0 &&
          coefficient * description.extent == shape[dimension]) {
        families.join(dimension_slots[dimension], variable_slots[static_cast<std::size_t>(variable)], coefficient);
      }
    }
  }
}

}  // namespace

Alignment align(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                const Coarsening& coarsening) {
  Families families;
  std::vector<std::vector<int>> dimension_slots;
  for (const auto& members : coarsening.groups) {
    dimension_slots.emplace_back();
    for (std::size_t dimension = 0; dimension < program.value(members.front()).shape.size(); ++dimension) {
      dimension_slots.back().push_back(families.add());
    }
  }
  std::vector<std::vector<int>> variable_slots;
  for (const NodeClass& nodes : coarsening.classes) {
    const tdl::NodeSemantics& meaning = semantics[static_cast<std::size_t>(nodes.representative)];
    variable_slots.emplace_back();
    for (std::size_t variable = 0; variable < meaning.variables().size(); ++variable) {
      variable_slots.back().push_back(families.add());
    }
    for (std::size_t operand = 0; operand < nodes.operand_groups.size(); ++operand) {
      const auto group = static_cast<std::size_t>(nodes.operand_groups[operand]);
      join_indices(families, meaning.operand_index(operand), program.value(coarsening.groups[group].front()).shape,
                   dimension_slots[group], meaning, variable_slots.back());
    }
    for (std::size_t result = 0; result < nodes.result_groups.size(); ++result) {
      if (nodes.result_groups[result] < 0) {
        continue;
      }
      const auto group = static_cast<std::size_t>(nodes.result_groups[result]);
      join_indices(families, meaning.result_index(result), program.value(coarsening.groups[group].front()).shape,
                   dimension_slots[group], meaning, variable_slots.back());
    }
  }

  // The family's unit is the smallest for which every member has a whole number of elements.
  std::vector<std::int64_t> denominators;
  const auto visit = [&](const std::vector<std::vector<int>>& slots, const auto& each) {
    for (std::size_t owner = 0; owner < slots.size(); ++owner) {
      for (std::size_t place = 0; place < slots[owner].size(); ++place) {
        each(owner, place, families.find(slots[owner][place]));
      }
    }
  };
  const auto collect = [&](std::size_t /*owner*/, std::size_t /*place*/, const auto& found) {
    const auto root = static_cast<std::size_t>(found.first);
    if (root >= denominators.size()) {
      denominators.resize(root + 1, 1);
    }
    denominators[root] = std::lcm(denominators[root], found.second.denominator);
  };
  visit(dimension_slots, collect);
  visit(variable_slots, collect);
  std::vector<std::int64_t> divisors(denominators.size(), 0);
  const auto units = [&](const auto& found) {
    const auto root = static_cast<std::size_t>(found.first);
    return denominators[root] / found.second.denominator * found.second.numerator;
  };
  const auto reduce = [&](std::size_t /*owner*/, std::size_t /*place*/, const auto& found) {
    std::int64_t& divisor = divisors[static_cast<std::size_t>(found.first)];
    divisor = std::gcd(divisor, units(found));
  };
  visit(dimension_slots, reduce);
  visit(variable_slots, reduce);
  Alignment alignment;
  const auto fill = [&](std::vector<std::vector<Aligned>>& all) {
    return [&](std::size_t owner, std::size_t /*place*/, const auto& found) {
      all.resize(std::max(all.size(), owner + 1));
      all[owner].push_back({found.first, units(found) / divisors[static_cast<std::size_t>(found.first)]});
    };
  };
  visit(dimension_slots, fill(alignment.dimensions));
  visit(variable_slots, fill(alignment.variables));
  alignment.dimensions.resize(dimension_slots.size());
  alignment.variables.resize(variable_slots.size());
  return alignment;
}

}  // namespace tesser::partition
