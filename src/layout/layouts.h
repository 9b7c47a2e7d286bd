// Where the elements of each value of a program lie while it runs, known before the first step.
//
// A program's values have shapes; layouts follow from where its inputs lie and from what each operator's kernel states
// (statement.h). The executor makes the statements true: a result that a kernel leaves otherwise is brought into its
// stated layout, and arguments that a kernel does not take are brought into one that it takes (docs/runtime.md,
// Layout). Whatever needs to know a layout asks here: memory planning, lowering, the passes.
#pragma once

#include <optional>
#include <vector>

#include "graph/program.h"
#include "layout/strides.h"

namespace tesser::layout {

enum class Weights : std::uint8_t {
  kChannelsLast,  // weights of 2-d convolutions and their optimizer state lie channels-last
  kRowMajor,
};

class Layouts {
 public:
  // Knows the inputs' layouts; results are added node by node, in an order in which the program can run. The program
  // must outlive it and may grow meanwhile.
  explicit Layouts(const graph::Program& program, Weights weights = Weights::kChannelsLast);
  // Of all values of a program.
  static Layouts of(const graph::Program& program, Weights weights = Weights::kChannelsLast);

  // Results of a node whose arguments are known and lie as its kernel takes them.
  void define(const graph::Node& node);

  // Empty strides with a shape that is not: of a value that is not known.
  const Strides& operator[](graph::ValueId id) const { return strides_[static_cast<std::size_t>(id)]; }
  // Whether a node's results lie in its first argument's memory.
  bool is_view(const graph::Node& node) const { return views(node).has_value(); }

  // Where an argument of a node has to lie, when it lies otherwise than the kernel takes it; nothing where it may stay.
  // `position` counts arguments; all values of a list have that of the list.
  std::optional<Strides> needed(const graph::Node& node, std::size_t position, graph::ValueId argument) const;

 private:
  bool is_known(graph::ValueId id) const;
  // Of each result, where all are views of the first argument.
  std::optional<std::vector<Strides>> views(const graph::Node& node) const;
  Strides result(const graph::Node& node, std::size_t index) const;
  bool is_channels_last_convolution(const graph::Node& node) const;
  void set(graph::ValueId id, Strides strides);

  const graph::Program& program_;
  std::vector<Strides> strides_;  // by value
};

}  // namespace tesser::layout
