// Checks descriptions of operators (docs/tdl.md) against the kernels that run them.
//
// A call is run on the whole, and cut in every way that the description offers: each strategy alone into even and
// uneven parts, empty ones too, and pairs of strategies one inside the other. The parts are run as the local calls of
// the description, on nothing but the regions that it says they need, recombined, and compared with the whole.
//
// Elements that are moved, chosen, counted or drawn must be equal, others within the rounding of their type: kernels
// sum in other orders and vectorise other elements when a tensor has another size. One thread at a time in a process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/program.h"
#include "tdl/catalogue.h"

namespace tesser::runtime {

struct DescriptionCheckOptions {
  std::uint64_t seed = 1;
  int cases = 12;  // random calls of each check clause
};

struct DescriptionCheck {
  std::string op;
  std::int64_t calls = 0;
  std::int64_t strategies = 0;  // that were tried, over all calls
  std::int64_t parts = 0;       // that were run
  // What is wrong, with the smallest call that shows it; empty when nothing is.
  std::string failure;
};

// Draws calls as the check clauses of the description of `op` say. kInvalidInput when there is no such description, it
// has no check clause, or a clause draws calls that the kernel or the description refuses.
Result<DescriptionCheck> check_description(const tdl::Catalogue& catalogue, const std::string& op,
                                           const DescriptionCheckOptions& options);

// Checks every node of a program with its own shapes and attributes and random data, nodes of one signature once; one
// entry an operator in order of name. `undescribed` gets the operators without description.
Result<std::vector<DescriptionCheck>> check_program(const tdl::Catalogue& catalogue, const graph::Program& program,
                                                    const DescriptionCheckOptions& options,
                                                    std::vector<std::string>* undescribed);

}  // namespace tesser::runtime
