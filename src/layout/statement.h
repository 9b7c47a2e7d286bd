// What the kernel of an operator states about the layouts of its tensors: which it takes, and which it gives.
//
// Statements stand in operators.layout, whose lines tests/python/layout_sweep measures, and tesser.layout, which has
// our own kernels and goes first. Elementwise operators without a line run through PyTorch's TensorIterator, which
// takes any strides; any other operator without a line takes and gives row-major tensors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "layout/strides.h"

namespace tesser::layout {

struct ArgumentRule {
  enum class Kind : std::uint8_t {
    kRows,   // dense, row-major
    kAny,    // whatever the strides are
    kDense,  // dense in any order of the dimensions
    kImage,  // row-major or channels-last
    kInner,  // last dimension dense, others as they are
    kLike,   // dense in the order of another argument
  };
  Kind kind = Kind::kRows;
  std::size_t argument = 0;  // kLike
};

struct ResultRule {
  enum class Kind : std::uint8_t {
    kRows,         // row-major
    kIterator,     // as TensorIterator makes it of tensor arguments, all or those stated, in that order
    kLike,         // as empty_like makes it of an argument
    kImage,        // channels-last where one of the arguments is, else row-major
    kImages,       // channels-last where all tensors of a list are, else row-major
    kConvolution,  // channels-last where input or weight is, else row-major
    kOrder,        // dense in a stated order of the dimensions
    kView,         // a view of the first argument
  };
  Kind kind = Kind::kRows;
  std::vector<std::size_t> arguments;  // kIterator, kLike, kImage, kImages
  Order order;                         // kOrder
};

struct Statement {
  ArgumentRule others;  // of arguments that are not named
  std::unordered_map<std::size_t, ArgumentRule> arguments;
  std::vector<ResultRule> results;  // the last one is that of all further results too

  const ArgumentRule& argument(std::size_t position) const;
  const ResultRule& result(std::size_t index) const;
};

// Statements by operator. The message of an error names the line.
Result<std::unordered_map<std::string, Statement>> parse_statements(std::string_view text);

// That of an operator with its overload; thread-safe.
const Statement& statement_of(const std::string& op);

}  // namespace tesser::layout
