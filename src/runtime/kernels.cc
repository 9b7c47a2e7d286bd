#include "runtime/kernels.h"

#include <memory>
#include <utility>

#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>

namespace tesser::runtime {
namespace {

using graph::Argument;
using graph::Node;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;

std::optional<c10::IValue> enumerator_value(const graph::Enumerator& enumerator) {
  if (enumerator.kind == "dtype") {
    if (const auto dtype = dtype_from_name(enumerator.name)) return c10::IValue(scalar_type(*dtype));
    return std::nullopt;
  }
  if (enumerator.kind == "device") {
    // Programs name the device of the machine they were captured for; here every tensor is on the processor.
    return c10::IValue(c10::Device(c10::DeviceType::CPU));
  }
  if (enumerator.kind == "layout" && enumerator.name == "strided") return c10::IValue(c10::Layout::Strided);
  if (enumerator.kind == "memory_format") {
    if (enumerator.name == "contiguous_format") return c10::IValue(c10::MemoryFormat::Contiguous);
    if (enumerator.name == "preserve_format") return c10::IValue(c10::MemoryFormat::Preserve);
    if (enumerator.name == "channels_last") return c10::IValue(c10::MemoryFormat::ChannelsLast);
    if (enumerator.name == "channels_last_3d") return c10::IValue(c10::MemoryFormat::ChannelsLast3d);
  }
  return std::nullopt;
}

const c10::Type& without_optional(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) return *optional->getElementType();
  return type;
}

// A constant argument as its schema type wants it, or nothing when it does not fit. `slots` and `list_slots` are for
// arguments that hold values, which are filled in at each run.
std::optional<c10::IValue> constant_value(const Argument& argument, const c10::Type& declared) {
  const bool optional = declared.kind() == c10::TypeKind::OptionalType;
  const c10::Type& type = without_optional(declared);
  const auto kind = type.kind();
  if (std::holds_alternative<graph::None>(argument)) {
    if (optional) return c10::IValue();
    return std::nullopt;
  }
  if (kind == c10::TypeKind::TensorType) {
    // A Python number where the schema has a tensor: it takes part in type promotion as a number does.
    if (const auto* value = std::get_if<bool>(&argument)) return c10::IValue(at::native::wrapped_scalar_tensor(*value));
    if (const auto* value = std::get_if<std::int64_t>(&argument))
      return c10::IValue(at::native::wrapped_scalar_tensor(*value));
    if (const auto* value = std::get_if<double>(&argument))
      return c10::IValue(at::native::wrapped_scalar_tensor(*value));
    return std::nullopt;
  }
  if (const auto* value = std::get_if<bool>(&argument)) {
    if (kind == c10::TypeKind::BoolType) return c10::IValue(*value);
    if (kind == c10::TypeKind::NumberType) return c10::IValue(*value);
    return std::nullopt;
  }
  if (const auto* value = std::get_if<std::int64_t>(&argument)) {
    if (kind == c10::TypeKind::FloatType) return c10::IValue(static_cast<double>(*value));
    if (kind == c10::TypeKind::IntType || kind == c10::TypeKind::SymIntType || kind == c10::TypeKind::NumberType) {
      return c10::IValue(*value);
    }
    if (kind == c10::TypeKind::ListType) return c10::IValue(std::vector<std::int64_t>{*value});  // int[1]
    return std::nullopt;
  }
  if (const auto* value = std::get_if<double>(&argument)) {
    if (kind == c10::TypeKind::FloatType || kind == c10::TypeKind::NumberType) return c10::IValue(*value);
    return std::nullopt;
  }
  if (const auto* value = std::get_if<std::string>(&argument)) {
    if (kind == c10::TypeKind::StringType) return c10::IValue(*value);
    return std::nullopt;
  }
  if (const auto* value = std::get_if<graph::Enumerator>(&argument)) return enumerator_value(*value);
  const auto* list = type.castRaw<c10::ListType>();
  if (list == nullptr) return std::nullopt;
  const auto element = list->getElementType()->kind();
  if (const auto* values = std::get_if<std::vector<std::int64_t>>(&argument)) {
    if (element == c10::TypeKind::IntType || element == c10::TypeKind::SymIntType) return c10::IValue(*values);
    if (element == c10::TypeKind::FloatType) return c10::IValue(std::vector<double>(values->begin(), values->end()));
    if (values->empty() && element == c10::TypeKind::BoolType) return c10::IValue(c10::List<bool>());
    if (values->empty() && element == c10::TypeKind::TensorType) return c10::IValue(c10::List<at::Tensor>());
    return std::nullopt;
  }
  if (const auto* values = std::get_if<std::vector<double>>(&argument)) {
    if (element == c10::TypeKind::FloatType) return c10::IValue(*values);
    return std::nullopt;
  }
  if (const auto* values = std::get_if<std::vector<bool>>(&argument)) {
    if (element != c10::TypeKind::BoolType) return std::nullopt;
    c10::List<bool> flags;
    for (const bool flag : *values) flags.push_back(flag);
    return c10::IValue(flags);
  }
  return std::nullopt;
}

bool takes_tensors(const c10::Type& declared) {
  const c10::Type& type = without_optional(declared);
  if (type.kind() == c10::TypeKind::TensorType) return true;
  const auto* list = type.castRaw<c10::ListType>();
  if (list == nullptr) return false;
  return without_optional(*list->getElementType()).kind() == c10::TypeKind::TensorType;
}

bool is_optional_tensor_list(const c10::Type& declared) {
  const auto* list = without_optional(declared).castRaw<c10::ListType>();
  return list != nullptr && list->getElementType()->kind() == c10::TypeKind::OptionalType;
}

// One argument that is filled from registers at each run.
struct TensorArgument {
  std::size_t position = 0;
  std::vector<ValueId> values;
  bool list = false;
  bool optional_elements = false;
};

class DispatcherCall {
 public:
  DispatcherCall(c10::OperatorHandle handle, std::vector<c10::IValue> constants, std::vector<TensorArgument> tensors,
                 std::vector<ValueId> outputs)
      : handle_(std::move(handle)),
        constants_(std::move(constants)),
        tensors_(std::move(tensors)),
        outputs_(std::move(outputs)) {}

  void operator()(Registers& registers) {
    stack_.assign(constants_.begin(), constants_.end());
    for (const TensorArgument& argument : tensors_) stack_[argument.position] = gather(argument, registers);
    handle_.callBoxed(stack_);
    std::size_t next = 0;
    for (c10::IValue& result : stack_) {
      if (result.isTensor()) {
        store(next++, std::move(result).toTensor(), registers);
      } else if (result.isTensorList()) {
        for (const at::Tensor& tensor : result.toTensorVector()) store(next++, tensor, registers);
      } else if (result.isNone()) {
        ++next;
      }
    }
    stack_.clear();
    TORCH_CHECK(next == outputs_.size(), "the kernel gave ", next, " results, the program has ", outputs_.size());
  }

 private:
  static c10::IValue gather(const TensorArgument& argument, const Registers& registers) {
    const auto tensor = [&](ValueId id) {
      return id == graph::kNone ? at::Tensor() : registers[static_cast<std::size_t>(id)];
    };
    if (!argument.list) return tensor(argument.values.front());
    if (argument.optional_elements) {
      c10::List<std::optional<at::Tensor>> list;
      for (const ValueId id : argument.values) {
        list.push_back(id == graph::kNone ? std::optional<at::Tensor>() : std::optional<at::Tensor>(tensor(id)));
      }
      return list;
    }
    c10::List<at::Tensor> list;
    for (const ValueId id : argument.values) list.push_back(tensor(id));
    return list;
  }

  void store(std::size_t index, at::Tensor tensor, Registers& registers) {
    if (index < outputs_.size() && outputs_[index] != graph::kNone) {
      registers[static_cast<std::size_t>(outputs_[index])] = std::move(tensor);
    }
  }

  c10::OperatorHandle handle_;
  std::vector<c10::IValue> constants_;
  std::vector<TensorArgument> tensors_;
  std::vector<ValueId> outputs_;
  torch::jit::Stack stack_;
};

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kInt64:
      return at::kLong;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt8:
      return at::kChar;
    case DType::kUInt8:
      return at::kByte;
    case DType::kBool:
      return at::kBool;
  }
  return at::kFloat;
}

std::string describe(const Node& node) {
  std::string text = "node '" + node.name + "' (" + node.op;
  if (node.module) text += ", module '" + (node.module->empty() ? std::string("the model") : *node.module) + "'";
  if (!node.source.empty()) text += ", " + node.source;
  return text + ")";
}

Result<Kernel> bind_aten_operator(const Program& program, const Node& node) {
  if (node.op.rfind("aten::", 0) != 0) return Kernel();
  const std::size_t dot = node.op.find('.', 6);
  const std::string name = node.op.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : node.op.substr(dot + 1);
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle) return invalid_input(describe(node) + ": this PyTorch has no operator " + node.op);
  const auto& schema = handle->schema();
  const auto& formal = schema.arguments();
  if (node.args.size() > formal.size()) {
    return invalid_input(describe(node) + ": " + std::to_string(node.args.size()) + " arguments, the operator takes " +
                         std::to_string(formal.size()));
  }
  std::vector<c10::IValue> constants(formal.size());
  std::vector<TensorArgument> tensors;
  for (std::size_t i = 0; i < formal.size(); ++i) {
    const c10::Type& type = *formal[i].real_type();
    if (i >= node.args.size()) {
      if (!formal[i].default_value()) {
        return invalid_input(describe(node) + ": argument '" + formal[i].name() + "' is missing");
      }
      constants[i] = *formal[i].default_value();
      continue;
    }
    const Argument& argument = node.args[i];
    const auto* reference = std::get_if<ValueRef>(&argument);
    const auto* references = std::get_if<std::vector<ValueRef>>(&argument);
    if (reference != nullptr || references != nullptr) {
      const bool wants_list = without_optional(type).kind() == c10::TypeKind::ListType;
      if (!takes_tensors(type) || wants_list != (references != nullptr)) {
        // A 0-dimensional value where the schema wants a number would need a read-back, which no program may contain.
        return invalid_input(describe(node) + ": argument '" + formal[i].name() + "' takes no value");
      }
      TensorArgument slot;
      slot.position = i;
      slot.list = references != nullptr;
      slot.optional_elements = slot.list && is_optional_tensor_list(type);
      if (reference != nullptr) slot.values.push_back(reference->id);
      if (references != nullptr) {
        for (const ValueRef& each : *references) slot.values.push_back(each.id);
      }
      tensors.push_back(std::move(slot));
      continue;
    }
    auto constant = constant_value(argument, type);
    if (!constant) {
      return invalid_input(describe(node) + ": argument '" + formal[i].name() + "' does not fit " + type.str());
    }
    constants[i] = std::move(*constant);
  }
  // std::function copies; the call's stack is reused from step to step, so it is shared.
  auto call = std::make_shared<DispatcherCall>(*handle, std::move(constants), std::move(tensors), node.outputs);
  return Kernel([call](Registers& registers) { (*call)(registers); });
}

Result<Kernel> bind_node(const Program& program, const Node& node, Movement& movement) {
  TESSER_ASSIGN_OR_RETURN(Kernel moving, bind_movement(program, node, movement));
  if (moving) return moving;
  TESSER_ASSIGN_OR_RETURN(Kernel handing_over, bind_gradients(node, movement));
  if (handing_over) return handing_over;
  for (const auto bind :
       {&bind_fused_operator, &bind_view, &bind_matrix_product, &bind_batch_norm, &bind_batch_norm_part,
        &bind_random_operator, &bind_recurrent_cell, &bind_update, &bind_aten_operator}) {
    TESSER_ASSIGN_OR_RETURN(Kernel kernel, bind(program, node));
    if (kernel) return kernel;
  }
  return invalid_input(describe(node) + ": unknown operator");
}

}  // namespace tesser::runtime
