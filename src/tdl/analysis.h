// How analyze() goes about it. Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tdl/binding.h"
#include "tdl/semantics_state.h"

namespace tesser::tdl {

using NodeState = SemanticsBuilder::State;

// An equation that holds for the node, with what it reads.
struct Active {
  const Equation* equation = nullptr;
  std::vector<TensorUse> results;
  // By term that exists; a term with a tensor that is not given does not.
  std::vector<const Term*> terms;
  std::vector<std::vector<int>> bound;  // variables of the node, by term
  std::vector<int> buried;
};

// Where an extent came from, stronger ones last.
enum class Source : std::uint8_t { kNone, kSizeOne, kArgument, kResult, kWhere };

class Analysis {
 public:
  Analysis(const graph::Program& program, const graph::Node& node, const Description& description)
      : binding_(program, node, description), description_(description), node_(node) {}

  // False when the description has nothing to say about this node.
  bool run(NodeState& state);
  const std::optional<std::string>& error() const { return binding_.error(); }

 private:
  bool choose_equations();
  void infer_lengths();
  bool infer_from(const Expression* access, const std::vector<Expression>& indices, std::int64_t rank,
                  std::vector<std::int64_t>& proposals);
  void bind_variables();
  void read_tensors();
  void read_for_absent_results();
  void add_reshape(const Active& active);
  AccessIndex index_of(const std::vector<Expression>& indices, const TensorUse& use, const std::vector<TensorUse>& list,
                       const std::string& name);
  void set_extent(int variable, std::int64_t extent, Source source, const std::string& name);
  void leave_out_unused();
  void find_strategies();
  std::optional<Outcome> outcome(const Active& active, int variable, std::size_t result) const;
  bool outermost(const AffineIndex& form, int variable) const;
  bool splits_reads(int variable) const;
  void check_overflow();
  void elementwise();
  void find_needed();
  void finish();

  std::int64_t extent(int variable) const { return state_->variables[static_cast<std::size_t>(variable)].extent; }

  Binding binding_;
  const Description& description_;
  const graph::Node& node_;
  NodeState* state_ = nullptr;
  std::vector<Active> active_;
  std::vector<Active> absent_;  // of results that the node does not have
  std::vector<Source> sources_;
};

}  // namespace tesser::tdl
