// Random operators, of whole tensors and of parts of them (docs/formats/operators.md), over src/kernels/philox.h.
#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "kernels/philox.h"
#include "runtime/argument_reader.h"
#include "runtime/kernels.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::Program;
using graph::ValueId;

constexpr std::int64_t kGrain = 16 * 1024;  // elements a thread takes at least

// Seed, step and id of a random operator.
struct Stream {
  ValueId seed_value = kNone;
  ValueId step_value = kNone;
  std::int64_t id = 0;

  void take_from(ArgumentReader& arguments) {
    seed_value = arguments.value();
    step_value = arguments.value();
    id = arguments.integer();
  }
  std::uint64_t seed(const Registers& registers) const {
    return static_cast<std::uint64_t>(*read(registers, seed_value).const_data_ptr<std::int64_t>());
  }
  std::int64_t step(const Registers& registers) const {
    return *read(registers, step_value).const_data_ptr<std::int64_t>();
  }
};

// Philox numbers by groups of four: ranges begin at multiples of 4 so that no block is computed twice.
template <typename Function>
void over_elements(std::int64_t count, const Function& function) {
  at::parallel_for(0, (count + 3) / 4, kGrain / 4,
                   [&](std::int64_t begin, std::int64_t end) { function(begin * 4, std::min(end * 4, count)); });
}

// Which elements of the whole tensor a node makes: all of them, or under overload `region` those from `begin` on of a
// tensor of shape `whole`. Calls fill(range..., first element, last element) where the range is what src/kernels take.
struct Extent {
  bool is_part = false;
  Shape whole;
  Shape begin;

  void take_from(ArgumentReader& arguments, const Node& node) {
    is_part = node.op.ends_with(".region");
    if (!is_part) return;
    whole = arguments.sizes();
    begin = arguments.sizes();
  }
  Result<void> check(const Node& node, const Shape& size) const {
    if (!is_part) return {};
    bool fits = whole.size() == size.size() && begin.size() == size.size();
    for (std::size_t d = 0; fits && d < size.size(); ++d) fits = begin[d] >= 0 && begin[d] + size[d] <= whole[d];
    if (fits) return {};
    return invalid_input(describe(node) + ": a part of shape " + shape_text(size) + " at " + shape_text(begin) +
                         " does not lie in a tensor of shape " + shape_text(whole));
  }
  // The first `dimensions` dimensions.
  kernels::TensorPart part(at::IntArrayRef size, std::int64_t dimensions) const {
    const auto head = [dimensions](const auto& all) { return Shape(all.begin(), all.begin() + dimensions); };
    return {head(size), head(whole), head(begin)};
  }
};

// Calls all(begin, end) or some(part, first, last) over the elements of a result.
template <typename All, typename Some>
void over_extent(const Extent& extent, const at::Tensor& result, const All& all, const Some& some) {
  if (!extent.is_part) return over_elements(result.numel(), all);
  const kernels::TensorPart part = extent.part(result.sizes(), result.dim());
  over_elements(result.numel(), [&](std::int64_t first, std::int64_t last) { some(part, first, last); });
}

const Shape& shape_of(const Program& program, ValueId value) { return program.value(value).shape; }

Result<Kernel> bind_dropout(const Program& program, const Node& node) {
  ArgumentReader arguments(node);
  const ValueId x = arguments.value();
  const double p = arguments.number();
  Stream stream;
  stream.take_from(arguments);
  const bool by_channel = node.op == "tesser::dropout.channels";
  const std::int64_t channels = by_channel ? arguments.integer() : 0;
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    const at::Tensor source = read(registers, x);
    at::Tensor result = at::empty(source.sizes(), source.options());
    std::int64_t inner = 1;
    for (std::int64_t d = channels; by_channel && d < source.dim(); ++d) inner *= source.size(d);
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    for_real_type(source, [&]<typename T>() {
      const T* from = source.const_data_ptr<T>();
      T* to = result.mutable_data_ptr<T>();
      over_elements(source.numel(), [&](std::int64_t begin, std::int64_t end) {
        if (by_channel) {
          kernels::dropout_channels(from + begin, to + begin, begin, end, inner, p, seed, step, stream.id);
        } else {
          kernels::dropout(from + begin, to + begin, begin, end, p, seed, step, stream.id);
        }
      });
    });
    write(registers, output, std::move(result));
  });
}

Result<Kernel> bind_dropout_region(const Program& program, const Node& node) {
  ArgumentReader arguments(node);
  const ValueId x = arguments.value();
  const double p = arguments.number();
  Stream stream;
  stream.take_from(arguments);
  const std::int64_t channels = arguments.integer();
  Extent extent;
  extent.take_from(arguments, node);
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  TESSER_RETURN_IF_ERROR(extent.check(node, shape_of(program, x)));
  const auto rank = static_cast<std::int64_t>(shape_of(program, x).size());
  if (channels < 0 || channels > rank) {
    return invalid_input(describe(node) + ": channels is 0 to " + std::to_string(rank) + ", not " +
                         std::to_string(channels));
  }
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    const at::Tensor source = read(registers, x);
    at::Tensor result = at::empty(source.sizes(), source.options());
    const kernels::TensorPart part = extent.part(source.sizes(), channels);
    std::int64_t inner = 1;
    for (std::int64_t d = channels; d < source.dim(); ++d) inner *= source.size(d);
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    for_real_type(source, [&]<typename T>() {
      const T* from = source.const_data_ptr<T>();
      T* to = result.mutable_data_ptr<T>();
      if (channels == rank) {
        over_elements(part.elements(), [&](std::int64_t first, std::int64_t last) {
          kernels::dropout(from + first, to + first, part, first, last, p, seed, step, stream.id);
        });
        return;
      }
      const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(inner, 1));
      at::parallel_for(0, part.elements(), grain, [&](std::int64_t first, std::int64_t last) {
        kernels::dropout_channels(from + first * inner, to + first * inner, part, first, last, inner, p, seed, step,
                                  stream.id);
      });
    });
    write(registers, output, std::move(result));
  });
}

using FillRange = void (*)(float*, std::int64_t, std::int64_t, double, double, std::uint64_t, std::int64_t,
                           std::int64_t);
using FillPart = void (*)(float*, const kernels::TensorPart&, std::int64_t, std::int64_t, double, double, std::uint64_t,
                          std::int64_t, std::int64_t);

// tesser::uniform and tesser::normal: (size, a, b, seed, step, id) -> float32.
Result<Kernel> bind_real_generator(const Node& node, FillRange fill, FillPart fill_part) {
  ArgumentReader arguments(node);
  const Shape size = arguments.sizes();
  const double first = arguments.number();
  const double second = arguments.number();
  Stream stream;
  stream.take_from(arguments);
  Extent extent;
  extent.take_from(arguments, node);
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  TESSER_RETURN_IF_ERROR(extent.check(node, size));
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    at::Tensor result = at::empty(size, at::TensorOptions(at::kFloat));
    float* to = result.mutable_data_ptr<float>();
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    over_extent(
        extent, result,
        [&](std::int64_t begin, std::int64_t end) {
          fill(to + begin, begin, end, first, second, seed, step, stream.id);
        },
        [&](const kernels::TensorPart& part, std::int64_t begin, std::int64_t end) {
          fill_part(to + begin, part, begin, end, first, second, seed, step, stream.id);
        });
    write(registers, output, std::move(result));
  });
}

Result<Kernel> bind_bernoulli(const Program& program, const Node& node) {
  ArgumentReader arguments(node);
  const ValueId p = arguments.value();
  Stream stream;
  stream.take_from(arguments);
  Extent extent;
  extent.take_from(arguments, node);
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  TESSER_RETURN_IF_ERROR(extent.check(node, shape_of(program, p)));
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    const at::Tensor source = read(registers, p);
    at::Tensor result = at::empty(source.sizes(), source.options());
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    for_real_type(source, [&]<typename T>() {
      const T* from = source.const_data_ptr<T>();
      T* to = result.mutable_data_ptr<T>();
      over_extent(
          extent, result,
          [&](std::int64_t begin, std::int64_t end) {
            kernels::bernoulli(from + begin, to + begin, begin, end, seed, step, stream.id);
          },
          [&](const kernels::TensorPart& part, std::int64_t begin, std::int64_t end) {
            kernels::bernoulli(from + begin, to + begin, part, begin, end, seed, step, stream.id);
          });
    });
    write(registers, output, std::move(result));
  });
}

Result<Kernel> bind_randint(const Node& node) {
  ArgumentReader arguments(node);
  const Shape size = arguments.sizes();
  const std::int64_t low = arguments.integer();
  const std::int64_t high = arguments.integer();
  Stream stream;
  stream.take_from(arguments);
  Extent extent;
  extent.take_from(arguments, node);
  TESSER_RETURN_IF_ERROR(arguments.check(1));
  TESSER_RETURN_IF_ERROR(extent.check(node, size));
  if (high <= low || high - low > (std::int64_t{1} << 32)) {
    return invalid_input(describe(node) + ": the range from " + std::to_string(low) + " to " + std::to_string(high) +
                         " must hold between 1 and 2^32 integers");
  }
  const ValueId output = node.outputs[0];
  return Kernel([=](Registers& registers) {
    at::Tensor result = at::empty(size, at::TensorOptions(at::kLong));
    auto* to = result.mutable_data_ptr<std::int64_t>();
    const std::uint64_t seed = stream.seed(registers);
    const std::int64_t step = stream.step(registers);
    over_extent(
        extent, result,
        [&](std::int64_t begin, std::int64_t end) {
          kernels::randint(to + begin, begin, end, low, high, seed, step, stream.id);
        },
        [&](const kernels::TensorPart& part, std::int64_t begin, std::int64_t end) {
          kernels::randint(to + begin, part, begin, end, low, high, seed, step, stream.id);
        });
    write(registers, output, std::move(result));
  });
}

}  // namespace

Result<Kernel> bind_random_operator(const Program& program, const Node& node) {
  const std::string_view name = node.op;
  const auto is = [name](std::string_view base) {
    return name.starts_with(base) && (name.size() == base.size() || name.substr(base.size()) == ".region");
  };
  if (name == "tesser::dropout.region") return bind_dropout_region(program, node);
  if (name == "tesser::dropout" || name == "tesser::dropout.channels") return bind_dropout(program, node);
  if (is("tesser::uniform")) return bind_real_generator(node, kernels::uniform, kernels::uniform);
  if (is("tesser::normal")) return bind_real_generator(node, kernels::normal, kernels::normal);
  if (is("tesser::bernoulli")) return bind_bernoulli(program, node);
  if (is("tesser::randint")) return bind_randint(node);
  return Kernel();
}

}  // namespace tesser::runtime
