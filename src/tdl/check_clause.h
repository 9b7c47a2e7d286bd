// The check clause of a description, and the example calls of an elementwise one: how random calls of an operator are
// drawn (docs/tdl.md, Checking).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tdl/description.h"

namespace tesser::tdl {

// One item of a check clause; they are drawn in order, and may use the names of those before.
struct CheckItem {
  enum class Kind : std::uint8_t {
    kTensor,  // name[dims] in data: an argument or result
    kChoice,  // name in choices: one of them
    kRange,   // name in first..last: an integer; of a pack, how many dimensions it has
    kValue,   // name = value
  };
  Kind kind = Kind::kTensor;
  std::string name;
  bool pack = false;
  int element = -1;    // of a list of tensors, when each has its own item
  bool maybe = false;  // given or not, by chance
  std::vector<Expression> dims;
  std::string data = "float";
  std::optional<Expression> below;      // integers are less than this
  std::vector<Expression> values;       // choices; first and last; or the value
  std::optional<Expression> condition;  // of a result: whether it exists
};

// An argument of an elementwise call.
struct ExampleArgument {
  bool tensor = true;
  std::string data = "float";
  bool full = false;    // has the shape of the result
  bool scalar = false;  // has no dimensions
  Expression literal;   // when it is no tensor
};
struct ExampleCall {
  std::vector<ExampleArgument> arguments;
  std::vector<std::string> results;  // kinds of data; empty: one result of the first argument's type
};

// Errors are kInvalidInput and name the place.
Result<std::vector<CheckItem>> parse_check(const Description& description, const CheckClause& clause);
Result<ExampleCall> parse_example(const Description& description, const CheckClause& clause);

}  // namespace tesser::tdl
