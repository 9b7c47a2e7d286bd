// Indices as people read them: expressions as text, and intervals over parts with symbols for sizes. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tdl/description.h"

namespace tesser::tdl {

// As it would be written in a .tdl file.
std::string expression_text(const Expression& expression);

// A sum of products of symbols, in the order in which they came.
class Polynomial {
 public:
  using Product = std::vector<std::string>;  // sorted

  static Polynomial of(std::int64_t constant);
  static Polynomial of(std::string symbol);

  Polynomial& add(const Polynomial& other, std::int64_t times = 1);
  Polynomial times(const Polynomial& other) const;
  bool operator==(const Polynomial& other) const;
  bool zero() const { return terms_.empty(); }
  // What stands with the symbol, which no product holds twice; and everything else.
  std::pair<Polynomial, Polynomial> split(const std::string& symbol) const;
  bool negative() const { return !terms_.empty() && terms_.front().second < 0; }
  std::string text() const;  // "X/2 + R - 1"

 private:
  std::vector<std::pair<Product, std::int64_t>> terms_;
};

// The index of a tensor over the whole node, or over the first half of one variable.
class SymbolicIndex {
 public:
  SymbolicIndex(const Description& description, int cut) : description_(description), cut_(cut) {}

  std::string interval(const Expression& index) const;  // "0:X/2 + R - 1"
  std::string extent(int variable) const;               // "X"; of a pack one for each dimension
  // Another variable inside whose steps this one counts in the index, as c in g * channels + c; -1 when there is none.
  int outer(const Expression& index, int variable) const;

 private:
  std::optional<Polynomial> polynomial(const Expression& expression) const;
  Polynomial bound(Polynomial form, bool greatest) const;
  std::string opaque(const Expression& expression) const;
  std::string whole_or_half(int variable) const;
  std::string symbol(int variable) const;
  const std::string* constant_extent(int variable) const;

  const Description& description_;
  int cut_;
};

}  // namespace tesser::tdl
