#include "tdl/check_case.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "tdl/check_clause.h"
#include "tdl/check_values.h"

namespace tesser::tdl {
namespace {

using graph::Argument;
using graph::kNone;
using graph::ValueId;
using graph::ValueRef;

constexpr std::int64_t kLargestExtent = 7;
constexpr std::int64_t kMostDimensions = 3;  // of a pack
constexpr std::int64_t kMostTensors = 4;     // of a list

DType dtype_of(const std::string& kind) {
  if (kind == "rate") return DType::kFloat64;
  if (kind == "small" || kind == "steps") return DType::kInt64;
  if (const auto named = dtype_from_name(kind)) return *named;
  return DType::kFloat32;
}

bool is_kind(const std::string& kind) {
  constexpr std::string_view kKinds[] = {"float", "positive", "unit", "ascending", "large", "rate", "small", "steps"};
  return std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds) || dtype_from_name(kind);
}

template <typename Element, typename Make>
void fill(TensorData& data, const Make& make) {
  const auto count = static_cast<std::size_t>(element_count(data.shape));
  std::vector<Element> elements;
  elements.reserve(count);
  for (std::size_t i = 0; i < count; ++i) elements.push_back(static_cast<Element>(make(i)));
  std::memcpy(data.bytes.data(), elements.data(), count * sizeof(Element));
}

// Builds the program of a case.
class CaseBuilder {
 public:
  CaseBuilder(const Description& description, const std::string& op, Choices& choices)
      : description_(description), choices_(choices) {
    node_.name = "call";
    node_.op = op;
    case_.program.name = op;
    case_.program.kind = graph::Kind::kForward;
    case_.program.producer = "check";
    // Updates work in place, on state.
    role_ = op == "tesser::sgd" || op == "tesser::adam" ? graph::Role::kBuffer : graph::Role::kConstant;
  }

  Result<CheckCase> from_items(const std::vector<CheckItem>& items);
  Result<CheckCase> from_example(const ExampleCall& example);

 private:
  ValueId add_input(const std::string& name, const std::string& kind, const Shape& shape, std::int64_t limit);
  void add_result(const std::string& name, DType dtype, const Shape& shape);
  void draw_item(const CheckItem& item);
  void draw_tensors(const CheckItem& item, const Parameter& parameter);
  bool build_arguments();
  void build_results();
  std::optional<Shape> derived_shape(std::size_t result);
  CheckCase finish();
  void fail(const std::string& what) {
    if (values_.defect.empty()) values_.defect = what;
  }
  Shape dims(const CheckItem& item) {
    Shape shape;
    for (const Expression& dim : item.dims) {
      for (const std::int64_t size : values_.integers(dim)) shape.push_back(size);
    }
    if (std::any_of(shape.begin(), shape.end(), [](auto size) { return size < 0; })) {
      fail("'" + item.name + "' gets a negative size");
    }
    return shape;
  }
  const Parameter* parameter(const std::string& name) const {
    for (const Parameter& each : description_.parameters) {
      if (each.name == name) return &each;
    }
    return nullptr;
  }
  std::optional<std::size_t> result(const std::string& name) const {
    for (std::size_t r = 0; r < description_.results.size(); ++r) {
      if (description_.results[r].name == name) return r;
    }
    return std::nullopt;
  }

  const Description& description_;
  Choices& choices_;
  CheckCase case_;
  graph::Node node_;
  graph::Role role_ = graph::Role::kConstant;
  CheckValues values_;
  std::map<std::string, std::vector<ValueRef>> tensors_;  // by parameter
  struct Named {
    bool exists = false;
    DType dtype = DType::kFloat32;
    Shape shape;
  };
  std::map<std::string, Named> named_;  // results that items speak of
};

ValueId CaseBuilder::add_input(const std::string& name, const std::string& kind, const Shape& shape,
                               std::int64_t limit) {
  graph::Value value;
  value.name = name;
  value.role = role_;
  value.dtype = dtype_of(kind);
  value.shape = shape;
  const auto id = static_cast<ValueId>(case_.program.values.size());
  case_.program.values.push_back(value);
  case_.program.inputs.push_back(id);
  if (!is_kind(kind)) fail("there is no kind of data '" + kind + "'");
  case_.inputs.push_back(random_data(kind, shape, limit, choices_.seed() * 1000003 + static_cast<std::uint64_t>(id)));
  return id;
}

void CaseBuilder::add_result(const std::string& name, DType dtype, const Shape& shape) {
  graph::Value value;
  value.name = parameter(name) != nullptr ? "new " + name : name;
  value.dtype = dtype;
  value.shape = shape;
  value.producer = 0;
  value.output_index = static_cast<int>(node_.outputs.size());
  const auto id = static_cast<ValueId>(case_.program.values.size());
  case_.program.values.push_back(value);
  case_.program.results.push_back({value.name, id});
  node_.outputs.push_back(id);
}

void CaseBuilder::draw_tensors(const CheckItem& item, const Parameter& owner) {
  const auto limit = [&]() -> std::int64_t {
    if (!item.below) return 10;
    const std::vector<std::int64_t> found = values_.integers(*item.below);
    return found.size() == 1 ? found[0] : 0;
  };
  std::vector<ValueRef>& tensors = tensors_[item.name];
  if (!owner.list) {
    const bool absent = item.maybe && choices_.below(2) == 0;
    const Shape shape = dims(item);
    if (absent) {
      values_.names[item.name] = graph::None{};
      tensors_.erase(item.name);
      return;
    }
    values_.given.insert(item.name);
    values_.shapes[item.name] = shape;
    tensors.push_back({add_input(item.name, item.data, shape, limit())});
    return;
  }
  values_.given.insert(item.name);
  if (item.element >= 0) {
    const auto place = static_cast<std::size_t>(item.element);
    if (tensors.size() <= place) tensors.resize(place + 1);
    const Shape shape = dims(item);
    tensors[place] = {add_input(item.name + "." + std::to_string(place), item.data, shape, limit())};
    return;
  }
  const std::int64_t count = 1 + choices_.below(kMostTensors);
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t each = 1 + choices_.below(kLargestExtent);
    values_.names["each"] = each;
    total += each;
    const Shape shape = dims(item);
    tensors.push_back({add_input(item.name + "." + std::to_string(i), item.data, shape, limit())});
  }
  values_.names["total"] = total;
  values_.names["count"] = count;
}

void CaseBuilder::draw_item(const CheckItem& item) {
  switch (item.kind) {
    case CheckItem::Kind::kTensor: {
      const Parameter* const owner = parameter(item.name);
      if (owner != nullptr) return draw_tensors(item, *owner);
      if (!result(item.name)) return fail("'" + item.name + "' is neither an argument nor a result");
      Named& named = named_[item.name];
      if (named.exists || (item.condition && !values_.holds(*item.condition))) return;
      named = {true, dtype_of(item.data), dims(item)};
      return;
    }
    case CheckItem::Kind::kChoice: {
      const std::int64_t chosen = choices_.below(static_cast<std::int64_t>(item.values.size()));
      values_.names[item.name] = values_.evaluate(item.values[static_cast<std::size_t>(chosen)]);
      return;
    }
    case CheckItem::Kind::kRange: {
      const std::vector<std::int64_t> first = values_.integers(item.values[0]);
      const std::vector<std::int64_t> last = values_.integers(item.values[1]);
      if (first.size() != 1 || last.size() != 1 || last[0] < first[0])
        return fail("'" + item.name + "' has an empty range");
      const std::int64_t drawn = first[0] + choices_.below(last[0] - first[0] + 1);
      if (!item.pack) {
        values_.names[item.name] = drawn;
        return;
      }
      std::vector<std::int64_t> extents;
      for (std::int64_t d = 0; d < drawn; ++d) extents.push_back(1 + choices_.below(kLargestExtent));
      values_.names[item.name] = extents;
      return;
    }
    case CheckItem::Kind::kValue: {
      if (item.pack) {  // how many dimensions
        const std::vector<std::int64_t> count = values_.integers(item.values[0]);
        std::vector<std::int64_t> extents;
        for (std::int64_t d = 0; d < (count.size() == 1 ? count[0] : 0); ++d) {
          extents.push_back(1 + choices_.below(kLargestExtent));
        }
        values_.names[item.name] = extents;
        return;
      }
      values_.names[item.name] = values_.evaluate(item.values[0]);
      if (result(item.name)) named_[item.name] = {};
      return;
    }
  }
}

// Parameters that the clause says nothing of are left out, or get the description's default where others follow.
bool CaseBuilder::build_arguments() {
  std::size_t count = 0;
  for (std::size_t p = 0; p < description_.parameters.size(); ++p) {
    const std::string& name = description_.parameters[p].name;
    if (tensors_.contains(name) || values_.names.contains(name)) count = p + 1;
  }
  for (std::size_t p = count; p < description_.parameters.size(); ++p) {
    if (!description_.parameters[p].value) fail("no item says what '" + description_.parameters[p].name + "' is");
  }
  for (std::size_t p = 0; p < count; ++p) {
    const Parameter& each = description_.parameters[p];
    if (const auto tensors = tensors_.find(each.name); tensors != tensors_.end()) {
      node_.args.push_back(each.list ? Argument(tensors->second) : Argument(tensors->second.front()));
    } else if (const auto value = values_.names.find(each.name); value != values_.names.end()) {
      node_.args.push_back(value->second);
    } else if (each.value) {
      node_.args.push_back(*each.value);
    } else {
      fail("no item says what '" + each.name + "' is");
    }
  }
  return values_.defect.empty();
}

// From the equation: the largest index of each dimension, and one more.
std::optional<Shape> CaseBuilder::derived_shape(std::size_t r) {
  CheckValues largest = values_;
  largest.draw = nullptr;
  for (const Parameter& each : description_.parameters) {
    if (each.value && !largest.names.contains(each.name)) largest.names[each.name] = *each.value;
  }
  for (const Equation& equation : description_.equations) {
    if (static_cast<std::size_t>(equation.result) != r) continue;
    if (equation.condition && !largest.holds(*equation.condition)) continue;
    for (auto& [name, value] : largest.names) {
      if (parameter(name) != nullptr) continue;
      if (auto* extent = std::get_if<std::int64_t>(&value)) --*extent;
      if (auto* extents = std::get_if<std::vector<std::int64_t>>(&value)) {
        for (std::int64_t& extent : *extents) --extent;
      }
    }
    Shape shape;
    for (const Expression& index : equation.index) {
      for (const std::int64_t last : largest.integers(index)) shape.push_back(last + 1);
    }
    if (!largest.defect.empty()) {
      fail("no item says what shape '" + description_.results[r].name +
           "' has, and the equation does not either: " + largest.defect);
    }
    return shape;
  }
  if (!largest.defect.empty()) fail(largest.defect);
  return std::nullopt;
}

void CaseBuilder::build_results() {
  for (std::size_t r = 0; r < description_.results.size() && values_.defect.empty(); ++r) {
    const std::string& name = description_.results[r].name;
    const auto named = named_.find(name);
    if (named != named_.end()) {
      if (named->second.exists) {
        add_result(name, named->second.dtype, named->second.shape);
      } else {
        node_.outputs.push_back(kNone);
      }
      continue;
    }
    if (const auto shape = derived_shape(r)) {
      add_result(name, DType::kFloat32, *shape);
    } else {
      node_.outputs.push_back(kNone);
    }
  }
}

CheckCase CaseBuilder::finish() {
  case_.program.nodes.push_back(std::move(node_));
  return std::move(case_);
}

Result<CheckCase> CaseBuilder::from_items(const std::vector<CheckItem>& items) {
  values_.draw = [this](const std::string&, bool pack) -> Argument {
    if (!pack) return 1 + choices_.below(kLargestExtent);
    std::vector<std::int64_t> extents;
    const std::int64_t rank = choices_.below(kMostDimensions + 1);
    for (std::int64_t d = 0; d < rank; ++d) extents.push_back(1 + choices_.below(kLargestExtent));
    return extents;
  };
  for (const CheckItem& item : items) {
    if (values_.defect.empty()) draw_item(item);
  }
  if (values_.defect.empty() && build_arguments()) build_results();
  if (!values_.defect.empty()) {
    return invalid_input(description_.where() + ": its check clause does not fit: " + values_.defect);
  }
  return finish();
}

Result<CheckCase> CaseBuilder::from_example(const ExampleCall& example) {
  Shape shape;
  const std::int64_t rank = choices_.below(kMostDimensions + 1);
  for (std::int64_t d = 0; d < rank; ++d) shape.push_back(1 + choices_.below(kLargestExtent));
  Shape result;  // what the arguments are broadcast to
  std::string first_kind = "float";
  bool first = true;
  for (std::size_t a = 0; a < example.arguments.size(); ++a) {
    const ExampleArgument& argument = example.arguments[a];
    if (!argument.tensor) {
      node_.args.push_back(values_.evaluate(argument.literal));
      continue;
    }
    Shape own = argument.scalar ? Shape{} : shape;
    if (!argument.full && !argument.scalar) {
      // Dimensions of one element, and leading ones left out.
      for (std::int64_t& size : own) size = choices_.below(4) == 3 ? 1 : size;
      if (!own.empty() && choices_.below(4) == 3) own.erase(own.begin());
    }
    if (own.size() > result.size()) result.insert(result.begin(), own.size() - result.size(), 1);
    for (std::size_t d = 0; d < own.size(); ++d) {
      std::int64_t& size = result[result.size() - own.size() + d];
      size = std::max(size, own[d]);
    }
    if (first) first_kind = argument.data;
    first = false;
    node_.args.push_back(
        ValueRef{add_input("x" + std::to_string(a), argument.data, own, argument.data == "small" ? 5 : 10)});
  }
  if (example.results.empty()) {
    add_result("y", dtype_of(first_kind), result);
  }
  for (std::size_t r = 0; r < example.results.size(); ++r) {
    add_result("y" + std::to_string(r), dtype_of(example.results[r]), result);
  }
  if (!values_.defect.empty()) {
    return invalid_input(description_.where() + ": its example call does not fit: " + values_.defect);
  }
  return finish();
}

}  // namespace

std::int64_t Choices::below(std::int64_t limit) {
  TESSER_CHECK(limit > 0, std::to_string(limit));
  std::int64_t chosen = 0;
  if (replayed_) {
    chosen = made_.size() < given_.size() ? std::min(given_[made_.size()], limit - 1) : 0;
  } else {
    chosen = static_cast<std::int64_t>(generator_() % static_cast<std::uint64_t>(limit));
  }
  made_.push_back(chosen);
  return chosen;
}

TensorData random_data(const std::string& kind, const Shape& shape, std::int64_t limit, std::uint64_t seed) {
  TensorData data{dtype_of(kind), shape, {}};
  data.bytes.resize(static_cast<std::size_t>(element_count(shape)) * element_size(data.dtype));
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0.01, 0.99);
  const auto integer = [&](std::size_t) {
    return static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(std::max<std::int64_t>(limit, 1)));
  };
  const auto real = [&](std::size_t i) {
    if (kind == "positive") return 0.5 + std::abs(normal(generator));
    if (kind == "unit") return uniform(generator);
    if (kind == "large") return 2 + 2 * uniform(generator);
    if (kind == "rate") return 0.1 * uniform(generator);
    if (kind == "ascending") return (static_cast<double>(i) + uniform(generator)) / 7;
    return normal(generator);
  };
  switch (data.dtype) {
    case DType::kFloat32:
      fill<float>(data, real);
      break;
    case DType::kFloat64:
      fill<double>(data, real);
      break;
    case DType::kInt64:
      fill<std::int64_t>(data, integer);
      break;
    case DType::kInt32:
      fill<std::int32_t>(data, integer);
      break;
    case DType::kBool:
      fill<std::uint8_t>(data, [&](std::size_t) { return generator() % 2; });
      break;
    default:
      TESSER_CHECK(false, "no random data of type " + std::string(dtype_name(data.dtype)));
  }
  return data;
}

Result<CheckCase> draw_case(const Description& description, const std::string& op, std::size_t clause,
                            Choices& choices) {
  TESSER_CHECK(clause < description.checks.size(), op);
  CaseBuilder builder(description, op, choices);
  if (description.elementwise) {
    TESSER_ASSIGN_OR_RETURN(const ExampleCall example, parse_example(description, description.checks[clause]));
    return builder.from_example(example);
  }
  TESSER_ASSIGN_OR_RETURN(const std::vector<CheckItem> items, parse_check(description, description.checks[clause]));
  return builder.from_items(items);
}

}  // namespace tesser::tdl
