#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/passes/passes.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::Program;
using graph::Value;
using graph::ValueId;
using graph::ValueRef;

// Packing costs about half a product of few rows; from so many products of one operand on it pays.
constexpr std::size_t kLeastProducts = 4;
// A float32 matrix product that could take its right operand packed.
struct Product {
  ValueId left = kNone;
  ValueId right = kNone;
  ValueId addend = kNone;  // of the result's shape, or a row
};

bool product_of(const Program& program, const Node& node, Product& product) {
  if (node.op == "aten::mm") {
    product = {graph::value_argument(node, 0), graph::value_argument(node, 1), kNone};
  } else if (is_plain_addmm(node)) {
    product = {graph::value_argument(node, 1), graph::value_argument(node, 2), graph::value_argument(node, 0)};
  } else {
    return false;
  }
  if (product.left == kNone || product.right == kNone) return false;
  const Value& left = program.value(product.left);
  const Value& right = program.value(product.right);
  if (left.dtype != DType::kFloat32 || left.shape.size() != 2 || right.shape.size() != 2 || left.shape[0] < 2)
    return false;
  if (left.shape[0] * left.shape[1] * right.shape[1] < kLeastMultiplications) return false;
  if (product.addend == kNone) return true;
  const Shape& addend = program.value(product.addend).shape;
  return addend == Shape{left.shape[0], right.shape[1]} || addend == Shape{right.shape[1]};
}

}  // namespace

graph::Program pack_shared_weights(graph::Program program) {
  std::map<ValueId, std::size_t> products;  // by right operand
  Product product;
  for (const Node& node : program.nodes) {
    if (product_of(program, node, product)) ++products[product.right];
  }
  std::map<ValueId, ValueId> packed;
  std::vector<Node> nodes;
  for (const Node& node : program.nodes) {
    if (!product_of(program, node, product) || products[product.right] < kLeastProducts) {
      nodes.push_back(node);
      continue;
    }
    auto [place, is_new] = packed.try_emplace(product.right, static_cast<ValueId>(program.values.size()));
    if (is_new) {
      Value value = program.value(product.right);
      value.name += "/packed";
      value.role = graph::Role::kIntermediate;
      Node pack;
      pack.name = value.name;
      pack.op = "tesser::pack_weight";
      pack.args = {ValueRef{product.right}};
      pack.outputs = {place->second};
      pack.phase = node.phase;
      pack.module = node.module;
      program.values.push_back(std::move(value));
      nodes.push_back(std::move(pack));
    }
    Node replaced = node;
    replaced.op = "tesser::packed_product";
    replaced.args = {ValueRef{product.left}, ValueRef{place->second}, graph::None()};
    if (product.addend != kNone) replaced.args[2] = ValueRef{product.addend};
    nodes.push_back(std::move(replaced));
  }
  replace_nodes(program, std::move(nodes));
  return program;
}

}  // namespace tesser::runtime
