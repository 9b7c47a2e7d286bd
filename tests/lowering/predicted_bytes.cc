// For each program directory given: plans it with several presets and numbers of workers, lowers the plans, and prints
// a line of what the plan says that workers receive in a step and of what the lowered programs send. Run by
// tests/python/plan/test_predicted_bytes.py.
//
//   predicted_bytes PRESET,... WORKERS,... NAME.tesser ...
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "graph/read.h"
#include "lowering/lower.h"
#include "partition/expand.h"
#include "partition/format.h"
#include "partition/search.h"
#include "partition/signature.h"
#include "partition/summary.h"

namespace tesser {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> entries;
  std::istringstream stream(list);
  for (std::string entry; std::getline(stream, entry, ',');) entries.push_back(entry);
  return entries;
}

Result<void> print_program(const std::string& path, const std::vector<std::string>& presets,
                           const std::vector<std::string>& counts) {
  const tdl::Catalogue catalogue = tdl::Catalogue::shipped();
  TESSER_ASSIGN_OR_RETURN(const graph::Program captured, graph::read_program(path));
  TESSER_ASSIGN_OR_RETURN(const graph::Program program, partition::expand(captured));
  const std::vector<tdl::NodeSemantics> semantics = partition::analyze_nodes(program, catalogue);
  for (const std::string& preset : presets) {
    for (const std::string& count : counts) {
      partition::SearchOptions options;
      options.workers = std::stoi(count);
      options.preset = partition::preset_from_name(preset).value();
      const Result<partition::Plan> plan = partition::search(program, semantics, options);
      if (!plan) continue;  // nothing that this preset may cut into so many parts
      const partition::Traffic traffic = partition::plan_traffic(program, semantics, *plan);
      TESSER_ASSIGN_OR_RETURN(const lowering::Lowered lowered,
                              lowering::lower(program, semantics, catalogue, *plan, {}));
      std::printf("%s %s %s %lld %lld\n", captured.name.c_str(), preset.c_str(), count.c_str(),
                  static_cast<long long>(traffic.total), static_cast<long long>(lowered.bytes));
    }
  }
  return {};
}

}  // namespace
}  // namespace tesser

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: predicted_bytes PRESET,... WORKERS,... NAME.tesser ...\n");
    return 2;
  }
  for (int place = 3; place < count; ++place) {
    const tesser::Result<void> done =
        tesser::print_program(words[place], tesser::split(words[1]), tesser::split(words[2]));
    if (!done) {
      std::fprintf(stderr, "%s: %s\n", words[place], done.error().message.c_str());
      return 1;
    }
  }
  return 0;
}
