// What a description says about cutting its operator, with symbols for sizes.
#pragma once

#include <string>
#include <vector>

#include "tdl/catalogue.h"

namespace tesser::tdl {

// A tensor in the first of two parts.
struct ExplainedTensor {
  std::string name;
  bool made = false;     // a result, else an argument
  std::string region;    // "[0:I/2, 0:K]"
  std::string together;  // results: how parts are put together, "concatenate"; of an argument "zeros in others"
};

struct ExplainedCut {
  std::string variable;  // "p..." for a pack
  std::string extent;    // "P"
  std::string note;      // under which condition
  std::vector<ExplainedTensor> tensors;
};

// Variables that are not cut, and why.
struct ExplainedWhole {
  std::string variable;
  std::string reason;
};

// For one choice of equations, where several stand for a result.
struct ExplainedCase {
  std::vector<std::string> conditions;
  std::vector<ExplainedCut> cuts;
  std::vector<ExplainedWhole> wholes;
};

struct Explanation {
  std::string op;
  std::string place;               // "core.tdl:3"
  bool elementwise = false;        // nothing below is filled then
  std::vector<std::string> lines;  // the description as written
  std::vector<ExplainedCase> cases;
};

Explanation explain(const Description& description);

}  // namespace tesser::tdl
