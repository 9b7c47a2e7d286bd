// A description bound to one node: values of its expressions at the node's shapes and attributes. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "graph/program.h"
#include "tdl/description.h"
#include "tdl/semantics.h"

namespace tesser::tdl {

// Stands in an AffineIndex for offset(t) until the dimension is known in which it stands.
inline constexpr int kOffsetVariable = std::numeric_limits<int>::max();

// An attribute, or affine forms: one, or a list of them.
struct Evaluated {
  bool is_index = false;
  bool is_list = false;  // of forms
  std::vector<AffineIndex> forms;
  graph::Argument attribute;
};

// One tensor that an access or result means.
struct TensorUse {
  int operand = -1;         // of the node, or -1 for a result
  int result = -1;          // of the node, or -1 for an operand
  std::size_t element = 0;  // of the list
};

// What local expressions may ask about a part; semantics.h.
struct LocalPart {
  const Box* box = nullptr;
  const LocalCall* call = nullptr;
};

// After the first defect every function returns something of no meaning.
class Binding {
 public:
  Binding(const graph::Program& program, const graph::Node& node, const Description& description);

  const Description& description() const { return description_; }
  const graph::Node& node() const { return node_; }
  bool failed() const { return error_.has_value(); }
  const std::optional<std::string>& error() const { return error_; }
  void fail(const std::string& reason);

  // The node's argument, or the parameter's default, or nullptr.
  const graph::Argument* argument(int parameter) const;
  // Tensors of a parameter that are given, in order; nulls of a list are left out.
  std::vector<TensorUse> tensors_of_parameter(int parameter) const;
  // Those of a result that exist.
  std::vector<TensorUse> tensors_of_result(int result) const;
  const Shape& shape_of(const TensorUse& use) const;
  std::size_t operand_count() const { return operands_.size(); }
  const Shape& operand_shape(std::size_t operand) const { return program_.value(operands_[operand]).shape; }

  bool holds(const Expression& condition);
  Evaluated evaluate(const Expression& expression);
  std::optional<std::int64_t> integer(const Expression& expression);
  // As forms, one for each dimension that the index covers.
  std::vector<AffineIndex> index_forms(const Expression& expression, bool* is_list = nullptr);

  // Lengths of packs; those known first are set by hand.
  struct Length {
    int pack = -1;  // whose length is not known yet and adds to `constant`
    std::int64_t constant = 1;
    bool list = false;
    bool spread = false;  // a list of one that goes with any other
  };
  Length length_of(const Expression& expression);
  void set_length(int variable, std::int64_t length);
  std::int64_t length(int variable) const { return lengths_[static_cast<std::size_t>(variable)]; }  // -1: not known

  // Variables of the node. A description's variable has `length` of them, from `first` on.
  int first_of(int variable) const { return first_[static_cast<std::size_t>(variable)]; }
  int add_variables(int variable);
  std::vector<Variable>& variables() { return variables_; }

  // What analyze() found out, instead of finding it out again.
  void adopt(const std::vector<Variable>& variables, const std::vector<int>& first,
             const std::vector<std::int64_t>& lengths) {
    variables_ = variables;
    first_ = first;
    lengths_ = lengths;
  }

  // The tensor whose index is being evaluated, for offset(t), and for size(t, d) of a list.
  void set_current(const TensorUse* use) { current_ = use; }
  void set_part(const LocalPart* part) { part_ = part; }
  std::vector<std::size_t> axes(const Expression& expression, std::int64_t rank);

 private:
  Evaluated evaluate_binary(const Expression& expression);
  Evaluated evaluate_call(const Expression& expression);
  Evaluated evaluate_local_call(const Expression& expression);
  Evaluated pack_function(const Expression& expression);
  std::optional<TensorUse> tensor(const Expression& expression);
  Evaluated variable_forms(int variable);
  std::optional<std::vector<std::int64_t>> integers(const Evaluated& value);
  std::vector<AffineIndex> to_forms(const Evaluated& value, const Expression& expression, bool* is_list = nullptr);
  bool axes_mean_all(const Expression& expression);

  const graph::Program& program_;
  const graph::Node& node_;
  const Description& description_;
  std::vector<graph::ValueId> operands_;
  std::vector<std::size_t> first_operand_;  // by argument
  std::vector<std::int64_t> lengths_;
  std::vector<int> first_;
  std::vector<Variable> variables_;
  const TensorUse* current_ = nullptr;
  const LocalPart* part_ = nullptr;
  std::optional<std::string> error_;
};

}  // namespace tesser::tdl
