#include "lowering/lower.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "graph/verify.h"
#include "layout/layouts.h"
#include "lowering/verify_order.h"
#include "lowering/worker_builder.h"
#include "partition/holders.h"
#include "partition/placement.h"
#include "tdl/description.h"

namespace tesser::lowering {
namespace {

using graph::Argument;
using graph::kNone;
using graph::NodeId;
using graph::ValueId;
using graph::ValueRef;
using partition::Distances;
using partition::kKeptPlaces;
using partition::Piece;
using tdl::is_reduction;
using tdl::Region;

std::string places_text(const Region& region) {
  std::string text;
  for (const tdl::Interval& interval : region) {
    text += (text.empty() ? "" : ",") + std::to_string(interval.begin) + ":" + std::to_string(interval.end);
  }
  return text.empty() ? "all" : text;
}

// Updates change state in place.
bool is_update(const graph::Node& node) { return node.op == "tesser::sgd" || node.op == "tesser::adam"; }

std::vector<std::int64_t> begin_in(const Region& inner, const Region& outer) {
  std::vector<std::int64_t> begin;
  for (std::size_t dimension = 0; dimension < inner.size(); ++dimension) {
    begin.push_back(inner[dimension].begin - outer[dimension].begin);
  }
  return begin;
}

void append(std::vector<std::int64_t>& list, const std::vector<std::int64_t>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// A rectangle of a value that a worker has, as a value of its own.
struct Held {
  LocalId id = kNone;
  Region region;
};

// One part of what is put together: from whom, and in which value of that worker it lies.
struct Source {
  int worker = 0;
  Region region;
  Held from;
};

struct Stages {
  Stage send;
  Stage receive;
};

class Lowerer {
 public:
  Lowerer(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
          const tdl::Catalogue& catalogue, const partition::Plan& plan, const LoweringOptions& options)
      : program_(program),
        semantics_(semantics),
        catalogue_(catalogue),
        plan_(plan),
        options_(options),
        distances_(plan.levels),
        workers_(static_cast<std::size_t>(distances_.workers())),
        owned_(program.values.size()),
        at_rest_(program.values.size()),
        used_(partition::values_in_use(program)),
        layouts_(layout::Layouts::of(program)),
        ready_(program.values.size(), -1) {
    for (int worker = 0; worker < distances_.workers(); ++worker) {
      builders_.emplace_back(program);
      digits_.push_back(partition::worker_digits(plan.levels, worker));
    }
  }

  Result<Lowered> run() {
    for (const ValueId input : program_.inputs) {
      place_input(input);
    }
    for (NodeId node = 0; node < static_cast<NodeId>(program_.nodes.size()); ++node) {
      TESSER_RETURN_IF_ERROR(lower_node(node));
    }
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      add_outputs(worker);
    }
    Lowered lowered;
    lowered.name = program_.name;
    lowered.transfers = next_transfer_;
    lowered.bytes = bytes_;
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      lowered.workers.push_back(std::move(builders_[worker]).finish(static_cast<int>(worker)));
      const Result<void> valid = graph::verify(lowered.workers.back());
      TESSER_CHECK(valid.has_value(), "worker " + std::to_string(worker) + ": " + valid.error().message);
    }
    TESSER_RETURN_IF_ERROR(verify_order(lowered.workers));
    return lowered;
  }

 private:
  const graph::Value& value(ValueId id) const { return program_.value(id); }

  // By worker.
  const std::vector<Region>& owned(ValueId id) {
    std::vector<Region>& regions = owned_[static_cast<std::size_t>(id)];
    if (regions.empty()) {
      for (const std::vector<int>& digits : digits_) {
        regions.push_back(partition::owned_region(plan_, program_, id, digits));
      }
    }
    return regions;
  }

  std::vector<Held>& at_rest(ValueId id) {
    std::vector<Held>& held = at_rest_[static_cast<std::size_t>(id)];
    held.resize(workers_);
    return held;
  }

  void place_input(ValueId input) {
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      const Region& region = owned(input)[worker];
      if (tdl::volume(region) > 0) {
        at_rest(input)[worker] = {builders_[worker].add_input(input, region), region};
      }
    }
  }

  // The rectangle `region` of a value that the worker holds as `held`: itself, or a view of it.
  Held view(std::size_t worker, const Held& held, const Region& region, Place place) {
    Held current = held;
    for (std::size_t dimension = 0; dimension < region.size(); ++dimension) {
      if (current.region[dimension] == region[dimension]) {
        continue;
      }
      const graph::Value whole = builders_[worker].value(current.id);
      Held next{kNone, current.region};
      next.region[dimension] = region[dimension];
      const std::int64_t begin = region[dimension].begin - current.region[dimension].begin;
      const std::string name = whole.name + "/at " + places_text(next.region);
      next.id = builders_[worker].add_value(name, whole.dtype, tdl::shape_of(next.region));
      builders_[worker].add_node(place, "aten::slice.Tensor", name,
                                 {ValueRef{current.id}, static_cast<std::int64_t>(dimension), begin,
                                  begin + region[dimension].size(), std::int64_t{1}},
                                 {next.id});
      current = std::move(next);
    }
    return current;
  }

  // The order in which a rectangle of a value travels, and lies where it arrives: that of the value itself. Empty means
  // row-major.
  layout::Order order(ValueId id) const {
    layout::Order order = layout::order_of(value(id).shape, layouts_[id]);
    return layout::is_row_major(order) ? layout::Order() : order;
  }

  // What a worker has itself, lying as on those that receive it, so that all of them compute the same bits of it.
  Held as_received(std::size_t worker, const Held& held, ValueId of, Place place) {
    WorkerBuilder& builder = builders_[worker];
    const graph::Value own = builder.value(held.id);
    const LocalId arranged = builder.add_value(own.name + "/arranged", own.dtype, own.shape);
    builder.add_node(place, "tesser::arrange", own.name + "/arranged", {ValueRef{held.id}, order(of)}, {arranged});
    return {arranged, held.region};
  }

  // Makes `region` of a value on one worker out of parts that cover it. Nothing is moved when one part of its own is
  // all of it. Senders send at `send_place`, the buffer is opened there.
  Held assemble(std::size_t worker, const std::string& name, ValueId of, const Region& region,
                const std::vector<Source>& sources, Place open, Place send, Place receive) {
    if (sources.size() == 1 && sources.front().worker == static_cast<int>(worker)) {
      return view(worker, sources.front().from, region, receive);
    }
    WorkerBuilder& builder = builders_[worker];
    const DType dtype = value(of).dtype;
    const layout::Order travels = order(of);
    const Shape shape = tdl::shape_of(region);
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> transfers;
    std::vector<std::int64_t> begins;
    std::vector<std::int64_t> sizes;
    std::vector<ValueRef> own;
    std::vector<std::int64_t> own_source_begins;
    std::vector<std::int64_t> own_begins;
    std::vector<std::int64_t> own_sizes;
    for (const Source& source : sources) {
      const std::vector<std::int64_t> begin = begin_in(source.region, region);
      const std::vector<std::int64_t> source_begin = begin_in(source.region, source.from.region);
      const std::vector<std::int64_t> size = tdl::shape_of(source.region);
      if (source.worker == static_cast<int>(worker)) {
        own.push_back({source.from.id});
        append(own_source_begins, source_begin);
        append(own_begins, begin);
        append(own_sizes, size);
        continue;
      }
      const std::int64_t transfer = next_transfer_++;
      bytes_ += tdl::volume(source.region) * static_cast<std::int64_t>(element_size(dtype));
      from.push_back(source.worker);
      transfers.push_back(transfer);
      append(begins, begin);
      append(sizes, size);
      WorkerBuilder& sender = builders_[static_cast<std::size_t>(source.worker)];
      const std::string what = name + " to " + std::to_string(worker);
      sender.add_node(
          send, "tesser::send", "send " + what,
          {ValueRef{source.from.id}, static_cast<std::int64_t>(worker), transfer, source_begin, size, travels}, {});
      const bool changed = receive.stage == Stage::kReceiveArguments && is_update(program_.node(receive.node));
      sender.add_node({receive.node, changed ? Stage::kSentArguments : Stage::kSent}, "tesser::sent", "sent " + what,
                      {ValueRef{source.from.id}, static_cast<std::int64_t>(worker), transfer}, {});
    }
    const LocalId buffer = builder.add_value(name + "/open", dtype, shape);
    builder.add_node(open, "tesser::open", "open " + name, {from, transfers, begins, sizes, travels}, {buffer});
    const LocalId received = builder.add_value(name, dtype, shape);
    const Argument own_argument = own.empty() ? Argument(std::vector<std::int64_t>{}) : Argument(own);
    builder.add_node(receive, "tesser::receive", "receive " + name,
                     {ValueRef{buffer}, transfers, own_argument, own_source_begins, own_begins, own_sizes}, {received});
    return {received, region};
  }

  // A region of a value at rest, for an operator: what the worker has, or fetched from the owners.
  Held fetch(std::size_t worker, ValueId id, const Region& region, NodeId node) {
    const Held& rest = at_rest(id)[worker];
    if (!receives(worker, id, region)) {
      return view(worker, rest, region, {node, Stage::kReceiveArguments});
    }
    auto& kept = fetched_[{worker, id, places_text(region), program_.node(node).phase}];
    if (kept.held.id != kNone && node - kept.last_use <= kKeptPlaces) {
      kept.last_use = node;
      return kept.held;
    }
    std::vector<Source> sources;
    for (Piece& piece : cover(region, owned(id), static_cast<int>(worker), distances_)) {
      const Held& from = at_rest(id)[static_cast<std::size_t>(piece.worker)];
      sources.push_back({piece.worker, std::move(piece.region), from});
    }
    const NodeId place = std::max(ready_[static_cast<std::size_t>(id)] + 1, node - options_.prefetch);
    kept.held = assemble(worker, value(id).name + "/at " + places_text(region), id, region, sources,
                         {place, Stage::kOpen}, {place, Stage::kSendArguments}, {node, Stage::kReceiveArguments});
    kept.last_use = node;
    return kept.held;
  }

  // Whether a worker has to receive this region of a value.
  bool receives(std::size_t worker, ValueId id, const Region& region) {
    const Held& rest = at_rest(id)[worker];
    return rest.id == kNone || !tdl::contains(rest.region, region);
  }

  // What the kernel takes for an operand: a fetched region, with zeros around, or zeros only. `shared`: some worker
  // receives the same region for the same operator.
  LocalId argument(std::size_t worker, ValueId id, const tdl::LocalOperand& operand, bool shared, NodeId node) {
    const Place place{node, Stage::kReceiveArguments};
    WorkerBuilder& builder = builders_[worker];
    const std::string name = value(id).name;
    if (operand.zero || tdl::volume(operand.region) == 0) {  // zeros for it, nothing but zeros around it, or nothing
      const Shape shape = tdl::shape_of(operand.given);
      const LocalId zeros = builder.add_value(name + "/zeros", value(id).dtype, shape);
      builder.add_node(place, "aten::full", name + "/zeros",
                       {shape, 0.0, graph::Enumerator{"dtype", std::string(dtype_name(value(id).dtype))}}, {zeros});
      return zeros;
    }
    Held held = fetch(worker, id, operand.region, node);
    if (shared && !receives(worker, id, operand.region)) {
      held = as_received(worker, held, id, place);
    }
    if (operand.given == operand.region) {
      return held.id;
    }
    std::vector<std::int64_t> padding;  // from the last dimension on, before and after
    for (std::size_t dimension = operand.given.size(); dimension-- > 0;) {
      padding.push_back(operand.region[dimension].begin - operand.given[dimension].begin);
      padding.push_back(operand.given[dimension].end - operand.region[dimension].end);
    }
    const LocalId padded = builder.add_value(name + "/padded", value(id).dtype, tdl::shape_of(operand.given));
    builder.add_node(place, "aten::constant_pad_nd", name + "/padded", {ValueRef{held.id}, padding, 0.0}, {padded});
    return padded;
  }

  Result<void> lower_node(NodeId id) {
    const graph::Node& node = program_.node(id);
    const tdl::NodeSemantics& semantics = semantics_[static_cast<std::size_t>(id)];
    std::vector<tdl::LocalCall> calls;
    for (const std::vector<int>& digits : digits_) {
      Result<tdl::LocalCall> call =
          tdl::localize(program_, node, semantics, catalogue_, partition::worker_box(plan_, id, semantics, digits));
      if (!call) {
        return invalid_input("node '" + node.name + "' (" + node.op + "): " + call.error().message + "; described in " +
                             catalogue_.find(node.op)->where());
      }
      calls.push_back(std::move(*call));
    }
    // By result, by worker: what its call makes of it.
    std::vector<std::vector<Held>> made(node.outputs.size(), std::vector<Held>(workers_));
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      if (!calls[worker].empty) {
        call(worker, id, calls, made);
      }
    }
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      if (node.outputs[result] != kNone && used_[static_cast<std::size_t>(node.outputs[result])]) {
        settle(id, result, calls, made[result]);
      }
    }
    return {};
  }

  void call(std::size_t worker, NodeId id, const std::vector<tdl::LocalCall>& calls,
            std::vector<std::vector<Held>>& made) {
    const tdl::LocalCall& call = calls[worker];
    const graph::Node& node = program_.node(id);
    WorkerBuilder& builder = builders_[worker];
    const std::vector<ValueId> operands = graph::values_read(node);
    std::vector<Argument> args = call.args;
    std::size_t next = 0;
    std::map<std::size_t, LocalId> ready;  // by operand; one that is given twice is fetched once
    const auto local = [&](ValueRef& reference) {
      if (reference.id == kNone) {
        return;
      }
      const std::size_t operand = call.argument_operands[next++];
      if (const auto found = ready.find(operand); found != ready.end()) {
        reference.id = found->second;
        return;
      }
      const Region& region = call.operands[operand].region;
      bool shared = false;
      for (std::size_t other = 0; other < workers_ && !shared; ++other) {
        shared = !calls[other].empty && calls[other].operands[operand].region == region &&
                 receives(other, operands[operand], region);
      }
      reference.id = argument(worker, operands[operand], call.operands[operand], shared, id);
      ready.emplace(operand, reference.id);
    };
    for (Argument& argument : args) {
      if (auto* const reference = std::get_if<ValueRef>(&argument)) {
        local(*reference);
      } else if (auto* const list = std::get_if<std::vector<ValueRef>>(&argument)) {
        std::for_each(list->begin(), list->end(), local);
      }
    }
    std::vector<LocalId> outputs;
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      if (node.outputs[result] == kNone) {
        if (call.op == node.op) {  // a call of another operator makes the results that exist, and no others
          outputs.push_back(kNone);
        }
        continue;
      }
      const graph::Value& whole = value(node.outputs[result]);
      const tdl::LocalResult& part = call.results[result];
      const bool final = part.produced == part.region && part.region == owned(node.outputs[result])[worker] &&
                         !is_reduction(part.outcome);
      outputs.push_back(
          builder.add_value(final ? whole.name : whole.name + "/part", whole.dtype, tdl::shape_of(part.produced)));
      made[result][worker] = {outputs.back(), part.produced};
    }
    builder.add_node({id, Stage::kCall}, call.op, node.name, std::move(args), outputs);
    for (std::size_t result = 0; result < node.outputs.size(); ++result) {
      if (node.outputs[result] != kNone) {
        made[result][worker] = view(worker, made[result][worker], call.results[result].region, {id, Stage::kCall});
      }
    }
  }

  // Brings what the calls made of a result to its owners.
  void settle(NodeId id, std::size_t result, const std::vector<tdl::LocalCall>& calls, const std::vector<Held>& made) {
    const ValueId value_id = program_.node(id).outputs[result];
    ready_[static_cast<std::size_t>(value_id)] = id;
    std::vector<Held>& rest = at_rest(value_id);
    // By number of the part: what each worker has of it.
    std::map<std::int64_t, std::vector<Held>> parts;
    tdl::Outcome outcome = tdl::Outcome::kConcatenate;
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      if (!calls[worker].empty) {
        std::vector<Held>& part =
            parts[partition::part_number(semantics_[static_cast<std::size_t>(id)], result,
                                         plan_.nodes[static_cast<std::size_t>(id)], plan_.levels, digits_[worker])];
        part.resize(workers_);
        part[worker] = made[worker];
        outcome = is_reduction(calls[worker].results[result].outcome) ? calls[worker].results[result].outcome : outcome;
      }
    }
    const std::vector<Region>& regions = owned(value_id);
    if (parts.size() < 2) {
      const std::vector<Held>& part = parts.begin()->second;
      const auto has = [&](std::size_t worker) {
        return part[worker].id != kNone && tdl::contains(part[worker].region, regions[worker]);
      };
      for (std::size_t worker = 0; worker < workers_; ++worker) {
        if (tdl::volume(regions[worker]) == 0) {
          continue;
        }
        rest[worker] = gather(worker, id, value_id, value(value_id).name, regions[worker], part,
                              {Stage::kSendParts, Stage::kReceiveParts});
        bool shared = false;
        for (std::size_t other = 0; other < workers_ && has(worker); ++other) {
          shared = shared || (regions[other] == regions[worker] && !has(other));
        }
        if (shared) {
          rest[worker] = as_received(worker, rest[worker], value_id, {id, Stage::kReceiveParts});
        }
      }
      return;
    }
    const std::vector<Region> shares = partition::shares_of(regions, plan_.layouts[static_cast<std::size_t>(value_id)],
                                                            plan_.levels, static_cast<std::int64_t>(parts.size()));
    std::vector<Held> reduced(workers_);
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      if (tdl::volume(shares[worker]) > 0) {
        reduced[worker] =
            reduce(worker, id, value_id, shares[worker], shares[worker] != regions[worker], parts, outcome);
      }
    }
    for (std::size_t worker = 0; worker < workers_; ++worker) {
      if (tdl::volume(regions[worker]) > 0) {
        rest[worker] = gather(worker, id, value_id, value(value_id).name, regions[worker], reduced,
                              {Stage::kSendShares, Stage::kReceiveShares});
      }
    }
  }

  // Puts a region together from what workers hold.
  Held gather(std::size_t worker, NodeId id, ValueId of, const std::string& name, const Region& region,
              const std::vector<Held>& held, Stages stages) {
    std::vector<Region> regions;
    for (const Held& entry : held) {
      regions.push_back(entry.id == kNone ? Region(region.size(), tdl::Interval{}) : entry.region);
      if (entry.id == kNone && region.empty()) {
        regions.back().resize(1);  // nothing, which a scalar's region of no dimensions would not be
      }
    }
    std::vector<Source> sources;
    for (Piece& piece : cover(region, regions, static_cast<int>(worker), distances_)) {
      sources.push_back({piece.worker, std::move(piece.region), held[static_cast<std::size_t>(piece.worker)]});
    }
    return assemble(worker, name, of, region, sources, {id, Stage::kOpen}, {id, stages.send}, {id, stages.receive});
  }

  Held reduce(std::size_t worker, NodeId id, ValueId of, const Region& region, bool is_share,
              const std::map<std::int64_t, std::vector<Held>>& parts, tdl::Outcome outcome) {
    const graph::Value& whole = value(of);
    std::vector<ValueRef> terms;
    for (const auto& [number, held] : parts) {
      const std::string name = whole.name + "/part " + std::to_string(number) + (is_share ? " share" : "");
      terms.push_back({gather(worker, id, of, name, region, held, {Stage::kSendParts, Stage::kReceiveParts}).id});
    }
    const std::string name = is_share ? whole.name + "/share" : whole.name;
    const LocalId sum = builders_[worker].add_value(name, whole.dtype, tdl::shape_of(region));
    builders_[worker].add_node({id, Stage::kReceiveParts}, "tesser::reduce", "reduce " + name,
                               {terms, std::string(tdl::outcome_name(outcome)), order(of)}, {sum});
    return {sum, region};
  }

  void add_outputs(std::size_t worker) {
    WorkerBuilder& builder = builders_[worker];
    const auto local = [&](ValueId id) { return at_rest(id)[worker].id; };
    if (program_.loss != kNone) {
      builder.set_loss(local(program_.loss));
    }
    for (const auto& [name, id] : program_.metrics) {
      builder.add_metric(name, local(id));
    }
    for (const auto& [name, id] : program_.results) {
      if (local(id) != kNone) {
        builder.add_result(name, local(id));
      }
    }
    for (const auto& [state, id] : program_.state_outputs) {
      if (local(id) != kNone) {
        builder.add_state_output(local(state), local(id));
      }
    }
  }

  struct Fetched {
    Held held;
    NodeId last_use = 0;
  };

  const graph::Program& program_;
  const std::vector<tdl::NodeSemantics>& semantics_;
  const tdl::Catalogue& catalogue_;
  const partition::Plan& plan_;
  const LoweringOptions& options_;
  Distances distances_;
  std::size_t workers_;
  std::vector<std::vector<int>> digits_;    // by worker
  std::vector<WorkerBuilder> builders_;     // by worker
  std::vector<std::vector<Region>> owned_;  // by value, by worker; filled when first asked for
  std::vector<std::vector<Held>> at_rest_;  // by value, by worker
  std::vector<bool> used_;                  // by value: what nobody reads is not brought to its owners
  layout::Layouts layouts_;                 // of the whole program's values
  std::vector<NodeId> ready_;               // by value: the node after which it is at rest
  std::map<std::tuple<std::size_t, ValueId, std::string, graph::Phase>, Fetched> fetched_;
  std::int64_t next_transfer_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace

Result<Lowered> lower(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                      const tdl::Catalogue& catalogue, const partition::Plan& plan, const LoweringOptions& options) {
  return Lowerer(program, semantics, catalogue, plan, options).run();
}

}  // namespace tesser::lowering
