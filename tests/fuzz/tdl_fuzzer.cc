// Any bytes as descriptions: an error with its place, or descriptions that every later stage can take with any node.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tdl/catalogue.h"
#include "tdl/description.h"
#include "tdl/explain.h"
#include "tdl/semantics.h"

namespace {

using namespace tesser;

// A call of the operator with tensors for its tensors and numbers for its attributes, some of which fit.
struct Call {
  graph::Program program;
  graph::Node node;

  graph::ValueId add(Shape shape) {
    program.values.emplace_back();
    program.values.back().shape = std::move(shape);
    return static_cast<graph::ValueId>(program.values.size() - 1);
  }
};

Call call_of(const tdl::Description& description, int variant) {
  const Shape shapes[] = {{4, 6}, {6, 4}, {4}, {}, {2, 3, 8}, {1, 6}, {0, 2}, {24}};
  std::size_t next = static_cast<std::size_t>(variant);
  const auto shape = [&] { return shapes[next++ % std::size(shapes)]; };
  Call call;
  call.node.name = "node";
  call.node.op = description.op;
  for (const tdl::Parameter& parameter : description.parameters) {
    if (parameter.list) {
      call.node.args.emplace_back(
          std::vector<graph::ValueRef>{{call.add(shape())}, {graph::kNone}, {call.add(shape())}});
    } else if (parameter.tensor) {
      call.node.args.emplace_back(graph::ValueRef{call.add(shape())});
    } else {
      switch (next++ % 5) {
        case 0:
          call.node.args.emplace_back(std::vector<std::int64_t>{1, 2});
          break;
        case 1:
          call.node.args.emplace_back(std::int64_t{1});
          break;
        case 2:
          call.node.args.emplace_back(true);
          break;
        case 3:
          call.node.args.emplace_back(std::int64_t{9223372036854775807});
          break;
        default:
          call.node.args.emplace_back(graph::None{});
      }
    }
  }
  for (std::size_t r = 0; r < description.results.size() || (description.elementwise && r == 0); ++r) {
    call.node.outputs.push_back(call.add(shape()));
  }
  return call;
}

void try_node(const tdl::Catalogue& catalogue, const Call& call) {
  const tdl::NodeSemantics semantics = tdl::analyze(call.program, call.node, catalogue);
  TESSER_CHECK(semantics.described() == semantics.misfit().empty(), semantics.misfit());
  std::vector<tdl::Box> boxes = {semantics.whole_box()};
  for (const tdl::Strategy& strategy : semantics.strategies()) {
    const auto v = static_cast<std::size_t>(strategy.variable);
    for (std::int64_t part = 0; part < 3; ++part) {
      boxes.push_back(semantics.whole_box());
      boxes.back()[v] = tdl::part_of(boxes.back()[v], 3, part);
    }
  }
  for (const tdl::Box& box : boxes) {
    const Result<tdl::LocalCall> local = tdl::localize(call.program, call.node, semantics, catalogue, box);
    if (local.has_value()) {
      for (const tdl::LocalResult& result : local->results) {
        TESSER_CHECK(tdl::contains(result.produced, result.region), tdl::region_text(result.region));
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tdl::Catalogue catalogue;
  const Result<void> added = catalogue.add(text, "fuzzed.tdl");
  if (!added.has_value()) {
    TESSER_CHECK(added.error().message.starts_with("fuzzed.tdl:"), added.error().message);
    return 0;
  }
  for (const std::string& op : catalogue.operators()) {
    const tdl::Description& description = *catalogue.find(op);
    (void)tdl::explain(description);
    for (int variant = 0; variant < 8; ++variant) {
      try_node(catalogue, call_of(description, variant));
    }
  }
  return 0;
}
