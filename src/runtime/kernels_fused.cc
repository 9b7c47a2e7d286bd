// tesser::fused: runs an expression tile by tile. A tile's intermediates stay in the first-level cache.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>

#include "kernels/philox.h"
#include "layout/strides.h"
#include "runtime/kernels.h"
#include "runtime/kernels_fused_tile.h"
#include "runtime/passes/fused_expression.h"

namespace tesser::runtime {
namespace {

using graph::Node;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;

constexpr std::int64_t kTile = 512;         // elements; about ten tiles of 2 KiB fit in the first-level cache
constexpr std::int64_t kGrain = 16 * 1024;  // elements a thread takes at least

// How an input is found for consecutive elements of the result in memory order.
struct InputAccess {
  enum class Kind : std::uint8_t { kWhole, kScalar, kRepeated, kStretched };
  Kind kind = Kind::kWhole;
  const float* data = nullptr;
  const bool* mask = nullptr;  // in place of data
  std::int64_t period = 1;     // kRepeated: element e reads e mod period; kStretched: e div period

  float at(std::int64_t index) const { return mask != nullptr ? static_cast<float>(mask[index]) : data[index]; }
};

class FusedKernel {
 public:
  FusedKernel(Expression expression, std::vector<ValueId> inputs, std::vector<ValueId> outputs, Shape shape,
              const layout::Order& order, ValueId seed, ValueId step)
      : expression_(std::move(expression)),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        shape_(std::move(shape)),
        strides_(layout::dense_strides(shape_, order)),
        seed_(seed),
        step_(step),
        tile_(tile_function()) {}

  void operator()(Registers& registers) {
    held_.clear();
    accesses_.clear();
    for (const ValueId id : inputs_) accesses_.push_back(access(registers[static_cast<std::size_t>(id)]));
    std::vector<float*> results;
    for (const ValueId id : outputs_) {
      at::Tensor result = at::empty_strided(shape_, strides_, at::TensorOptions(at::kFloat));
      results.push_back(result.mutable_data_ptr<float>());
      registers[static_cast<std::size_t>(id)] = std::move(result);
    }
    if (seed_ != graph::kNone) {
      key_ = static_cast<std::uint64_t>(*registers[static_cast<std::size_t>(seed_)].const_data_ptr<std::int64_t>());
      step_value_ = *registers[static_cast<std::size_t>(step_)].const_data_ptr<std::int64_t>();
    }
    at::parallel_for(0, element_count(shape_), kGrain,
                     [&](std::int64_t begin, std::int64_t end) { run_range(begin, end, results); });
    held_.clear();
  }

 private:
  // Physical order: dimensions from the largest stride of the result to the smallest.
  InputAccess access(const at::Tensor& tensor) {
    InputAccess result;
    const auto point_to = [&](const at::Tensor& source) {
      if (source.scalar_type() == at::kBool) {
        result.mask = source.const_data_ptr<bool>();
      } else {
        result.data = source.const_data_ptr<float>();
      }
    };
    if (tensor.sizes() == at::IntArrayRef(shape_) && layout::same(shape_, tensor.strides().vec(), strides_)) {
      point_to(tensor);
      return result;
    }
    if (tensor.numel() == 1) {
      result.kind = InputAccess::Kind::kScalar;
      point_to(tensor);
      return result;
    }
    const at::Tensor expanded = tensor.expand(shape_);
    std::vector<std::size_t> order;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      if (shape_[d] != 1) order.push_back(d);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return strides_[a] > strides_[b]; });
    // A run of leading or of trailing dimensions along which the input repeats can be read in place.
    std::size_t leading = 0;
    while (leading < order.size() && expanded.stride(static_cast<std::int64_t>(order[leading])) == 0) ++leading;
    std::size_t trailing = order.size();
    while (trailing > 0 && expanded.stride(static_cast<std::int64_t>(order[trailing - 1])) == 0) --trailing;
    const auto dense = [&](std::size_t first, std::size_t last) {
      std::int64_t expected = 1;
      for (std::size_t i = last; i-- > first;) {
        if (expanded.stride(static_cast<std::int64_t>(order[i])) != expected) return false;
        expected *= shape_[order[i]];
      }
      return true;
    };
    const auto size = [&](std::size_t first, std::size_t last) {
      std::int64_t product = 1;
      for (std::size_t i = first; i < last; ++i) product *= shape_[order[i]];
      return product;
    };
    if (leading > 0 && dense(leading, order.size())) {
      result.kind = InputAccess::Kind::kRepeated;
      result.period = size(leading, order.size());
      point_to(tensor);
      return result;
    }
    if (trailing < order.size() && dense(0, trailing)) {
      result.kind = InputAccess::Kind::kStretched;
      result.period = size(trailing, order.size());
      point_to(tensor);
      return result;
    }
    at::Tensor copy = at::empty_strided(shape_, strides_, tensor.options());
    copy.copy_(expanded);
    point_to(copy);
    held_.push_back(std::move(copy));
    return result;
  }

  void run_range(std::int64_t begin, std::int64_t end, const std::vector<float*>& results) const {
    const std::size_t tiles = accesses_.size() + static_cast<std::size_t>(expression_.temporaries);
    std::vector<float> memory(tiles * kTile + 16);
    float* aligned = reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
    std::vector<const float*> inputs(accesses_.size());
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      if (accesses_[i].kind == InputAccess::Kind::kScalar) std::fill_n(aligned + i * kTile, kTile, accesses_[i].at(0));
    }
    float* const temporaries = aligned + accesses_.size() * kTile;
    for (std::int64_t first = begin; first < end; first += kTile) {
      const std::int64_t count = std::min(kTile, end - first);
      for (std::size_t i = 0; i < accesses_.size(); ++i)
        inputs[i] = load(accesses_[i], aligned + i * kTile, first, count);
      const auto place = [&](const Operand& operand) -> const float* {
        switch (operand.kind) {
          case Operand::Kind::kInput:
            return inputs[static_cast<std::size_t>(operand.index)];
          case Operand::Kind::kTemporary:
            return temporaries + operand.index * kTile;
          case Operand::Kind::kOutput:
            return results[static_cast<std::size_t>(operand.index)] + first;
        }
        return nullptr;
      };
      for (const Instruction& instruction : expression_.instructions) {
        std::array<const float*, 3> operands{};
        for (std::size_t i = 0; i < instruction.operands.size(); ++i) operands[i] = place(instruction.operands[i]);
        std::array<double, 2> numbers{};
        std::copy(instruction.numbers.begin(), instruction.numbers.end(), numbers.begin());
        auto* const result = const_cast<float*>(place(instruction.result));
        if (instruction.opcode == Opcode::kDropout) {
          kernels::dropout(operands[0], result, first, first + count, numbers[0], key_, step_value_,
                           static_cast<std::int64_t>(numbers[1]));
        } else {
          tile_(instruction.opcode, result, operands[0], operands[1], operands[2], numbers[0], numbers[1], count);
        }
      }
    }
  }

  static const float* load(const InputAccess& access, float* tile, std::int64_t first, std::int64_t count) {
    switch (access.kind) {
      case InputAccess::Kind::kScalar:
        return tile;
      case InputAccess::Kind::kWhole:
        if (access.data != nullptr) return access.data + first;
        for (std::int64_t k = 0; k < count; ++k) tile[k] = static_cast<float>(access.mask[first + k]);
        return tile;
      case InputAccess::Kind::kRepeated: {
        std::int64_t at = first % access.period;
        if (access.data != nullptr && at + count <= access.period) return access.data + at;
        for (std::int64_t k = 0; k < count; ++k) {
          tile[k] = access.at(at);
          if (++at == access.period) at = 0;
        }
        return tile;
      }
      case InputAccess::Kind::kStretched: {
        std::int64_t at = first / access.period;
        std::int64_t left = access.period - first % access.period;
        for (std::int64_t k = 0; k < count;) {
          const std::int64_t run = std::min(left, count - k);
          std::fill_n(tile + k, run, access.at(at));
          k += run;
          ++at;
          left = access.period;
        }
        return tile;
      }
    }
    return tile;
  }

  Expression expression_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  Shape shape_;
  layout::Strides strides_;  // of all results, and the order of the walk
  ValueId seed_;
  ValueId step_;
  TileFunction tile_;
  std::uint64_t key_ = 0;
  std::int64_t step_value_ = 0;
  std::vector<InputAccess> accesses_;
  std::vector<at::Tensor> held_;  // copies of inputs that cannot be read in place
};

}  // namespace

Result<Kernel> bind_fused_operator(const Program& program, const Node& node) {
  if (node.op != "tesser::fused") return Kernel();
  const auto* text = node.args.empty() ? nullptr : std::get_if<std::string>(&node.args[0]);
  const auto* references = node.args.size() < 2 ? nullptr : std::get_if<std::vector<ValueRef>>(&node.args[1]);
  const auto* order = node.args.size() < 3 ? nullptr : std::get_if<layout::Order>(&node.args[2]);
  if (text == nullptr || references == nullptr || order == nullptr || node.outputs.empty() ||
      node.outputs[0] == graph::kNone) {
    return invalid_input(describe(node) + ": takes an expression, a list of values and an order of dimensions");
  }
  TESSER_ASSIGN_OR_RETURN(Expression expression, parse_expression(*text));
  if (static_cast<std::size_t>(expression.inputs) > references->size() ||
      static_cast<std::size_t>(expression.outputs) != node.outputs.size()) {
    return invalid_input(describe(node) + ": the expression's operands are not those of the node");
  }
  const Shape& shape = program.value(node.outputs[0]).shape;
  if (!layout::is_order(*order, shape.size())) {
    return invalid_input(describe(node) + ": " + shape_text(*order) + " is no order of its dimensions");
  }
  std::vector<ValueId> inputs;
  for (const ValueRef& reference : *references) inputs.push_back(reference.id);
  ValueId seed = graph::kNone;
  ValueId step = graph::kNone;
  if (expression.uses_dropout()) {
    const auto* seed_reference = node.args.size() < 5 ? nullptr : std::get_if<ValueRef>(&node.args[3]);
    const auto* step_reference = node.args.size() < 5 ? nullptr : std::get_if<ValueRef>(&node.args[4]);
    if (seed_reference == nullptr || step_reference == nullptr) {
      return invalid_input(describe(node) + ": dropout needs seed and step");
    }
    seed = seed_reference->id;
    step = step_reference->id;
  }
  auto kernel =
      std::make_shared<FusedKernel>(std::move(expression), std::move(inputs), node.outputs, shape, *order, seed, step);
  return Kernel([kernel](Registers& registers) { (*kernel)(registers); });
}

}  // namespace tesser::runtime
