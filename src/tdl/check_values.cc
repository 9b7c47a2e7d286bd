#include "tdl/check_values.h"

#include <algorithm>
#include <cstdlib>

namespace tesser::tdl {
namespace {

using graph::Argument;
using Kind = Expression::Kind;
using List = std::vector<std::int64_t>;

std::int64_t quotient(std::int64_t a, std::int64_t b) {
  const std::int64_t rounded = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? rounded - 1 : rounded;
}

template <typename Number>
Number computed(Operation operation, Number a, Number b) {
  switch (operation) {
    case Operation::kAdd:
      return a + b;
    case Operation::kSubtract:
      return a - b;
    default:
      return a * b;
  }
}

std::optional<double> number(const Argument& argument) {
  if (const auto* integer = std::get_if<std::int64_t>(&argument)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&argument)) return *real;
  return std::nullopt;
}

// How many elements x[start:end:step] has of n.
std::int64_t slice_size(std::int64_t n, const Argument& start, const Argument& end, std::int64_t step) {
  const auto place = [n](const Argument& argument, std::int64_t otherwise) {
    const auto* given = std::get_if<std::int64_t>(&argument);
    if (given == nullptr) return otherwise;
    return std::clamp<std::int64_t>(*given < 0 ? *given + n : *given, 0, n);
  };
  const std::int64_t first = place(start, 0);
  return (std::max(place(end, n) - first, std::int64_t{0}) + step - 1) / step;
}

}  // namespace

Argument CheckValues::fail(const std::string& what) {
  if (defect.empty()) defect = what;
  return std::int64_t{1};
}

List CheckValues::integers(const Expression& expression) {
  const Argument value = evaluate(expression);
  if (const auto* list = std::get_if<List>(&value)) return *list;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return {*integer};
  if (!std::holds_alternative<graph::None>(value)) fail("'" + expression.name + "' is neither an integer nor a list");
  return {};
}

bool CheckValues::holds(const Expression& condition) {
  const Argument value = evaluate(condition);
  const auto* truth = std::get_if<bool>(&value);
  if (truth == nullptr) fail("a condition is neither true nor false");
  return truth != nullptr && *truth;
}

std::vector<std::size_t> CheckValues::axes(const Expression& expression, std::size_t rank) {
  const List list = integers(expression);
  std::vector<std::size_t> found;
  if (list.empty()) {
    for (std::size_t d = 0; d < rank; ++d) found.push_back(d);
  }
  for (const std::int64_t axis : list) {
    const std::int64_t place = axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
    if (place < 0 || place >= static_cast<std::int64_t>(rank)) {
      fail("axis " + std::to_string(axis) + " of " + std::to_string(rank) + " dimensions");
      return {};
    }
    found.push_back(static_cast<std::size_t>(place));
  }
  return found;
}

Argument CheckValues::evaluate(const Expression& expression) {
  if (!defect.empty()) return std::int64_t{1};
  switch (expression.kind) {
    case Kind::kLiteral:
      return expression.literal;
    case Kind::kAttribute:
    case Kind::kConstant:
    case Kind::kVariable:
    case Kind::kWhole:
    case Kind::kTensor: {
      const auto found = names.find(expression.name);
      if (found != names.end()) return found->second;
      if (!draw) return fail("'" + expression.name + "' is not known");
      return names[expression.name] = draw(expression.name, expression.pack);
    }
    case Kind::kCall:
      return call(expression);
    case Kind::kBinary:
      return binary(expression);
    case Kind::kNegate: {
      const Argument value = evaluate(expression.children.front());
      if (const auto* real = std::get_if<double>(&value)) return -*real;
      if (const auto* integer = std::get_if<std::int64_t>(&value)) return -*integer;
      return fail("only a number has a negative");
    }
    case Kind::kNot:
      return !holds(expression.children.front());
    case Kind::kIsNull:
      return std::holds_alternative<graph::None>(evaluate(expression.children.front()));
    case Kind::kList: {
      List list;
      std::vector<bool> truths;
      for (const Expression& child : expression.children) {
        const Argument value = evaluate(child);
        if (const auto* truth = std::get_if<bool>(&value)) {
          truths.push_back(*truth);
        } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
          list.push_back(*integer);
        } else if (const auto* several = std::get_if<List>(&value)) {
          list.insert(list.end(), several->begin(), several->end());
        }
      }
      return truths.empty() ? Argument(list) : Argument(truths);
    }
    case Kind::kElement: {
      const Argument list = evaluate(expression.children[0]);
      const List at = integers(expression.children[1]);
      const auto element = [&](const auto& values) -> Argument {
        const auto size = static_cast<std::int64_t>(values.size());
        const std::int64_t place = at.size() == 1 ? (at[0] < 0 ? at[0] + size : at[0]) : -1;
        if (place < 0 || place >= size) return fail("a list has no such element");
        return Argument(
            static_cast<typename std::decay_t<decltype(values)>::value_type>(values[static_cast<std::size_t>(place)]));
      };
      if (const auto* truths = std::get_if<std::vector<bool>>(&list)) return element(*truths);
      if (const auto* several = std::get_if<List>(&list)) return element(*several);
      return fail("only a list has elements");
    }
    default:
      return fail("'" + expression.name + "' is no value of a check clause");
  }
}

Argument CheckValues::binary(const Expression& expression) {
  const auto operation = static_cast<Operation>(expression.id);
  if (operation == Operation::kAnd) return holds(expression.children[0]) && holds(expression.children[1]);
  if (operation == Operation::kOr) return holds(expression.children[0]) || holds(expression.children[1]);
  const Argument left = evaluate(expression.children[0]);
  const Argument right = evaluate(expression.children[1]);
  if (!defect.empty()) return std::int64_t{1};
  const bool real = std::holds_alternative<double>(left) || std::holds_alternative<double>(right);
  if (operation == Operation::kEqual || operation == Operation::kUnequal) {
    const bool numbers = number(left) && number(right);
    const bool equal = numbers ? *number(left) == *number(right) : left == right;
    return equal == (operation == Operation::kEqual);
  }
  if (operation > Operation::kUnequal) {
    if (!number(left) || !number(right)) return fail("only numbers are compared");
    const double a = *number(left);
    const double b = *number(right);
    return operation == Operation::kLess          ? a < b
           : operation == Operation::kLessOrEqual ? a <= b
           : operation == Operation::kGreater     ? a > b
                                                  : a >= b;
  }
  if (real) {
    if (!number(left) || !number(right)) return fail("only numbers are added and multiplied");
    const double a = *number(left);
    const double b = *number(right);
    return operation == Operation::kDivide ? a / b : computed(operation, a, b);
  }
  const List a = integers(expression.children[0]);
  const List b = integers(expression.children[1]);
  const bool list = std::holds_alternative<List>(left) || std::holds_alternative<List>(right);
  const std::size_t count = std::holds_alternative<List>(left) ? a.size() : b.size();
  const bool fits = (a.size() == count || a.size() == 1) && (b.size() == count || b.size() == 1);
  if (!defect.empty() || !fits) return fail("lists of different lengths do not go together");
  List result;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t x = a[a.size() == count ? i : 0];
    const std::int64_t y = b[b.size() == count ? i : 0];
    if (operation == Operation::kDivide && y == 0) return fail("a division by 0");
    result.push_back(operation == Operation::kDivide ? quotient(x, y) : computed(operation, x, y));
  }
  return list ? Argument(result) : Argument(result.front());
}

Argument CheckValues::call(const Expression& expression) {
  const std::vector<Expression>& children = expression.children;
  const std::string& name = expression.name;
  const auto takes = [&](std::size_t count) {
    if (children.size() != count) fail(name + " takes " + std::to_string(count) + " arguments");
    return children.size() == count;
  };
  if (name == "exists") return takes(1) && given.contains(children[0].name);
  if (name == "rank" || name == "shape" || name == "size") {
    if (!takes(name == "size" ? 2 : 1)) return std::int64_t{1};
    const auto shape = shapes.find(children[0].name);
    if (shape == shapes.end()) return fail("'" + children[0].name + "' is no tensor that was drawn before");
    if (name == "rank") return static_cast<std::int64_t>(shape->second.size());
    if (name == "shape") return shape->second;
    const auto place = axes(children[1], shape->second.size());
    return place.size() == 1 ? Argument(shape->second[place[0]]) : fail("size takes one dimension");
  }
  if (name == "dtype") {
    if (!takes(1)) return graph::None{};
    const Argument text = evaluate(children[0]);
    const auto* found = std::get_if<std::string>(&text);
    return found == nullptr ? fail("dtype takes a name") : Argument(graph::Enumerator{"dtype", *found});
  }
  if (name == "slice_size") {
    if (!takes(4)) return std::int64_t{1};
    const List n = integers(children[0]);
    const List step = integers(children[3]);
    return slice_size(n.at(0), evaluate(children[1]), evaluate(children[2]), step.at(0));
  }
  if (children.empty()) return fail("there is no function '" + name + "' of no arguments");
  List pack = integers(children[0]);
  if (!defect.empty()) return std::int64_t{1};
  if (name == "length") return static_cast<std::int64_t>(pack.size());
  if (name == "abs" && pack.size() == 1) return std::abs(pack[0]);
  if (name == "product") {
    std::int64_t product = 1;
    for (const std::int64_t each : pack) product *= each;
    return product;
  }
  if (name == "order" && takes(2)) {
    List ordered;
    for (const std::size_t axis : axes(children[1], pack.size())) ordered.push_back(pack[axis]);
    return ordered;
  }
  if (name == "at" && takes(2)) {
    List chosen;
    for (const std::size_t axis : axes(children[1], pack.size())) chosen.push_back(pack[axis]);
    return chosen;
  }
  if (name == "swap" && takes(3)) {
    const auto a = axes(children[1], pack.size());
    const auto b = axes(children[2], pack.size());
    if (a.size() == 1 && b.size() == 1) std::swap(pack[a[0]], pack[b[0]]);
    return pack;
  }
  if ((name == "last" || name == "drop_last") && takes(2)) {
    const List count = integers(children[1]);
    if (count.size() != 1 || count[0] < 0 || count[0] > static_cast<std::int64_t>(pack.size())) {
      return fail(name + " asks for more than there is");
    }
    const auto split = pack.end() - static_cast<std::ptrdiff_t>(count[0]);
    return name == "last" ? List(split, pack.end()) : List(pack.begin(), split);
  }
  if ((name == "min" || name == "max") && takes(2)) {
    const List other = integers(children[1]);
    if (pack.size() != 1 || other.size() != 1) return fail(name + " takes two numbers");
    return name == "min" ? std::min(pack[0], other[0]) : std::max(pack[0], other[0]);
  }
  if (name == "resolved" && takes(2)) {  // a shape with a -1, of so many elements
    std::int64_t rest = integers(children[1]).at(0);
    for (const std::int64_t size : pack) rest /= size < 0 ? 1 : size;
    std::replace(pack.begin(), pack.end(), std::int64_t{-1}, rest);
    return pack;
  }
  if (name == "with" || name == "without" || name == "insert" || name == "reduced") {
    if (!takes(name == "without" ? 2 : 3)) return pack;
    if (name == "reduced") {  // the shape behind a reduction over axes, which keeps them or not
      const bool keep = holds(children[2]);
      List left;
      const auto reduced = axes(children[1], pack.size());
      for (std::size_t d = 0; d < pack.size(); ++d) {
        const bool gone = std::find(reduced.begin(), reduced.end(), d) != reduced.end();
        if (!gone || keep) left.push_back(gone ? 1 : pack[d]);
      }
      return left;
    }
    if (name == "without") {
      List left;
      const auto gone = axes(children[1], pack.size());
      for (std::size_t d = 0; d < pack.size(); ++d) {
        if (std::find(gone.begin(), gone.end(), d) == gone.end()) left.push_back(pack[d]);
      }
      return left;
    }
    const List put = integers(children[2]);
    if (put.empty()) return pack;
    if (name == "with") {
      const auto places = axes(children[1], pack.size());
      for (std::size_t i = 0; i < places.size(); ++i) pack[places[i]] = put[put.size() == 1 ? 0 : i];
      return pack;
    }
    const std::size_t count = std::max(integers(children[1]).size(), put.size());
    const auto places = axes(children[1], pack.size() + count);
    List longer(pack.size() + count, -1);
    for (std::size_t i = 0; i < places.size(); ++i) longer[places[i]] = put[put.size() == 1 ? 0 : i];
    auto next = pack.begin();
    for (std::size_t d = 0; d < longer.size(); ++d) {
      const bool taken = std::find(places.begin(), places.end(), d) != places.end();
      if (!taken && next != pack.end()) longer[d] = *next++;
    }
    return longer;
  }
  return fail("there is no function '" + name + "' in check clauses");
}

}  // namespace tesser::tdl
