// What a program amounts to: parameters, operators, bytes and work, in all and by module.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/program.h"

namespace tesser::graph {

inline constexpr std::size_t kPhases = 4;
inline constexpr std::size_t kInputRoles = 8;

// One module with everything below it.
struct ModuleSummary {
  std::string path;             // "" for the root
  int depth = 0;                // 0 for the root
  std::int64_t parameters = 0;  // elements; a tied parameter counts where its first name lies
  std::int64_t nodes = 0;
  std::array<std::int64_t, kPhases> floating_point_operations{};  // by Phase
};

struct Summary {
  std::int64_t parameters = 0;  // elements
  std::int64_t trainable_parameters = 0;
  std::array<std::int64_t, kInputRoles> values{};  // number of inputs by Role
  std::array<std::int64_t, kInputRoles> bytes{};   // of inputs by Role
  std::array<std::int64_t, kPhases> nodes{};       // by Phase
  std::array<std::int64_t, kPhases> floating_point_operations{};
  std::map<std::string, std::int64_t> operators;  // number of nodes by operator
  std::int64_t result_bytes = 0;                  // of all nodes' results, views left out
  std::vector<ModuleSummary> modules;  // each before its children, in the order in which the program first uses them
};

// `depth` limits how deep the modules are listed: 0 only the root, negative without limit. Nodes without a module count
// for the root. Numbers saturate at the largest std::int64_t.
Summary summarize(const Program& program, int depth = -1);

}  // namespace tesser::graph
