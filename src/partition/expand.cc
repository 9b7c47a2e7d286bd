#include "partition/expand.h"

#include <utility>

#include "graph/verify.h"
#include "partition/expand_rewriter.h"

namespace tesser::partition {
namespace {

Rewriting find_rewriting(std::string_view op) {
  for (const auto find : {find_reduction_rewriting, find_split_rewriting, find_batch_norm_rewriting,
                          find_convolution_rewriting, find_loss_rewriting}) {
    if (const Rewriting rewriting = find(op); rewriting != nullptr) return rewriting;
  }
  return nullptr;
}

}  // namespace

Result<graph::Program> expand(const graph::Program& program) {
  Rewriter rewriter(program);
  for (graph::NodeId id = 0; id < static_cast<graph::NodeId>(program.nodes.size()); ++id) {
    rewriter.begin_node(id);
    const Rewriting rewriting = find_rewriting(program.node(id).op);
    if (rewriting != nullptr && rewriting(rewriter)) {
      rewriter.end_node();
    } else {
      rewriter.copy_node();
    }
  }
  graph::Program expanded = rewriter.finish();
  if (const Result<void> verified = graph::verify(expanded); !verified) {
    return invalid_input("program " + program.name +
                         ", with operators rewritten so that they can be cut: " + verified.error().message);
  }
  return expanded;
}

}  // namespace tesser::partition
