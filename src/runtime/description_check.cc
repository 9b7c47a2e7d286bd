#include "runtime/description_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "graph/operator_class.h"
#include "graph/print.h"
#include "runtime/executor.h"
#include "runtime/recombination.h"
#include "tdl/check_case.h"
#include "tdl/check_clause.h"
#include "tdl/description.h"
#include "tdl/semantics.h"

namespace tesser::runtime {
namespace {

using graph::kNone;
using graph::Node;
using graph::Program;
using graph::ValueId;
using graph::ValueRef;
using tdl::Box;
using tdl::CheckCase;
using tdl::Interval;
using tdl::TensorData;

// A way to cut a call: the boxes of its parts.
struct Cut {
  std::string text;  // "k into [0:2] [2:5]"
  std::vector<Box> boxes;
};

// What runs as one node: the whole, or a part.
struct Piece {
  std::string op;
  std::vector<graph::Argument> args;
  std::vector<TensorData> operands;          // in the order in which args read them
  std::vector<tdl::LocalResult> results;     // by result of the node
  std::vector<std::optional<Shape>> shapes;  // by result of the node: what the kernel makes
  std::vector<TensorData> made;
  std::size_t cut = 0;
};

std::vector<Interval> random_parts(const Interval& interval, std::int64_t parts, std::mt19937_64& generator) {
  std::vector<std::int64_t> places{interval.begin, interval.end};
  for (std::int64_t i = 1; i < parts; ++i) {
    places.push_back(interval.begin +
                     static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(interval.size() + 1)));
  }
  std::sort(places.begin(), places.end());
  std::vector<Interval> result;
  for (std::size_t i = 0; i + 1 < places.size(); ++i) result.push_back({places[i], places[i + 1]});
  return result;
}

std::vector<Interval> even_parts(const Interval& interval, std::int64_t parts) {
  std::vector<Interval> result;
  for (std::int64_t i = 0; i < parts; ++i) result.push_back(tdl::part_of(interval, parts, i));
  return result;
}

std::string parts_text(const std::vector<Interval>& parts) {
  std::string text;
  for (const Interval& part : parts) text += (text.empty() ? "" : " ") + tdl::region_text({part});
  return text;
}

// Each strategy cut evenly and unevenly, and some pairs of strategies one inside the other.
std::vector<Cut> cuts_of(const tdl::NodeSemantics& semantics, std::mt19937_64& generator) {
  constexpr std::int64_t kParts[] = {2, 3, 4, 5, 6, 7};
  constexpr std::size_t kPairs = 3;
  const auto any_count = [&] { return kParts[generator() % std::size(kParts)]; };
  const Box whole = semantics.whole_box();
  std::vector<Cut> cuts;
  const auto& strategies = semantics.strategies();
  const auto name_of = [&](std::size_t s) {
    return semantics.variables()[static_cast<std::size_t>(strategies[s].variable)].name;
  };
  for (std::size_t s = 0; s < strategies.size(); ++s) {
    const auto variable = static_cast<std::size_t>(strategies[s].variable);
    for (const auto& parts :
         {even_parts(whole[variable], any_count()), random_parts(whole[variable], any_count(), generator),
          random_parts(whole[variable], 2, generator)}) {
      Cut cut{name_of(s) + " into " + parts_text(parts), {}};
      for (const Interval& part : parts) {
        cut.boxes.push_back(whole);
        cut.boxes.back()[variable] = part;
      }
      cuts.push_back(std::move(cut));
    }
  }
  for (std::size_t pair = 0; !strategies.empty() && pair < kPairs; ++pair) {
    const std::size_t outer = generator() % strategies.size();
    const std::size_t inner = generator() % strategies.size();
    const auto outer_variable = static_cast<std::size_t>(strategies[outer].variable);
    const auto inner_variable = static_cast<std::size_t>(strategies[inner].variable);
    Cut cut{name_of(outer) + " and inside it " + name_of(inner) + ":", {}};
    for (const Interval& part : random_parts(whole[outer_variable], 2, generator)) {
      Box box = whole;
      box[outer_variable] = part;
      const auto parts = random_parts(box[inner_variable], 2 + static_cast<std::int64_t>(generator() % 2), generator);
      cut.text += " " + tdl::region_text({part}) + " into " + parts_text(parts) + ",";
      for (const Interval& each : parts) {
        cut.boxes.push_back(box);
        cut.boxes.back()[inner_variable] = each;
      }
    }
    cut.text.pop_back();
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

bool is_update(const std::string& op) { return op == "tesser::sgd" || op == "tesser::adam"; }

// The program that runs pieces one after another, each on inputs of its own.
Program program_of(const std::vector<Piece>& pieces) {
  Program program;
  program.name = "check";
  program.kind = graph::Kind::kForward;
  program.producer = "check";
  std::vector<std::vector<ValueId>> inputs;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    inputs.emplace_back();
    for (std::size_t o = 0; o < pieces[p].operands.size(); ++o) {
      const TensorData& data = pieces[p].operands[o];
      graph::Value value;
      value.name = "piece" + std::to_string(p) + "." + std::to_string(o);
      // Updates work in place, on state.
      value.role = is_update(pieces[p].op) ? graph::Role::kBuffer : graph::Role::kConstant;
      value.dtype = data.dtype;
      value.shape = data.shape;
      inputs.back().push_back(static_cast<ValueId>(program.values.size()));
      program.inputs.push_back(inputs.back().back());
      program.values.push_back(std::move(value));
    }
  }
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const Piece& piece = pieces[p];
    Node node;
    node.name = "piece" + std::to_string(p);
    node.op = piece.op;
    node.args = piece.args;
    std::size_t next = 0;
    const auto replace = [&](ValueRef& reference) {
      if (reference.id != kNone) reference.id = inputs[p][next++];
    };
    for (graph::Argument& argument : node.args) {
      if (auto* reference = std::get_if<ValueRef>(&argument)) replace(*reference);
      if (auto* list = std::get_if<std::vector<ValueRef>>(&argument))
        std::for_each(list->begin(), list->end(), replace);
    }
    for (std::size_t r = 0; r < piece.shapes.size(); ++r) {
      if (!piece.shapes[r]) {
        // A local call of another operator makes the results that exist, and no others.
        if (piece.op == pieces.front().op) node.outputs.push_back(kNone);
        continue;
      }
      graph::Value value;
      value.name = node.name + ".result" + std::to_string(r);
      value.dtype = pieces.front().made[r].dtype;
      value.shape = *piece.shapes[r];
      value.producer = static_cast<graph::NodeId>(p);
      value.output_index = static_cast<int>(node.outputs.size());
      const auto id = static_cast<ValueId>(program.values.size());
      program.results.push_back({value.name, id});
      program.values.push_back(std::move(value));
      node.outputs.push_back(id);
    }
    program.nodes.push_back(std::move(node));
  }
  return program;
}

Result<void> run(std::vector<Piece>& pieces) {
  const Program program = program_of(pieces);
  ExecutorOptions options;
  options.threads = 1;
  options.fuse = false;
  options.choose_layout = false;
  TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<Executor> executor, Executor::create(program, options));
  std::size_t input = 0;
  for (const Piece& piece : pieces) {
    for (const TensorData& data : piece.operands) {
      TESSER_RETURN_IF_ERROR(executor->write_state(program.value(program.inputs[input++]).name,
                                                   {data.dtype, data.shape, data.bytes.data()}));
    }
  }
  TESSER_RETURN_IF_ERROR(executor->run(0, 0));
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    for (std::size_t r = 0; r < pieces[p].shapes.size(); ++r) {
      if (!pieces[p].shapes[r]) continue;
      TensorData& made = pieces[p].made[r];
      made.shape = *pieces[p].shapes[r];
      made.bytes.resize(static_cast<std::size_t>(element_count(made.shape)) * element_size(made.dtype));
      TESSER_RETURN_IF_ERROR(executor->read_result("piece" + std::to_string(p) + ".result" + std::to_string(r),
                                                   {made.dtype, made.shape, made.bytes.data()}));
    }
  }
  return {};
}

// How far elements of a result may lie apart. Numbers that are moved, chosen or drawn must be the same.
double tolerance_of(const std::string& op, const CheckCase& each, const TensorData& result) {
  const graph::OperatorClass kind = graph::operator_class(op);
  constexpr std::string_view kDrawn[] = {"tesser::dropout", "tesser::uniform", "tesser::normal", "tesser::bernoulli"};
  const bool drawn = std::find(std::begin(kDrawn), std::end(kDrawn), graph::base_name(op)) != std::end(kDrawn);
  const bool moved = kind == graph::OperatorClass::kView || kind == graph::OperatorClass::kMovement;
  if (!is_floating(result.dtype) || moved || drawn) return 0;
  double scale = largest_magnitude(result);
  std::int64_t elements = 1;
  bool narrow = result.dtype == DType::kFloat32;
  for (const TensorData& input : each.inputs) {
    scale = std::max(scale, largest_magnitude(input));
    elements = std::max(elements, element_count(input.shape));
    narrow = narrow || (input.dtype == DType::kFloat32 && !std::string_view(op).starts_with("tesser::"));
  }
  // Errors of a sum grow like the root of the number of its terms.
  return (narrow ? 0x1p-23 : 0x1p-52) * 32 * scale * std::sqrt(1 + static_cast<double>(elements) / 256);
}

struct Checked {
  std::int64_t strategies = 0;
  std::int64_t parts = 0;
  bool described = true;
  std::string misfit;  // why not, if the operator has a description
  std::string failure;
};

Checked refused(const std::string& why) {
  Checked checked;
  checked.failure = why;
  return checked;
}

Result<Piece> whole_piece(const CheckCase& each) {
  const Node& node = each.program.nodes.front();
  Piece piece;
  piece.op = node.op;
  piece.args = node.args;
  for (const ValueId id : graph::values_read(node)) piece.operands.push_back(each.inputs[static_cast<std::size_t>(id)]);
  for (const ValueId id : node.outputs) {
    piece.results.emplace_back();
    piece.made.emplace_back();
    piece.shapes.emplace_back();
    if (id == kNone) continue;
    piece.made.back().dtype = each.program.value(id).dtype;
    piece.shapes.back() = each.program.value(id).shape;
  }
  return piece;
}

Piece part_piece(const CheckCase& each, const Piece& whole, const tdl::LocalCall& call, std::size_t cut) {
  Piece piece;
  piece.op = call.op;
  piece.args = call.args;
  piece.cut = cut;
  piece.results = call.results;
  piece.made.resize(call.results.size());
  piece.shapes.resize(call.results.size());
  for (const std::size_t operand : call.argument_operands) {
    const tdl::LocalOperand& local = call.operands[operand];
    // What lies outside of `region` is not there.
    const TensorData there = cut_out(whole.operands[operand], local.region, local.zero);
    tdl::Region within = local.given;
    for (std::size_t d = 0; d < within.size(); ++d) {
      within[d].begin -= local.region[d].begin;
      within[d].end -= local.region[d].begin;
    }
    piece.operands.push_back(cut_out(there, within, false));
  }
  for (std::size_t r = 0; r < call.results.size(); ++r) {
    piece.made[r].dtype = whole.made[r].dtype;
    if (whole.shapes[r]) piece.shapes[r] = tdl::shape_of(call.results[r].produced);
  }
  return piece;
}

// The result's name in the description, or its number.
std::string result_name(const tdl::Description* description, std::size_t r) {
  const bool named = description != nullptr && r < description->results.size();
  return named ? "'" + description->results[r].name + "'" : std::to_string(r);
}

// Whether a message of the executor speaks of a piece, and of which.
std::optional<std::size_t> piece_in(const std::string& message, std::size_t count) {
  for (std::size_t p = count; p-- > 0;) {
    if (message.find("'piece" + std::to_string(p) + "'") != std::string::npos) return p;
  }
  return std::nullopt;
}

// kInvalidInput when the whole cannot be run; what is wrong with parts is in Checked::failure.
Result<Checked> check_case(const tdl::Catalogue& catalogue, const CheckCase& each, std::mt19937_64& generator) {
  const Node& node = each.program.nodes.front();
  const tdl::NodeSemantics semantics = tdl::analyze(each.program, node, catalogue);
  Checked checked;
  checked.described = semantics.described();
  checked.misfit = semantics.misfit();
  if (!checked.described) return checked;
  checked.strategies = static_cast<std::int64_t>(semantics.strategies().size());
  std::vector<Piece> pieces;
  TESSER_ASSIGN_OR_RETURN(Piece whole, whole_piece(each));
  pieces.push_back(std::move(whole));
  const std::vector<Cut> cuts = cuts_of(semantics, generator);
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    for (const Box& box : cuts[c].boxes) {
      const auto call = tdl::localize(each.program, node, semantics, catalogue, box);
      if (!call) return refused("cut along " + cuts[c].text + ": " + call.error().message);
      if (!call->empty) pieces.push_back(part_piece(each, pieces.front(), *call, c));
    }
  }
  checked.parts = static_cast<std::int64_t>(pieces.size()) - 1;
  if (const Result<void> ran = run(pieces); !ran) {
    const auto piece = piece_in(ran.error().message, pieces.size());
    if (!piece || *piece == 0) return invalid_input("the kernel refuses the whole call: " + ran.error().message);
    std::string shapes;
    for (const TensorData& operand : pieces[*piece].operands) shapes += " " + type_text(operand.dtype, operand.shape);
    return refused("cut along " + cuts[pieces[*piece].cut].text + ": the local call " + pieces[*piece].op +
                   " fails on" + shapes + ": " + ran.error().message);
  }
  const tdl::Description* const description = catalogue.find(node.op);
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    for (std::size_t r = 0; r < node.outputs.size(); ++r) {
      if (node.outputs[r] == kNone) continue;
      std::vector<ResultPart> parts;
      for (std::size_t p = 1; p < pieces.size(); ++p) {
        if (pieces[p].cut == c) parts.push_back({pieces[p].results[r], pieces[p].made[r]});
      }
      const TensorData& expected = pieces.front().made[r];
      if (const auto wrong = compare_parts(parts, expected, tolerance_of(node.op, each, expected))) {
        checked.failure = "cut along " + cuts[c].text + ": result " + result_name(description, r) + " " + *wrong;
        return checked;
      }
    }
  }
  return checked;
}

std::string call_text(const Program& program) {
  const Node& node = program.nodes.front();
  std::string text = graph::print_node(program, node) + ", where";
  for (const ValueId id : graph::values_read(node)) {
    text += " " + program.value(id).name + " is " + type_text(program.value(id).dtype, program.value(id).shape) + ",";
  }
  text.pop_back();
  return text;
}

// One clause's cases, made smaller when they fail.
class ClauseCheck {
 public:
  ClauseCheck(const tdl::Catalogue& catalogue, const tdl::Description& description, std::size_t clause)
      : catalogue_(catalogue), description_(description), clause_(clause) {}

  // Adds to `total`; stops at the first failure.
  Result<void> run(const DescriptionCheckOptions& options, DescriptionCheck& total) {
    for (int i = 0; i < options.cases && total.failure.empty(); ++i) {
      const std::uint64_t seed = options.seed * 7919 + static_cast<std::uint64_t>(i) * 104729 + clause_;
      tdl::Choices choices(seed);
      TESSER_ASSIGN_OR_RETURN(const CheckCase each, tdl::draw_case(description_, description_.op, clause_, choices));
      const Result<Checked> checked = check(each, seed);
      if (!checked)
        return invalid_input(checked.error().message + "\n  drawn by a check of " + description_.where() + ": " +
                             call_text(each.program));
      if (!checked->described) {
        return invalid_input(description_.where() + ": does not fit a call that its check clause draws: " +
                             checked->misfit + ": " + call_text(each.program));
      }
      ++total.calls;
      total.strategies += checked->strategies;
      total.parts += checked->parts;
      if (!checked->failure.empty()) total.failure = smallest(seed, choices.made(), checked->failure, each);
    }
    return {};
  }

 private:
  Result<Checked> check(const CheckCase& each, std::uint64_t seed) const {
    std::mt19937_64 generator(seed);
    return check_case(catalogue_, each, generator);
  }

  // Whether a case with these decisions fails, with several cuts.
  bool fails(std::uint64_t seed, const std::vector<std::int64_t>& decisions, std::string& failure,
             std::optional<CheckCase>& found, std::vector<std::int64_t>& made) const {
    tdl::Choices choices(seed, decisions);
    auto each = tdl::draw_case(description_, description_.op, clause_, choices);
    if (!each) return false;
    for (std::uint64_t variant = 0; variant < 3; ++variant) {
      const Result<Checked> checked = check(*each, seed + variant);
      if (checked && checked->described && !checked->failure.empty()) {
        failure = checked->failure;
        found = std::move(*each);
        made = choices.made();
        return true;
      }
    }
    return false;
  }

  std::string smallest(std::uint64_t seed, std::vector<std::int64_t> decisions, std::string failure,
                       const CheckCase& first) const {
    std::optional<CheckCase> found = first;
    int attempts = 400;
    for (bool smaller = true; smaller && attempts > 0;) {
      smaller = false;
      for (std::size_t i = 0; i < decisions.size() && attempts > 0; ++i) {
        for (const std::int64_t candidate : {std::int64_t{0}, decisions[i] / 2, decisions[i] - 1}) {
          if (i >= decisions.size() || candidate < 0 || candidate >= decisions[i]) continue;
          std::vector<std::int64_t> changed = decisions;
          changed[i] = candidate;
          --attempts;
          std::vector<std::int64_t> made;
          if (fails(seed, changed, failure, found, made)) {
            decisions = std::move(made);
            smaller = true;
            break;
          }
        }
      }
    }
    return description_.where() + ": " + failure +
           "\n  smallest call found that shows it: " + call_text(found->program);
  }

  const tdl::Catalogue& catalogue_;
  const tdl::Description& description_;
  std::size_t clause_;
};

// What makes nodes alike: operator, attributes, types and shapes.
std::string signature_of(const Program& program, const Node& node) {
  Node plain;
  plain.op = node.op;
  plain.args = node.args;
  for (graph::Argument& argument : plain.args) {
    if (std::holds_alternative<ValueRef>(argument)) argument = std::string("tensor");
    if (const auto* list = std::get_if<std::vector<ValueRef>>(&argument)) {
      std::string given;
      for (const ValueRef& reference : *list) given += reference.id == kNone ? "-" : "+";
      argument = given;
    }
  }
  std::string text = graph::print_node(program, plain);
  const auto add = [&](ValueId id) {
    text += id == kNone ? " none" : " " + type_text(program.value(id).dtype, program.value(id).shape);
  };
  for (const ValueId id : graph::values_read(node)) add(id);
  for (const ValueId id : node.outputs) add(id);
  return text;
}

// The kind of data that the check clauses give for a parameter.
std::string kind_of(const tdl::Description& description, std::size_t parameter) {
  for (const tdl::CheckClause& clause : description.checks) {
    if (description.elementwise) {
      const auto example = tdl::parse_example(description, clause);
      if (example && parameter < example->arguments.size() && example->arguments[parameter].tensor) {
        return example->arguments[parameter].data;
      }
      continue;
    }
    const auto items = tdl::parse_check(description, clause);
    for (std::size_t i = 0; items && i < items->size(); ++i) {
      const tdl::CheckItem& item = (*items)[i];
      if (parameter < description.parameters.size() && item.name == description.parameters[parameter].name &&
          item.kind == tdl::CheckItem::Kind::kTensor) {
        return item.data;
      }
    }
  }
  return "float";
}

// Integers of a node may be places in any tensor of it: they are less than every dimension of more than one element.
std::int64_t limit_of(const Program& program, const Node& node) {
  std::int64_t limit = 10;
  const auto narrow = [&](ValueId id) {
    if (id == kNone) return;
    for (const std::int64_t size : program.value(id).shape) limit = size > 1 ? std::min(limit, size) : limit;
  };
  for (const ValueId id : graph::values_read(node)) narrow(id);
  for (const ValueId id : node.outputs) narrow(id);
  return limit;
}

// The node alone, with random contents; its integers are below `limit`.
CheckCase case_of(const tdl::Description* description, const Program& program, const Node& node, std::int64_t limit,
                  std::uint64_t seed) {
  CheckCase each;
  each.program.kind = graph::Kind::kForward;
  each.program.name = program.name;
  each.program.producer = program.producer;
  Node copy = node;
  copy.phase = graph::Phase::kForward;
  copy.forward = kNone;
  std::map<ValueId, ValueId> renamed;
  const auto take = [&](ValueRef& reference, std::size_t parameter) {
    if (reference.id == kNone) return;
    const auto [entry, added] = renamed.emplace(reference.id, static_cast<ValueId>(each.program.values.size()));
    if (added) {
      graph::Value value = program.value(reference.id);
      value.role = is_update(node.op) ? graph::Role::kBuffer : graph::Role::kConstant;
      value.producer = kNone;
      std::string kind = description == nullptr ? "float" : kind_of(*description, parameter);
      const TensorData probe = tdl::random_data(kind, {}, 1, 1);
      if (probe.dtype != value.dtype) kind = std::string(dtype_name(value.dtype));
      each.inputs.push_back(tdl::random_data(kind, value.shape, limit, seed * 31 + each.inputs.size()));
      each.program.inputs.push_back(entry->second);
      each.program.values.push_back(std::move(value));
    }
    reference.id = entry->second;
  };
  for (std::size_t a = 0; a < copy.args.size(); ++a) {
    if (auto* reference = std::get_if<ValueRef>(&copy.args[a])) take(*reference, a);
    if (auto* list = std::get_if<std::vector<ValueRef>>(&copy.args[a])) {
      for (ValueRef& reference : *list) take(reference, a);
    }
  }
  for (ValueId& id : copy.outputs) {
    if (id == kNone) continue;
    graph::Value value = program.value(id);
    value.producer = 0;
    id = static_cast<ValueId>(each.program.values.size());
    each.program.values.push_back(std::move(value));
  }
  each.program.nodes.push_back(std::move(copy));
  return each;
}

}  // namespace

Result<DescriptionCheck> check_description(const tdl::Catalogue& catalogue, const std::string& op,
                                           const DescriptionCheckOptions& options) {
  const tdl::Description* const description = catalogue.find(op);
  if (description == nullptr) return invalid_input("there is no description of " + op);
  if (description->checks.empty()) {
    return invalid_input(description->where() +
                         ": it has no check clause, so that no calls can be drawn (docs/tdl.md, Checking)");
  }
  DescriptionCheck total;
  total.op = description->op;
  for (std::size_t clause = 0; clause < description->checks.size() && total.failure.empty(); ++clause) {
    TESSER_RETURN_IF_ERROR(ClauseCheck(catalogue, *description, clause).run(options, total));
  }
  return total;
}

Result<std::vector<DescriptionCheck>> check_program(const tdl::Catalogue& catalogue, const Program& program,
                                                    const DescriptionCheckOptions& options,
                                                    std::vector<std::string>* undescribed) {
  std::map<std::string, DescriptionCheck> by_operator;
  std::set<std::string> missing;
  std::set<std::string> seen;
  for (const Node& node : program.nodes) {
    if (!seen.insert(signature_of(program, node)).second) continue;
    const std::int64_t limit = limit_of(program, node);
    CheckCase each = case_of(catalogue.find(node.op), program, node, limit, options.seed);
    std::mt19937_64 generator(options.seed);
    Result<Checked> checked = check_case(catalogue, each, generator);
    if (!checked) {
      // Some integers may be places in a dimension of one element.
      each = case_of(catalogue.find(node.op), program, node, 1, options.seed);
      checked = check_case(catalogue, each, generator);
    }
    if (!checked) return invalid_input(checked.error().message + "\n  in node " + graph::print_node(program, node));
    if (!checked->described) {
      missing.insert(node.op);
      continue;
    }
    DescriptionCheck& total = by_operator[node.op];
    total.op = node.op;
    ++total.calls;
    total.strategies += checked->strategies;
    total.parts += checked->parts;
    if (total.failure.empty() && !checked->failure.empty()) {
      total.failure =
          catalogue.find(node.op)->where() + ": " + checked->failure + "\n  in node " + call_text(each.program);
    }
  }
  if (undescribed != nullptr) undescribed->assign(missing.begin(), missing.end());
  std::vector<DescriptionCheck> all;
  for (auto& [op, total] : by_operator) all.push_back(std::move(total));
  return all;
}

}  // namespace tesser::runtime
