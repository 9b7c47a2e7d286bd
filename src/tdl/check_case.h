// Random calls of a described operator, drawn as its check clauses say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/tensor.h"
#include "graph/program.h"
#include "tdl/description.h"

namespace tesser::tdl {

// The decisions by which a case is drawn, each a number below some limit, smaller ones simpler. They are recorded, and
// given again they draw the same case: a failing case is made smaller by making its decisions smaller.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : seed_(seed), generator_(seed) {}
  // Gives `decisions` again, 0 where there are no more; one past its limit becomes the largest.
  Choices(std::uint64_t seed, std::vector<std::int64_t> decisions)
      : seed_(seed), generator_(seed), replayed_(true), given_(std::move(decisions)) {}

  std::int64_t below(std::int64_t limit);
  const std::vector<std::int64_t>& made() const { return made_; }
  std::uint64_t seed() const { return seed_; }  // of the data

 private:
  std::uint64_t seed_;
  std::mt19937_64 generator_;
  bool replayed_ = false;
  std::vector<std::int64_t> given_;
  std::vector<std::int64_t> made_;
};

// Row-major elements.
struct TensorData {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<std::byte> bytes;
};

// A forward program of one node, and the contents of its inputs, by ValueId.
struct CheckCase {
  graph::Program program;
  std::vector<TensorData> inputs;
};

// Contents of a kind of data ("float", "unit", "int64", ...; docs/tdl.md). Integers are below `limit`.
TensorData random_data(const std::string& kind, const Shape& shape, std::int64_t limit, std::uint64_t seed);

// Draws a case of clause `clause` of the description. kInvalidInput when the clause does not say enough.
Result<CheckCase> draw_case(const Description& description, const std::string& op, std::size_t clause,
                            Choices& choices);

// "aten::mm(a float32[2, 3], b float32[3, 4]) -> c float32[2, 4]"
std::string call_text(const graph::Program& program, const graph::Node& node);

}  // namespace tesser::tdl
