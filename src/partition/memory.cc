#include "partition/memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "memory/layout.h"
#include "memory/predict.h"
#include "partition/holders.h"
#include "partition/placement.h"

namespace tesser::partition {
namespace {

using graph::kNone;
using graph::NodeId;
using graph::ValueId;

std::int64_t aligned(std::int64_t elements, DType dtype) {
  const std::int64_t bytes = elements * static_cast<std::int64_t>(element_size(dtype));
  return (bytes + memory::kArenaAlignment - 1) / memory::kArenaAlignment * memory::kArenaAlignment;
}

bool is_update(const graph::Node& node) { return node.op == "tesser::sgd" || node.op == "tesser::adam"; }

// Into how many parts a result is cut that have to be reduced.
std::int64_t partial_results(const std::vector<Cut>& cuts, const std::vector<Level>& levels,
                             const tdl::NodeSemantics& semantics, std::size_t result) {
  std::int64_t parts = 1;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    if (cuts[level].axis == kReplicated) continue;
    for (const tdl::Strategy& strategy : semantics.strategies()) {
      if (strategy.variable == cuts[level].axis && tdl::is_reduction(strategy.outcomes[result])) {
        parts *= levels[level].parts;
      }
    }
  }
  return parts;
}

// The memory of one worker, block by block.
class WorkerAccount {
 public:
  WorkerAccount(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, const Plan& plan,
                std::int64_t worker, const MemoryOptions& options)
      : program_(program),
        semantics_(semantics),
        plan_(plan),
        digits_(worker_digits(plan.levels, worker)),
        options_(options),
        owned_(program.values.size()),
        block_of_(program.values.size(), kNone),
        last_node_(static_cast<NodeId>(program.nodes.size()) - 1) {
    account_.worker = worker;
  }

  WorkerMemory run(const std::vector<std::vector<ValueId>>& read, const std::vector<ValueId>& shares,
                   const std::vector<NodeId>& last_use, const std::vector<NodeId>& runs_at) {
    for (std::size_t value = 0; value < program_.values.size(); ++value) {
      owned_[value] = owned_region(plan_, program_, static_cast<ValueId>(value), digits_);
    }
    for (const ValueId input : program_.inputs) account_.state_bytes += bytes(input, region(input));
    for (NodeId node = 0; node <= last_node_; ++node) {
      const std::vector<ValueId>& operands = read[static_cast<std::size_t>(node)];
      const bool by_itself = add_node(node, operands, shares, last_use);
      if (is_update(program_.node(node))) {
        keep(operands, by_itself ? runs_at[static_cast<std::size_t>(node)] : node);
      }
    }
    for (const auto& [key, block] : fetched_) transient_.push_back(block);
    return finish();
  }

 private:
  const graph::Node& node(NodeId id) const { return program_.node(id); }
  const tdl::Region& region(ValueId value) const { return owned_[static_cast<std::size_t>(value)]; }
  std::int64_t bytes(ValueId value, const tdl::Region& part) const {
    return aligned(tdl::volume(part), program_.value(value).dtype);
  }

  // Until that node.
  void keep(const std::vector<ValueId>& values, NodeId node) {
    for (const ValueId value : values) {
      if (const std::int32_t block = block_of_[static_cast<std::size_t>(value)]; block != kNone) {
        NodeId& end = at_rest_[static_cast<std::size_t>(block)].last_node;
        end = std::max(end, node);
      }
    }
  }

  // Whether the worker computes its part without others, in the memory of what it reads where that is shared.
  bool add_node(NodeId id, const std::vector<ValueId>& read, const std::vector<ValueId>& shares,
                const std::vector<NodeId>& last_use) {
    const tdl::NodeSemantics& semantics = semantics_[static_cast<std::size_t>(id)];
    const tdl::Box box = worker_box(plan_, id, semantics, digits_);
    const bool computes = !semantics.is_empty(box);
    bool in_place = computes;  // needs nothing of other workers
    for (std::size_t operand = 0; operand < read.size() && computes; ++operand) {
      in_place = add_operand(id, read[operand], semantics, operand, box) && in_place;
    }
    bool by_itself = in_place;
    for (std::size_t result = 0; result < node(id).outputs.size(); ++result) {
      const ValueId value = node(id).outputs[result];
      if (value == kNone) continue;
      std::int64_t rest_bytes = bytes(value, region(value));
      const bool final = add_parts(id, value, semantics, result, box, computes, rest_bytes);
      by_itself = by_itself && final;
      const auto other = std::find_if(read.begin(), read.end(), [&](ValueId operand) {
        return shares[static_cast<std::size_t>(operand)] == shares[static_cast<std::size_t>(value)];
      });
      std::int32_t& block = block_of_[static_cast<std::size_t>(value)];
      if (other != read.end() && final && in_place) {
        block = block_of_[static_cast<std::size_t>(*other)];  // kNone for what lies in an input
      } else {
        block = static_cast<std::int32_t>(at_rest_.size());
        at_rest_.push_back({rest_bytes, id, id, memory::kArenaAlignment});
      }
      if (const NodeId last = last_use[static_cast<std::size_t>(value)]; block != kNone && last != kNone) {
        NodeId& end = at_rest_[static_cast<std::size_t>(block)].last_node;
        end = std::max(end, last);
      }
    }
    return by_itself;
  }

  // Whether the worker has what it needs.
  bool add_operand(NodeId id, ValueId value, const tdl::NodeSemantics& semantics, std::size_t operand,
                   const tdl::Box& box) {
    const tdl::Region reach = semantics.operand_region(operand, box);
    const tdl::Region needed = tdl::intersection(reach, tdl::whole(program_.value(value).shape));
    const bool zero = semantics.operand_is_zero(operand, box);
    if (zero || needed != reach) {  // zeros, or zeros around it
      transient_.push_back({bytes(value, reach), id, id, memory::kArenaAlignment});
    }
    if (zero || tdl::volume(needed) == 0 || (tdl::volume(region(value)) > 0 && tdl::contains(region(value), needed))) {
      return true;
    }
    std::vector<std::int64_t> key = {value, static_cast<std::int64_t>(node(id).phase)};
    for (const tdl::Interval& interval : needed) {
      key.push_back(interval.begin);
      key.push_back(interval.end);
    }
    const auto [kept, is_new] = fetched_.try_emplace(std::move(key));
    memory::Block& block = kept->second;
    if (!is_new && id - block.last_node <= kKeptPlaces) {
      block.last_node = id;
      return false;
    }
    if (!is_new) transient_.push_back(block);
    const NodeId ready = program_.value(value).producer;
    const NodeId begin = std::clamp<NodeId>(id - options_.prefetch, std::min(ready + 1, id), id);
    block = {bytes(value, needed), begin, id, memory::kArenaAlignment};
    return false;
  }

  // What is made on the way to the worker's part of a result. Whether the operator makes that part itself. Of a larger
  // result that holds the part, the whole stays, of which the part is a view: `rest_bytes` is then that of all.
  bool add_parts(NodeId id, ValueId value, const tdl::NodeSemantics& semantics, std::size_t result, const tdl::Box& box,
                 bool computes, std::int64_t& rest_bytes) {
    const std::int64_t parts =
        partial_results(plan_.nodes[static_cast<std::size_t>(id)], plan_.levels, semantics, result);
    const auto add = [&](std::int64_t elements) {
      transient_.push_back({aligned(elements, program_.value(value).dtype), id, id, memory::kArenaAlignment});
    };
    const tdl::Region made = computes ? semantics.result_region(result, box) : tdl::Region{};
    if (parts == 1) {
      if (!computes || tdl::volume(made) == 0) return false;
      if (made == region(value)) return true;
      if (tdl::volume(region(value)) > 0 && tdl::contains(made, region(value))) {
        rest_bytes = bytes(value, made);
      } else {
        add(tdl::volume(made));
      }
      return false;
    }
    if (computes) add(tdl::volume(made));
    const std::int64_t owned = tdl::volume(region(value));
    if (owned == 0) return false;
    const std::int64_t copies = owners_of_a_part(plan_.layouts[static_cast<std::size_t>(value)], plan_.levels);
    const bool is_shared = adds_shares(parts, copies, owned);
    const std::int64_t share = is_shared ? (owned + copies - 1) / copies : owned;
    for (std::int64_t part = 0; part < parts - (computes ? 1 : 0); ++part) add(share);
    if (is_shared) add(share);  // their sum, before the shares are put together
    return false;
  }

  WorkerMemory finish() {
    const auto most_live = [this](NodeId* where) {
      std::vector<std::int64_t> change(static_cast<std::size_t>(last_node_) + 2);
      for (const auto* blocks : {&at_rest_, where == nullptr ? nullptr : &transient_}) {
        if (blocks == nullptr) continue;
        for (const memory::Block& block : *blocks) {
          change[static_cast<std::size_t>(block.first_node)] += block.bytes;
          change[static_cast<std::size_t>(block.last_node) + 1] -= block.bytes;
        }
      }
      std::int64_t live = 0;
      std::int64_t most = 0;
      for (NodeId id = 0; id <= last_node_; ++id) {
        live += change[static_cast<std::size_t>(id)];
        if (live > most || id == 0) {
          most = live;
          if (where != nullptr) *where = id;
        }
      }
      return most;
    };
    account_.at_rest_bytes = account_.state_bytes + most_live(nullptr);
    account_.peak_bytes = account_.state_bytes + most_live(&account_.peak_node);
    if (options_.lay_out) {
      std::vector<memory::Block> blocks = at_rest_;
      blocks.insert(blocks.end(), transient_.begin(), transient_.end());
      account_.peak_bytes = account_.state_bytes + memory::place(blocks).total;
    }
    return account_;
  }

  const graph::Program& program_;
  const std::vector<tdl::NodeSemantics>& semantics_;
  const Plan& plan_;
  std::vector<int> digits_;
  MemoryOptions options_;
  WorkerMemory account_;
  std::vector<tdl::Region> owned_;      // by value
  std::vector<std::int32_t> block_of_;  // by value: into at_rest_; kNone for what lies in an input
  std::vector<memory::Block> at_rest_;
  std::vector<memory::Block> transient_;
  std::map<std::vector<std::int64_t>, memory::Block> fetched_;  // by value, phase and region: the latest buffer
  NodeId last_node_;
};

}  // namespace

MemoryPredictor::MemoryPredictor(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics)
    : program_(program), semantics_(semantics), last_use_(program.values.size(), kNone) {
  const memory::Liveness liveness = memory::analyze_liveness(program);
  for (std::size_t value = 0; value < program.values.size(); ++value) {
    const std::int32_t storage = liveness.storage_of[value];
    shares_.push_back(storage == kNone ? static_cast<ValueId>(value)
                                       : liveness.storages[static_cast<std::size_t>(storage)].owner);
  }
  const auto last = static_cast<NodeId>(program.nodes.size()) - 1;
  const auto use = [this](ValueId value, NodeId node) {
    if (value != kNone) last_use_[static_cast<std::size_t>(value)] = node;
  };
  // By storage: the last node other than updates that reads a value in it.
  std::vector<NodeId> last_reader(liveness.storages.size(), kNone);
  for (NodeId id = 0; id <= last; ++id) {
    read_.push_back(graph::values_read(program.node(id)));
    if (is_update(program.node(id))) continue;
    for (const ValueId value : read_.back()) {
      use(value, id);
      if (const std::int32_t storage = liveness.storage_of[static_cast<std::size_t>(value)]; storage != kNone) {
        last_reader[static_cast<std::size_t>(storage)] = id;
      }
    }
  }
  // An update runs as early as what it reads and the last other reader of the state that it changes allow.
  for (NodeId id = 0; id <= last; ++id) {
    runs_at_.push_back(id);
    if (!is_update(program.node(id))) continue;
    NodeId earliest = 0;
    for (const ValueId value : read_[static_cast<std::size_t>(id)]) {
      const std::int32_t storage = liveness.storage_of[static_cast<std::size_t>(value)];
      const bool is_state = program.value(value).is_state() && storage != kNone;
      earliest = std::max({earliest, program.value(value).producer,
                           is_state ? last_reader[static_cast<std::size_t>(storage)] : NodeId{0}});
    }
    runs_at_.back() = std::min(earliest, id);
  }
  use(program.loss, last);
  for (const auto* const outputs : {&program.metrics, &program.results}) {
    for (const graph::NamedOutput& output : *outputs) use(output.value, last);
  }
  for (const graph::StateOutput& output : program.state_outputs) use(output.value, last);
}

WorkerMemory MemoryPredictor::of_worker(const Plan& plan, std::int64_t worker, const MemoryOptions& options) const {
  return WorkerAccount(program_, semantics_, plan, worker, options).run(read_, shares_, last_use_, runs_at_);
}

WorkerMemory MemoryPredictor::worst(const Plan& plan, const MemoryOptions& options) const {
  MemoryOptions rough = options;
  rough.lay_out = false;
  WorkerMemory most = of_worker(plan, 0, rough);
  if (const std::int64_t middle = (plan.workers() - 1) / 2; middle > 0) {
    const WorkerMemory other = of_worker(plan, middle, rough);
    if (other.peak_bytes > most.peak_bytes) most = other;
  }
  return options.lay_out ? of_worker(plan, most.worker, options) : most;
}

WorkerMemory worker_memory(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                           const Plan& plan, const MemoryOptions& options) {
  return MemoryPredictor(program, semantics).worst(plan, options);
}

}  // namespace tesser::partition
