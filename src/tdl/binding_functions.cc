// The functions of indices, attributes and local calls (docs/tdl.md), and how many dimensions an index covers.

#include <algorithm>

#include "tdl/affine.h"
#include "tdl/binding.h"

namespace tesser::tdl {
namespace {

using Kind = Expression::Kind;

Evaluated of_integer(std::int64_t integer) {
  Evaluated value;
  value.attribute = integer;
  return value;
}

Evaluated of_integers(std::vector<std::int64_t> integers) {
  Evaluated value;
  value.attribute = std::move(integers);
  return value;
}

Evaluated of_truth(bool truth) {
  Evaluated value;
  value.attribute = truth;
  return value;
}

Evaluated of_forms(std::vector<AffineIndex> forms) {
  Evaluated value;
  value.is_index = true;
  value.is_list = true;
  value.forms = std::move(forms);
  return value;
}

}  // namespace

std::optional<TensorUse> Binding::tensor(const Expression& expression) {
  const bool result = expression.kind == Kind::kResult;
  const bool list = result ? description_.results[static_cast<std::size_t>(expression.id)].list
                           : description_.parameters[static_cast<std::size_t>(expression.id)].list;
  const std::vector<TensorUse> uses = result ? tensors_of_result(expression.id) : tensors_of_parameter(expression.id);
  if (list) {
    const bool inside = current_ != nullptr && std::any_of(uses.begin(), uses.end(), [&](const TensorUse& use) {
                          return use.operand == current_->operand && use.result == current_->result;
                        });
    if (inside) {
      return *current_;
    }
    fail("'" + expression.name + "' is a list of tensors: which one is meant?");
    return std::nullopt;
  }
  if (uses.empty()) {
    fail("'" + expression.name + "' is not given");
    return std::nullopt;
  }
  return uses.front();
}

bool Binding::axes_mean_all(const Expression& expression) {
  const Evaluated value = evaluate(expression);
  if (value.is_index) {
    return value.is_list && value.forms.empty();
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value.attribute)) {
    return list->empty();
  }
  return std::holds_alternative<graph::None>(value.attribute);
}

std::vector<std::size_t> Binding::axes(const Expression& expression, std::int64_t rank) {
  const Evaluated value = evaluate(expression);
  std::vector<std::size_t> result;
  if (failed()) {
    return result;
  }
  const auto list = integers(value);
  const bool none = !value.is_index && std::holds_alternative<graph::None>(value.attribute);
  if (none || (list && list->empty())) {
    for (std::int64_t d = 0; d < rank; ++d) {
      result.push_back(static_cast<std::size_t>(d));
    }
    return result;
  }
  if (!list) {
    fail("'" + expression.name + "' gives no axes");
    return result;
  }
  for (const std::int64_t axis : *list) {
    const std::int64_t place = axis < 0 ? axis + rank : axis;
    // A scalar has one axis as PyTorch counts: there is nothing to cut.
    if (rank == 0 && (axis == 0 || axis == -1)) {
      continue;
    }
    if (place < 0 || place >= rank ||
        std::find(result.begin(), result.end(), static_cast<std::size_t>(place)) != result.end()) {
      fail("'" + expression.name + "' gives axis " + std::to_string(axis) + " of " + std::to_string(rank) +
           " dimensions, or gives it twice");
      return {};
    }
    result.push_back(static_cast<std::size_t>(place));
  }
  return result;
}

Evaluated Binding::pack_function(const Expression& expression) {
  const auto function = static_cast<Function>(expression.id);
  std::vector<AffineIndex> pack = index_forms(expression.children[0]);
  if (failed()) {
    return {};
  }
  const auto size = static_cast<std::int64_t>(pack.size());
  switch (function) {
    case Function::kWith:
    case Function::kInsert: {
      bool is_list = false;
      const std::vector<AffineIndex> index = index_forms(expression.children[2], &is_list);
      if (function == Function::kWith) {
        const std::vector<std::size_t> at = axes(expression.children[1], size);
        if (!failed() && is_list && index.size() != at.size()) {
          fail("with() is given " + std::to_string(at.size()) + " axes and " + std::to_string(index.size()) +
               " indices");
        }
        for (std::size_t a = 0; a < at.size() && !failed(); ++a) {
          pack[at[a]] = index[is_list ? a : 0];
        }
        return of_forms(std::move(pack));
      }
      const bool all = axes_mean_all(expression.children[1]);
      const std::int64_t added = is_list ? static_cast<std::int64_t>(index.size()) : 1;
      std::int64_t count = added;
      if (!all && !is_list) {
        const Evaluated value = evaluate(expression.children[1]);
        const auto list = integers(value);
        count = list ? static_cast<std::int64_t>(list->size()) : 1;
      }
      const std::vector<std::size_t> at = axes(expression.children[1], size + count);
      if (!failed() && is_list && index.size() != at.size()) {
        fail("insert() is given " + std::to_string(at.size()) + " axes and " + std::to_string(index.size()) +
             " indices");
      }
      std::vector<AffineIndex> longer(static_cast<std::size_t>(size + count));
      std::vector<bool> taken(longer.size(), false);
      for (std::size_t a = 0; a < at.size() && !failed(); ++a) {
        longer[at[a]] = index[is_list ? a : 0];
        taken[at[a]] = true;
      }
      std::size_t next = 0;
      for (std::size_t d = 0; d < longer.size() && !failed(); ++d) {
        if (!taken[d] && next < pack.size()) {
          longer[d] = pack[next++];
        }
      }
      return of_forms(std::move(longer));
    }
    case Function::kWithout: {
      const std::vector<std::size_t> at = axes(expression.children[1], size);
      std::vector<AffineIndex> rest;
      for (std::size_t d = 0; d < pack.size(); ++d) {
        if (std::find(at.begin(), at.end(), d) == at.end()) {
          rest.push_back(pack[d]);
        }
      }
      return of_forms(std::move(rest));
    }
    case Function::kAt: {
      std::vector<AffineIndex> chosen;
      for (const std::size_t axis : axes(expression.children[1], size)) {
        chosen.push_back(pack[axis]);
      }
      return of_forms(std::move(chosen));
    }
    case Function::kSwap: {
      const std::vector<std::size_t> a = axes(expression.children[1], size);
      const std::vector<std::size_t> b = axes(expression.children[2], size);
      if (!failed() && a.size() == 1 && b.size() == 1) {
        std::swap(pack[a.front()], pack[b.front()]);
      } else if (!pack.empty()) {
        fail("swap() takes one axis and one other");
      }
      return of_forms(std::move(pack));
    }
    case Function::kOrder: {
      const std::vector<std::size_t> at = axes(expression.children[1], size);
      if (!failed() && at.size() != pack.size()) {
        fail("order() is given " + std::to_string(at.size()) + " axes of " + std::to_string(size));
      }
      std::vector<AffineIndex> ordered;
      for (const std::size_t axis : at) {
        ordered.push_back(pack[axis]);
      }
      return of_forms(std::move(ordered));
    }
    default: {  // last, drop_last
      const std::optional<std::int64_t> count = integer(expression.children[1]);
      if (failed() || *count < 0 || *count > size) {
        fail(expression.name + "() of " + std::to_string(size) + " dimensions does not fit");
        return {};
      }
      const auto split = pack.end() - static_cast<std::ptrdiff_t>(*count);
      return function == Function::kLast ? of_forms({split, pack.end()}) : of_forms({pack.begin(), split});
    }
  }
}

Evaluated Binding::evaluate_call(const Expression& expression) {
  const std::vector<Expression>& children = expression.children;
  switch (static_cast<Function>(expression.id)) {
    case Function::kSize: {
      const std::optional<TensorUse> use = tensor(children[0]);
      if (failed()) {
        return {};
      }
      const Shape& shape = shape_of(*use);
      const std::vector<std::size_t> at = axes(children[1], static_cast<std::int64_t>(shape.size()));
      if (!failed() && at.size() != 1) {
        fail("size() takes one dimension, and '" + children[0].name + "' has " + std::to_string(shape.size()));
      }
      return failed() ? Evaluated{} : of_integer(shape[at.front()]);
    }
    case Function::kShape: {
      const std::optional<TensorUse> use = tensor(children[0]);
      return failed() ? Evaluated{} : of_integers(shape_of(*use));
    }
    case Function::kRank: {
      const std::optional<TensorUse> use = tensor(children[0]);
      return failed() ? Evaluated{} : of_integer(static_cast<std::int64_t>(shape_of(*use).size()));
    }
    case Function::kExtent: {
      const auto v = static_cast<std::size_t>(children[0].id);
      std::vector<std::int64_t> extents;
      for (std::int64_t d = 0; d < lengths_[v] && first_[v] >= 0; ++d) {
        extents.push_back(variables_[static_cast<std::size_t>(first_[v] + d)].extent);
      }
      const bool known = first_[v] >= 0 && std::all_of(extents.begin(), extents.end(), [](auto e) { return e >= 0; });
      if (!known) {
        fail("the extent of " + children[0].name + " is not known where it is asked for");
        return {};
      }
      return description_.variables[v].pack ? of_integers(std::move(extents)) : of_integer(extents.front());
    }
    case Function::kLength:
      return of_integer(static_cast<std::int64_t>(index_forms(children[0]).size()));
    case Function::kProduct: {
      AffineIndex product = affine_constant(1);
      for (const AffineIndex& form : index_forms(children[0])) {
        product = affine_combined(Operation::kMultiply, product, form, *this);
      }
      Evaluated value;
      value.is_index = true;
      value.forms.push_back(std::move(product));
      return value;
    }
    case Function::kMin:
    case Function::kMax: {
      const std::optional<std::int64_t> a = integer(children[0]);
      const std::optional<std::int64_t> b = integer(children[1]);
      if (failed()) {
        return {};
      }
      return of_integer(static_cast<Function>(expression.id) == Function::kMin ? std::min(*a, *b) : std::max(*a, *b));
    }
    case Function::kOffset: {
      if (current_ == nullptr) {
        fail("offset() has a meaning in the index of a list of tensors only");
        return {};
      }
      Evaluated value;
      value.is_index = true;
      value.forms.push_back(affine_variable(kOffsetVariable));
      return value;
    }
    case Function::kSizes: {
      const std::vector<TensorUse> uses =
          children[0].kind == Kind::kResult ? tensors_of_result(children[0].id) : tensors_of_parameter(children[0].id);
      std::vector<std::int64_t> sizes;
      for (const TensorUse& use : uses) {
        const Shape& shape = shape_of(use);
        const std::vector<std::size_t> at = axes(children[1], static_cast<std::int64_t>(shape.size()));
        if (failed() || at.size() != 1) {
          fail("sizes() takes one dimension");
          return {};
        }
        sizes.push_back(shape[at.front()]);
      }
      return of_integers(std::move(sizes));
    }
    case Function::kExists:
      return of_truth(!tensors_of_parameter(children[0].id).empty());
    case Function::kGiven: {
      std::vector<std::int64_t> places;
      for (const TensorUse& use : tensors_of_parameter(children[0].id)) {
        places.push_back(static_cast<std::int64_t>(use.element));
      }
      return of_integers(std::move(places));
    }
    case Function::kWanted:
      if (children[0].kind != Kind::kResult) {
        fail("wanted() asks for a result");
        return {};
      }
      return of_truth(!tensors_of_result(children[0].id).empty());
    case Function::kElementwise:
      fail("there is no function '" + expression.name + "' of attributes");
      return {};
    case Function::kLocalShape:
    case Function::kLocalSizes:
    case Function::kBegin:
    case Function::kBeginOf:
    case Function::kSizeOf:
    case Function::kPadded:
      return evaluate_local_call(expression);
    default:
      return pack_function(expression);
  }
}

Evaluated Binding::evaluate_local_call(const Expression& expression) {
  if (part_ == nullptr) {
    fail(expression.name + "() has a meaning in a local call only");
    return {};
  }
  const std::vector<Expression>& children = expression.children;
  const auto function = static_cast<Function>(expression.id);
  const auto region_of = [&](const TensorUse& use) -> const Region& {
    return use.operand >= 0 ? part_->call->operands[static_cast<std::size_t>(use.operand)].given
                            : part_->call->results[static_cast<std::size_t>(use.result)].region;
  };
  switch (function) {
    case Function::kLocalShape:
    case Function::kBegin: {
      const std::optional<TensorUse> use = tensor(children[0]);
      if (failed()) {
        return {};
      }
      std::vector<std::int64_t> list;
      for (const Interval& interval : region_of(*use)) {
        list.push_back(function == Function::kBegin ? interval.begin : interval.size());
      }
      return of_integers(std::move(list));
    }
    case Function::kLocalSizes: {
      const std::vector<TensorUse> uses =
          children[0].kind == Kind::kResult ? tensors_of_result(children[0].id) : tensors_of_parameter(children[0].id);
      std::vector<std::int64_t> sizes;
      for (const TensorUse& use : uses) {
        const Region& region = region_of(use);
        const std::vector<std::size_t> at = axes(children[1], static_cast<std::int64_t>(region.size()));
        if (failed() || at.size() != 1) {
          fail("local_sizes() takes one dimension");
          return {};
        }
        sizes.push_back(region[at.front()].size());
      }
      return of_integers(std::move(sizes));
    }
    case Function::kBeginOf:
    case Function::kSizeOf: {
      const auto v = static_cast<std::size_t>(children[0].id);
      if (first_[v] < 0) {
        fail("variable " + children[0].name + " has no meaning for this call");
        return {};
      }
      std::vector<std::int64_t> list;
      for (std::int64_t d = 0; d < lengths_[v]; ++d) {
        const Interval& interval = (*part_->box)[static_cast<std::size_t>(first_[v] + d)];
        list.push_back(function == Function::kBeginOf ? interval.begin : interval.size());
      }
      return description_.variables[v].pack ? of_integers(std::move(list)) : of_integer(list.front());
    }
    default:
      fail("padded() is an argument of the local call, and stands in no other expression");
      return {};
  }
}

Binding::Length Binding::length_of(const Expression& expression) {
  switch (expression.kind) {
    case Kind::kVariable:
    case Kind::kWhole: {
      const auto v = static_cast<std::size_t>(expression.id);
      if (!description_.variables[v].pack) {
        return {};
      }
      return lengths_[v] < 0 ? Length{expression.id, 0, true} : Length{-1, lengths_[v], true};
    }
    case Kind::kNegate:
      return length_of(expression.children.front());
    case Kind::kBinary: {
      const Length a = length_of(expression.children[0]);
      const Length b = length_of(expression.children[1]);
      if (!b.list || b.spread) {
        return a.list ? a : b;
      }
      if (!a.list || a.spread) {
        return b;
      }
      // Two lists have one length.
      if (a.pack >= 0 && b.pack < 0) {
        set_length(a.pack, b.constant - a.constant);
        return b;
      }
      if (b.pack >= 0 && a.pack < 0) {
        set_length(b.pack, a.constant - b.constant);
      }
      return a;
    }
    case Kind::kCall: {
      const auto function = static_cast<Function>(expression.id);
      switch (function) {
        case Function::kWith:
        case Function::kInsert: {
          const Length pack = length_of(expression.children[0]);
          const Length index = length_of(expression.children[2]);
          const bool all = axes_mean_all(expression.children[1]);
          if (all) {
            // Everything is replaced, or nothing else is there.
            if (function == Function::kWith) {
              return pack;
            }
            if (pack.pack >= 0 && pack.constant == 0) {
              set_length(pack.pack, 0);
            }
            return index;
          }
          const Evaluated value = evaluate(expression.children[1]);
          const auto axes_given = integers(value);
          const std::int64_t count = axes_given ? static_cast<std::int64_t>(axes_given->size()) : 1;
          if (index.pack >= 0) {
            set_length(index.pack, count - index.constant);
          }
          return {pack.pack, pack.constant + (function == Function::kInsert ? count : 0), true};
        }
        case Function::kWithout: {
          const Length pack = length_of(expression.children[0]);
          if (axes_mean_all(expression.children[1])) {
            return {-1, 0, true};
          }
          const auto axes_given = integers(evaluate(expression.children[1]));
          return {pack.pack, pack.constant - (axes_given ? static_cast<std::int64_t>(axes_given->size()) : 0), true};
        }
        case Function::kAt: {
          if (axes_mean_all(expression.children[1])) {
            return length_of(expression.children[0]);
          }
          const auto axes_given = integers(evaluate(expression.children[1]));
          return {-1, axes_given ? static_cast<std::int64_t>(axes_given->size()) : 1, true};
        }
        case Function::kSwap:
        case Function::kOrder:
          return length_of(expression.children[0]);
        case Function::kLast:
          return {-1, integer(expression.children[1]).value_or(0), true};
        case Function::kDropLast: {
          const Length pack = length_of(expression.children[0]);
          return {pack.pack, pack.constant - integer(expression.children[1]).value_or(0), true};
        }
        case Function::kShape:
        case Function::kSizes:
        case Function::kGiven:
        case Function::kLocalShape:
        case Function::kLocalSizes:
        case Function::kBegin:
        case Function::kBeginOf:
        case Function::kSizeOf:
          break;
        default:
          return {};
      }
      break;
    }
    case Kind::kList: {
      Length list{-1, 0, true};
      for (const Expression& child : expression.children) {
        const Length length = length_of(child);
        if (length.pack >= 0 && list.pack >= 0) {
          fail("a list holds two packs whose lengths are not known");
        }
        list.pack = std::max(list.pack, length.pack);
        list.constant += length.constant;
      }
      return list;
    }
    case Kind::kLiteral:
    case Kind::kElement:
      return {};
    default:
      break;
  }
  bool is_list = false;
  const std::vector<AffineIndex> forms = index_forms(expression, &is_list);
  return {-1, is_list ? static_cast<std::int64_t>(forms.size()) : 1, is_list, is_list && forms.size() == 1};
}

}  // namespace tesser::tdl
