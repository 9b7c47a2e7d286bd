// Rewriting one program into another, node by node. Internal to this folder; single-threaded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "graph/program.h"

namespace tesser::partition {

// What a new node gives: a value in place of one of the source program, with its name and type, or one of its own.
struct NewResult {
  graph::ValueId replaces = graph::kNone;
  DType dtype = DType::kFloat32;
  Shape shape;
};

// Copies `source` and lets the current node be replaced by several. Ids of values in arguments and results of new nodes
// are those of the new program, unless they are said to be of the source.
class Rewriter {
 public:
  explicit Rewriter(const graph::Program& source);

  const graph::Node& node() const { return *node_; }  // the current one, of the source

  // Arguments of the current node with the new program's values; none when it is not given.
  graph::Argument argument(std::size_t index) const;
  graph::ValueId value(std::size_t index) const;  // kNone when it is none
  // The results of the current node (ids of the source); kNone past the end.
  graph::ValueId result(std::size_t index) const;
  const graph::Value& source_value(graph::ValueId id) const { return source_.value(id); }
  // Whether a node or output of the source names this value of the source; false for kNone.
  bool is_read(graph::ValueId source_value) const;

  // A copy: adding nodes moves values.
  graph::Value new_value(graph::ValueId id) const { return program_.value(id); }

  // Adds a node named after the current one ("NAME/suffix", or NAME for an empty suffix, which one node may have) with
  // all else of it. Results may be absent, but not all.
  std::vector<graph::ValueId> add(std::string_view suffix, std::string op, std::vector<graph::Argument> args,
                                  const std::vector<std::optional<NewResult>>& results);
  // The same with one result.
  graph::ValueId add_one(std::string_view suffix, std::string op, std::vector<graph::Argument> args, NewResult result);
  // Nodes that name the current one as their forward node name the one added last from now on; without a call it is the
  // last of all.
  void mark_forward();

  // Walks through the source: begin_node() for each node in order, then either new nodes and end_node(), or
  // copy_node(). finish() gives the program.
  void begin_node(graph::NodeId id);
  void copy_node();
  void end_node();
  graph::Program finish();

 private:
  std::string unique(std::string name, std::unordered_set<std::string>& taken) const;
  graph::ValueId renamed(graph::ValueId source_value) const {
    return source_value == graph::kNone ? graph::kNone : values_[static_cast<std::size_t>(source_value)];
  }
  graph::Argument renamed(const graph::Argument& argument) const;
  graph::NodeId forward() const;

  const graph::Program& source_;
  graph::Program program_;
  std::vector<graph::ValueId> values_;  // of the new program, by value of the source
  std::vector<graph::NodeId> nodes_;    // by node of the source: the one that stands for it
  std::vector<bool> read_;
  std::unordered_set<std::string> node_names_;   // of both programs
  std::unordered_set<std::string> value_names_;  // of both programs
  const graph::Node* node_ = nullptr;
  graph::NodeId node_id_ = graph::kNone;
  std::size_t first_ = 0;  // of the nodes that replace the current one
  graph::NodeId marked_ = graph::kNone;
};

NewResult in_place_of(graph::ValueId source_value);
graph::Argument dtype_argument(DType dtype);

// One operator's rewriting: adds the nodes that replace the current one, or returns false and adds none.
using Rewriting = bool (*)(Rewriter&);

// nullptr for an operator that stays. By family, one file each.
Rewriting find_reduction_rewriting(std::string_view op);    // mean, var, norms
Rewriting find_split_rewriting(std::string_view op);        // lists of views
Rewriting find_batch_norm_rewriting(std::string_view op);   // training
Rewriting find_convolution_rewriting(std::string_view op);  // gradients
Rewriting find_loss_rewriting(std::string_view op);         // averages

}  // namespace tesser::partition
