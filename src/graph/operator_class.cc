#include "graph/operator_class.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <unordered_map>

namespace tesser::graph {
namespace {

using Classes = std::unordered_map<std::string_view, OperatorClass>;

const Classes& classes() {
  static const Classes table = [] {
    Classes all;
    const auto put = [&all](OperatorClass kind, std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) {
        all.emplace(name, kind);
      }
    };
    put(OperatorClass::kView, {"aten::view",       "aten::_unsafe_view",     "aten::reshape",  "aten::_reshape_alias",
                               "aten::flatten",    "aten::unflatten",        "aten::view_as",  "aten::t",
                               "aten::transpose",  "aten::permute",          "aten::expand",   "aten::expand_as",
                               "aten::slice",      "aten::narrow",           "aten::select",   "aten::unbind",
                               "aten::split",      "aten::split_with_sizes", "aten::chunk",    "aten::squeeze",
                               "aten::unsqueeze",  "aten::detach",           "aten::alias",    "aten::contiguous",
                               "aten::lift_fresh", "tesser::receive",        "tesser::arrange"});
    put(OperatorClass::kMovement, {"aten::clone",
                                   "aten::_to_copy",
                                   "aten::copy",
                                   "aten::lift_fresh_copy",
                                   "aten::zeros",
                                   "aten::zeros_like",
                                   "aten::ones",
                                   "aten::ones_like",
                                   "aten::full",
                                   "aten::full_like",
                                   "aten::empty",
                                   "aten::empty_like",
                                   "aten::new_zeros",
                                   "aten::new_ones",
                                   "aten::new_full",
                                   "aten::new_empty",
                                   "aten::scalar_tensor",
                                   "aten::arange",
                                   "aten::eye",
                                   "aten::tril",
                                   "aten::triu",
                                   "aten::fill",
                                   "aten::cat",
                                   "aten::stack",
                                   "aten::repeat",
                                   "aten::embedding",
                                   "aten::gather",
                                   "aten::index",
                                   "aten::index_select",
                                   "aten::flip",
                                   "aten::roll",
                                   "aten::constant_pad_nd",
                                   "aten::slice_scatter",
                                   "aten::select_scatter",
                                   "aten::slice_backward",
                                   "aten::select_backward",
                                   "aten::split_with_sizes_copy",
                                   "aten::unfold_backward",
                                   "aten::pixel_shuffle",
                                   "aten::upsample_nearest2d",
                                   "aten::one_hot",
                                   "aten::scatter",
                                   "aten::bernoulli"});
    put(OperatorClass::kElementwise, {"aten::abs",
                                      "aten::add",
                                      "aten::addcdiv",
                                      "aten::addcmul",
                                      "aten::bitwise_and",
                                      "aten::bitwise_not",
                                      "aten::bitwise_or",
                                      "aten::ceil",
                                      "aten::clamp",
                                      "aten::clamp_max",
                                      "aten::clamp_min",
                                      "aten::cos",
                                      "aten::div",
                                      "aten::elu",
                                      "aten::elu_backward",
                                      "aten::eq",
                                      "aten::erf",
                                      "aten::exp",
                                      "aten::expm1",
                                      "aten::floor",
                                      "aten::floor_divide",
                                      "aten::fmod",
                                      "aten::ge",
                                      "aten::gelu",
                                      "aten::gelu_backward",
                                      "aten::gt",
                                      "aten::hardsigmoid",
                                      "aten::hardsigmoid_backward",
                                      "aten::hardswish",
                                      "aten::hardswish_backward",
                                      "aten::hardtanh",
                                      "aten::hardtanh_backward",
                                      "aten::isnan",
                                      "aten::le",
                                      "aten::leaky_relu",
                                      "aten::leaky_relu_backward",
                                      "aten::lerp",
                                      "aten::log",
                                      "aten::log1p",
                                      "aten::log_sigmoid_backward",
                                      "aten::logical_and",
                                      "aten::logical_not",
                                      "aten::logical_or",
                                      "aten::lt",
                                      "aten::masked_fill",
                                      "aten::maximum",
                                      "aten::minimum",
                                      "aten::mish",
                                      "aten::mish_backward",
                                      "aten::mul",
                                      "aten::ne",
                                      "aten::neg",
                                      "aten::pow",
                                      "aten::reciprocal",
                                      "aten::relu",
                                      "aten::remainder",
                                      "aten::round",
                                      "aten::rsqrt",
                                      "aten::rsub",
                                      "aten::sgn",
                                      "aten::sigmoid",
                                      "aten::sigmoid_backward",
                                      "aten::sign",
                                      "aten::silu",
                                      "aten::silu_backward",
                                      "aten::sin",
                                      "aten::softplus",
                                      "aten::softplus_backward",
                                      "aten::sqrt",
                                      "aten::square",
                                      "aten::sub",
                                      "aten::tanh",
                                      "aten::tanh_backward",
                                      "aten::threshold",
                                      "aten::threshold_backward",
                                      "aten::where",
                                      "tesser::dropout",
                                      "tesser::fused"});
    put(OperatorClass::kContraction,
        {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv", "aten::addmv", "aten::dot",
         "aten::matmul", "aten::linear", "aten::convolution", "aten::convolution_backward",
         "aten::_scaled_dot_product_flash_attention_for_cpu",
         "aten::_scaled_dot_product_flash_attention_for_cpu_backward", "aten::_scaled_dot_product_flash_attention",
         "aten::_scaled_dot_product_flash_attention_backward", "aten::_scaled_dot_product_efficient_attention",
         "aten::_scaled_dot_product_efficient_attention_backward", "aten::scaled_dot_product_attention"});
    return all;
  }();
  return table;
}

std::int64_t multiply(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return product;
}

std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

// Argument `place` as a value; nullptr when it is none.
const Value* value_argument(const Program& program, const Node& node, std::size_t place) {
  if (place >= node.args.size()) {
    return nullptr;
  }
  const auto* const reference = std::get_if<ValueRef>(&node.args[place]);
  return reference == nullptr ? nullptr : &program.value(reference->id);
}

bool boolean_argument(const Node& node, std::size_t place) {
  const auto* const boolean = place < node.args.size() ? std::get_if<bool>(&node.args[place]) : nullptr;
  return boolean != nullptr && *boolean;
}

std::int64_t last_dimension(const Value& value) { return value.shape.empty() ? 1 : value.shape.back(); }

// Elements of the result times the length of the summed dimension.
std::int64_t product_operations(const Program& program, const Node& node, std::size_t left) {
  const Value* const factor = value_argument(program, node, left);
  if (factor == nullptr || node.outputs.empty() || node.outputs[0] == kNone) {
    return 0;
  }
  return multiply({2, program.value(node.outputs[0]).elements(), last_dimension(*factor)});
}

// A convolution from `input` to `output`: each element of the smaller side meets the whole filter of one channel of the
// other.
std::int64_t convolution_operations(const Value& input, const Value& output, const Value& weight, bool transposed) {
  const std::int64_t filters = weight.shape.empty() ? 1 : std::max<std::int64_t>(weight.shape[0], 1);
  return multiply({2, transposed ? input.elements() : output.elements(), weight.elements() / filters});
}

std::int64_t contraction_operations(const Program& program, const Node& node, std::string_view name) {
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv" || name == "aten::dot" ||
      name == "aten::matmul" || name == "aten::linear") {
    return product_operations(program, node, 0);
  }
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv") {
    return product_operations(program, node, 1);
  }
  if (name == "aten::convolution") {
    const Value* const input = value_argument(program, node, 0);
    const Value* const weight = value_argument(program, node, 1);
    if (input == nullptr || weight == nullptr || node.outputs.empty() || node.outputs[0] == kNone) {
      return 0;
    }
    return convolution_operations(*input, program.value(node.outputs[0]), *weight, boolean_argument(node, 6));
  }
  if (name == "aten::convolution_backward") {
    const Value* const output = value_argument(program, node, 0);
    const Value* const input = value_argument(program, node, 1);
    const Value* const weight = value_argument(program, node, 2);
    if (output == nullptr || input == nullptr || weight == nullptr) {
      return 0;
    }
    std::int64_t gradients = 0;  // of input and weight; that of the bias is a sum
    for (std::size_t place = 0; place < std::min<std::size_t>(node.outputs.size(), 2); ++place) {
      gradients += node.outputs[place] != kNone;
    }
    return multiply({gradients, convolution_operations(*input, *output, *weight, boolean_argument(node, 7))});
  }
  // Attention: scores and their product with the values; backward computes the scores again and four products.
  const bool backward = name.ends_with("_backward");
  const Value* const query = value_argument(program, node, backward ? 1 : 0);
  const Value* const key = value_argument(program, node, backward ? 2 : 1);
  const Value* const value = value_argument(program, node, backward ? 3 : 2);
  if (query == nullptr || key == nullptr || value == nullptr || query->shape.empty() || key->shape.size() < 2 ||
      query->shape.back() == 0) {
    return 0;
  }
  const std::int64_t rows = query->elements() / query->shape.back();
  const std::int64_t keys = key->shape[key->shape.size() - 2];
  const std::int64_t scores = multiply({2, rows, keys, query->shape.back()});
  const std::int64_t outputs = multiply({2, rows, keys, last_dimension(*value)});
  return backward ? add(multiply({3, scores}), multiply({2, outputs})) : add(scores, outputs);
}

}  // namespace

std::string_view base_name(std::string_view op) { return op.substr(0, op.find('.')); }

OperatorClass operator_class(std::string_view op) {
  const auto found = classes().find(base_name(op));
  return found == classes().end() ? OperatorClass::kOther : found->second;
}

std::int64_t floating_point_operations(const Program& program, const Node& node) {
  switch (operator_class(node.op)) {
    case OperatorClass::kView:
    case OperatorClass::kMovement:
      return 0;
    case OperatorClass::kContraction:
      return contraction_operations(program, node, base_name(node.op));
    case OperatorClass::kElementwise:
    case OperatorClass::kOther:
      break;
  }
  std::int64_t largest = 0;
  for (const ValueId id : values_read(node)) {
    largest = std::max(largest, program.value(id).elements());
  }
  for (const ValueId id : node.outputs) {
    if (id != kNone) {
      largest = std::max(largest, program.value(id).elements());
    }
  }
  return largest;
}

}  // namespace tesser::graph
