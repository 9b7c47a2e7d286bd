#include "partition/search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "memory/predict.h"
#include "partition/alignment.h"
#include "partition/coarsen.h"
#include "partition/level_costs.h"
#include "partition/level_search.h"
#include "partition/memory.h"
#include "partition/placement.h"
#include "partition/signature.h"
#include "partition/step_time.h"
#include "partition/traffic.h"

namespace tesser::partition {
namespace {

struct PresetName {
  Preset preset;
  std::string_view name;
};
constexpr std::array<PresetName, 8> kPresets{{{Preset::kTofu, "tofu"},
                                              {Preset::kDefault, "default"},
                                              {Preset::kDataParallel, "dp"},
                                              {Preset::kAllRowGreedy, "allrow-greedy"},
                                              {Preset::kSpartan, "spartan"},
                                              {Preset::kEqualChop, "equalchop"},
                                              {Preset::kNoReduction, "no-reduction"},
                                              {Preset::kMegatron, "megatron"}}};

// Largest first, as the paper does it: the first cut is the one that moves least.
std::vector<int> prime_factors(int number) {
  std::vector<int> factors;
  for (int factor = 2; factor * factor <= number; ++factor) {
    for (; number % factor == 0; number /= factor) {
      factors.push_back(factor);
    }
  }
  if (number > 1) {
    factors.push_back(number);
  }
  std::sort(factors.rbegin(), factors.rend());
  return factors;
}

// Cuts every worker group once a level (or, in one step, all at once), outermost link first.
std::vector<Level> levels_of(const SearchOptions& options, bool in_one_step) {
  std::vector<Level> levels = options.levels;
  if (!levels.empty()) {
    return levels;
  }
  if (in_one_step) {
    if (options.workers > 1) {
      levels.push_back({options.workers, options.topology.links.empty() ? "" : options.topology.links.front().name});
    }
    return levels;
  }
  if (options.topology.links.empty()) {
    for (const int factor : prime_factors(options.workers)) {
      levels.push_back({factor, ""});
    }
  }
  for (const Link& link : options.topology.links) {
    for (const int factor : prime_factors(link.parts)) {
      levels.push_back({factor, link.name});
    }
  }
  return levels;
}

class Searcher {
 public:
  Searcher(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
           const SearchOptions& options)
      : program_(program),
        semantics_(semantics),
        options_(options),
        coarsening_(coarsen(program, node_signatures(program), semantics)),
        alignment_(align(program, semantics, coarsening_)),
        costs_(program, semantics, coarsening_),
        predictor_(program, semantics) {
    for (const auto& members : coarsening_.groups) {
      double bytes = 0;
      for (const graph::ValueId value : members) {
        bytes += static_cast<double>(program.value(value).bytes());
      }
      group_bytes_.push_back(bytes);
    }
  }

  Result<Plan> run(SearchReport& report) {
    Result<Plan> plan = options_.preset == Preset::kDefault ? within_memory() : of_preset();
    report.groups = coarsening_.groups.size();
    report.distinct_nodes = costs_.computed();
    report.widest_table = widest_table_;
    return plan;
  }

 private:
  Result<Plan> of_preset() {
    Rules rules;
    bool in_one_step = false;
    bool greedy = false;
    switch (options_.preset) {
      case Preset::kTofu:
        rules.even_cuts_first = true;
        return best_of_recursion_and_one_step(rules);
      case Preset::kNoReduction:
        rules.even_cuts_first = true;
        rules.reductions = false;
        break;
      case Preset::kEqualChop:
        in_one_step = true;
        break;
      case Preset::kSpartan:
        in_one_step = true;
        greedy = true;
        break;
      case Preset::kAllRowGreedy:
        in_one_step = true;
        rules.may_cut = [this](int group, int dimension) { return dimension == first_long_dimension(group); };
        break;
      case Preset::kDataParallel:
        in_one_step = true;
        rules.replicate_work = true;
        rules.may_cut = [this](int group, int dimension) {
          return !holds_state(group) && dimension == batch_dimension(group);
        };
        break;
      case Preset::kMegatron:
        rules.replicate_work = true;
        rules.replicate_tensors = true;
        rules.may_cut = [this](int group, int dimension) { return dimension != batch_dimension(group); };
        rules.may_replicate = [this](int group) { return !holds_weight_matrix(group); };
        break;
      case Preset::kDefault:
        break;
    }
    return recurse(levels_of(options_, in_one_step), rules, Unit::kBytes, 0.0, greedy);
  }

  // The paper cuts by recursion, which is optimal where every size divides evenly. Where some do not, cutting in one
  // step can move less; then that is the plan.
  Result<Plan> best_of_recursion_and_one_step(const Rules& rules) {
    TESSER_ASSIGN_OR_RETURN(Plan plan, recurse(levels_of(options_, false), rules, Unit::kBytes, 0.0, false));
    if (plan.levels.size() < 2 || !options_.topology.links.empty()) {
      return plan;
    }
    Result<Plan> other = recurse(levels_of(options_, true), rules, Unit::kBytes, 0.0, false);
    if (other && plan_traffic(program_, semantics_, *other).total < plan_traffic(program_, semantics_, plan).total &&
        bytes_at_rest(*other) <= bytes_at_rest(plan)) {
      return other;
    }
    return plan;
  }

  // State, constants and batch of the first worker, which has the largest parts.
  std::int64_t bytes_at_rest(const Plan& plan) const {
    const std::vector<int> digits(plan.levels.size(), 0);
    std::int64_t bytes = 0;
    for (const graph::ValueId input : program_.inputs) {
      bytes += tdl::volume(owned_region(plan, program_, input, digits)) *
               static_cast<std::int64_t>(element_size(program_.value(input).dtype));
    }
    return bytes;
  }

  // Time is minimised; memory has a price, the lowest one at which the bound is met.
  Result<Plan> within_memory() {
    const Rules rules = free_rules();
    const std::vector<Level> levels = levels_of(options_, false);
    TESSER_ASSIGN_OR_RETURN(Plan fastest, recurse(levels, rules, Unit::kSeconds, 0.0, false));
    if (!options_.memory_bytes || peak(fastest) <= *options_.memory_bytes) {
      return fastest;
    }
    TESSER_ASSIGN_OR_RETURN(Plan best, smallest());
    if (peak(best) > *options_.memory_bytes) {
      return does_not_fit(peak(best));
    }
    constexpr double kLowestPrice = 1e-15;  // seconds a byte
    double low = std::log(kLowestPrice);
    double high = std::log(kHighestPrice);
    constexpr int kTrials = 10;
    for (int trial = 0; trial < kTrials; ++trial) {
      const double middle = (low + high) / 2;
      TESSER_ASSIGN_OR_RETURN(Plan plan, recurse(levels, rules, Unit::kSeconds, std::exp(middle), false));
      if (peak(plan) <= *options_.memory_bytes) {
        best = std::move(plan);
        high = middle;
      } else {
        low = middle;
      }
    }
    return best;
  }

  // The plan that needs least memory, as far as one is found: memory dear, or every tensor cut, or the paper's own.
  Result<Plan> smallest() {
    const std::vector<Level> levels = levels_of(options_, false);
    TESSER_ASSIGN_OR_RETURN(Plan dear, recurse(levels, free_rules(), Unit::kSeconds, kHighestPrice, false));
    Rules all_cut = free_rules();
    all_cut.replicate_tensors = false;
    TESSER_ASSIGN_OR_RETURN(Plan cut, recurse(levels, all_cut, Unit::kSeconds, kHighestPrice, false));
    Plan least = peak(cut) < peak(dear) ? std::move(cut) : std::move(dear);
    Rules of_paper;
    of_paper.even_cuts_first = true;
    if (Result<Plan> plan = best_of_recursion_and_one_step(of_paper); plan && peak(*plan) < peak(least)) {
      least = std::move(*plan);
    }
    return least;
  }

  tl::unexpected<Error> does_not_fit(std::int64_t least) const {
    std::string what_would_do = fmt::format("the smallest bound for {} worker{} is {}", options_.workers,
                                            options_.workers == 1 ? "" : "s", size_text(least));
    if (const int workers = fewest_workers(); workers > 0) {
      what_would_do += fmt::format("; with {} each it takes {} workers", size_text(*options_.memory_bytes), workers);
    }
    return failed(fmt::format("{}: no plan fits {} worker{} with {} each: {}", program_.name, options_.workers,
                              options_.workers == 1 ? "" : "s", size_text(*options_.memory_bytes), what_would_do));
  }

  // 0 when not even many would do. A topology says how many there are, so there is nothing to look for.
  int fewest_workers() const {
    constexpr int kMostWorkers = 1024;
    const auto fits = [this](int workers) {
      SearchOptions more = options_;
      more.workers = workers;
      Searcher searcher(program_, semantics_, more);
      const Result<Plan> plan = searcher.smallest();
      return plan && searcher.peak(*plan) <= *options_.memory_bytes;
    };
    int enough = options_.workers;
    do {
      enough *= 2;
      if (enough > kMostWorkers || !options_.topology.links.empty()) {
        return 0;
      }
    } while (!fits(enough));
    for (int too_few = enough / 2; enough - too_few > 1;) {
      const int middle = (too_few + enough) / 2;
      (fits(middle) ? enough : too_few) = middle;
    }
    return enough;
  }

  static Rules free_rules() {
    Rules rules;
    rules.replicate_tensors = true;
    rules.replicate_work = true;
    return rules;
  }
  // To three places up; as small a unit as shows them.
  static std::string size_text(std::int64_t bytes) {
    constexpr std::array<const char*, 3> kUnits = {"KiB", "MiB", "GiB"};
    double amount = static_cast<double>(bytes) / 1024;
    std::size_t unit = 0;
    for (; unit + 1 < kUnits.size() && amount >= 1024; ++unit) {
      amount /= 1024;
    }
    return fmt::format("{:.3f} {}", std::ceil(amount * 1000) / 1000, kUnits[unit]);
  }

  std::int64_t peak(const Plan& plan) const { return predictor_.worst(plan).peak_bytes; }

  enum class Unit : std::uint8_t { kBytes, kSeconds };

  Result<Plan> recurse(const std::vector<Level>& levels, const Rules& rules, Unit unit, double memory_price,
                       bool greedy) {
    Decided decided;
    decided.groups.resize(coarsening_.groups.size());
    decided.classes.resize(coarsening_.classes.size());
    for (const Level& level : levels) {
      Candidates candidates = candidates_at(program_, semantics_, coarsening_, alignment_, decided, level.parts, rules);
      keep_given_layouts(candidates, decided.levels.size());
      if (options_.levels.empty() &&
          std::all_of(candidates.groups.begin(), candidates.groups.end(), [](const std::vector<Cut>& cuts) {
            return cuts.size() == 1 && cuts.front().axis == kReplicated;
          })) {
        return cannot_cut(decided, level);
      }
      const Prices prices =
          unit == Unit::kBytes ? Prices{} : prices_in_seconds(decided, candidates, level, memory_price);
      const LevelChoice choice =
          greedy ? choose_largest_first(coarsening_, costs_, level, decided, candidates, prices, group_bytes_)
                 : choose_best(coarsening_, costs_, level, decided, candidates, prices);
      widest_table_ = std::max(widest_table_, choice.widest_table);
      for (std::size_t group = 0; group < decided.groups.size(); ++group) {
        decided.groups[group].push_back(candidates.groups[group][static_cast<std::size_t>(choice.groups[group])]);
      }
      for (std::size_t number = 0; number < decided.classes.size(); ++number) {
        decided.classes[number].push_back(candidates.classes[number][static_cast<std::size_t>(choice.classes[number])]);
      }
      decided.levels.push_back(level);
    }
    return plan_of(decided);
  }

  // Tensors that are laid out together with a given one lie as it does, where they may.
  void keep_given_layouts(Candidates& candidates, std::size_t level) const {
    for (const auto& [value, layout] : options_.layouts) {
      const int group = coarsening_.group_of_value[static_cast<std::size_t>(value)];
      if (group < 0) {
        continue;
      }
      std::vector<Cut>& cuts = candidates.groups[static_cast<std::size_t>(group)];
      if (std::find(cuts.begin(), cuts.end(), layout[level]) != cuts.end()) {
        cuts = {layout[level]};
      }
    }
  }

  tl::unexpected<Error> cannot_cut(const Decided& decided, const Level& level) const {
    const std::int64_t cut = worker_count(decided.levels);
    return invalid_input(
        fmt::format("{}: nothing is left that can be cut for {} workers: after {} parts no tensor has a dimension that "
                    "preset {} may cut in {} more.\nWhat to do: ask for {} workers, or for another preset",
                    program_.name, options_.workers, cut, preset_name(options_.preset), level.parts, cut));
  }

  Plan plan_of(const Decided& decided) const {
    Plan plan;
    plan.program = program_.name;
    plan.preset = preset_name(options_.preset);
    plan.levels = decided.levels;
    const std::vector<Cut> replicated(decided.levels.size());
    for (const int group : coarsening_.group_of_value) {
      plan.layouts.push_back(group < 0 ? replicated : decided.groups[static_cast<std::size_t>(group)]);
    }
    for (const auto& [value, layout] : options_.layouts) {
      plan.layouts[static_cast<std::size_t>(value)] = layout;
    }
    for (const int number : coarsening_.class_of_node) {
      plan.nodes.push_back(decided.classes[static_cast<std::size_t>(number)]);
    }
    return plan;
  }

  // Everything by what it will be for one worker when all levels are cut, so that levels can be compared.
  Prices prices_in_seconds(const Decided& decided, const Candidates& candidates, const Level& level,
                           double memory_price) {
    const Topology& topology = options_.topology;
    const auto link = std::find_if(topology.links.begin(), topology.links.end(),
                                   [&](const Link& candidate) { return candidate.name == level.link; });
    const Link& crossed = link == topology.links.end() ? default_link_ : *link;
    std::vector<Level> levels = decided.levels;
    levels.push_back(level);
    const double parts_to_come = static_cast<double>(options_.workers) / static_cast<double>(worker_count(levels));
    Prices prices;
    prices.byte = 1.0 / crossed.bandwidth / static_cast<double>(options_.workers);
    prices.transfer = crossed.latency;
    for (const NodeClass& nodes : coarsening_.classes) {
      prices.work.push_back(node_seconds(program_, program_.node(nodes.representative), options_.topology) /
                            parts_to_come);
    }
    if (memory_price > 0) {
      if (kept_bytes_.empty()) {
        find_kept_bytes();
      }
      for (std::size_t group = 0; group < candidates.groups.size(); ++group) {
        std::vector<double>& keeping = prices.keeping.emplace_back();
        for (const Cut& candidate : candidates.groups[group]) {
          keeping.push_back(memory_price * kept_bytes_[group] * kept_share(group, decided, levels, candidate) /
                            parts_to_come);
        }
      }
    }
    return prices;
  }

  // Of one worker, the one with the largest part.
  double kept_share(std::size_t group, const Decided& decided, const std::vector<Level>& levels,
                    const Cut& candidate) const {
    std::vector<Cut> cuts = decided.groups[group];
    cuts.push_back(candidate);
    const Shape& shape = program_.value(coarsening_.groups[group].front()).shape;
    const auto elements = static_cast<double>(std::max<std::int64_t>(element_count(shape), 1));
    return static_cast<double>(tdl::volume(parts_by_worker(tdl::whole(shape), cuts, levels).front())) / elements;
  }

  // By group: bytes of members that exist for the whole run or while most is alive.
  void find_kept_bytes() {
    kept_bytes_.assign(coarsening_.groups.size(), 0.0);
    const auto add = [this](graph::ValueId value, std::int64_t bytes) {
      kept_bytes_[static_cast<std::size_t>(coarsening_.group_of_value[static_cast<std::size_t>(value)])] +=
          static_cast<double>(bytes);
    };
    for (const graph::ValueId input : program_.inputs) {
      add(input, program_.value(input).bytes());
    }
    for (const memory::LiveValue& live : memory::predict(program_).live_at_peak) {
      add(live.value, live.bytes);
    }
  }

  bool holds_state(int group) const {
    return holds(group, [](const graph::Value& value) { return value.is_state(); });
  }
  bool holds_weight_matrix(int group) const {
    return holds(group, [](const graph::Value& value) { return value.is_state() && value.shape.size() >= 2; });
  }
  template <typename Predicate>
  bool holds(int group, const Predicate& predicate) const {
    const auto& members = coarsening_.groups[static_cast<std::size_t>(group)];
    return std::any_of(members.begin(), members.end(),
                       [&](graph::ValueId value) { return predicate(program_.value(value)); });
  }

  int first_long_dimension(int group) const {
    const Shape& shape = program_.value(coarsening_.groups[static_cast<std::size_t>(group)].front()).shape;
    const auto found =
        std::find_if(shape.begin(), shape.end(), [this](std::int64_t size) { return size >= options_.workers; });
    return found == shape.end() ? kReplicated : static_cast<int>(found - shape.begin());
  }

  // The dimension that belongs to the same family as the first dimension of a batch input.
  int batch_dimension(int group) {
    if (batch_families_.empty()) {
      for (const graph::ValueId input : program_.inputs) {
        const graph::Value& value = program_.value(input);
        if (value.role == graph::Role::kBatch && !value.shape.empty()) {
          const auto owner = static_cast<std::size_t>(coarsening_.group_of_value[static_cast<std::size_t>(input)]);
          batch_families_.insert(alignment_.dimensions[owner].front().family);
        }
      }
    }
    const auto& dimensions = alignment_.dimensions[static_cast<std::size_t>(group)];
    const auto found = std::find_if(dimensions.begin(), dimensions.end(), [this](const Aligned& dimension) {
      return batch_families_.contains(dimension.family);
    });
    return found == dimensions.end() ? kReplicated : static_cast<int>(found - dimensions.begin());
  }

  const graph::Program& program_;
  const std::vector<tdl::NodeSemantics>& semantics_;
  const SearchOptions& options_;
  Coarsening coarsening_;
  Alignment alignment_;
  LevelCosts costs_;
  MemoryPredictor predictor_;
  static constexpr double kHighestPrice = 1e-6;  // seconds a byte: memory is all that counts

  Link default_link_;
  std::vector<double> group_bytes_;
  std::vector<double> kept_bytes_;
  std::set<int> batch_families_;
  std::size_t widest_table_ = 0;
};

Result<void> check(const SearchOptions& options) {
  if (options.workers < 1) {
    return invalid_input(fmt::format("{} workers: there must be at least one", options.workers));
  }
  if (options.memory_bytes && *options.memory_bytes <= 0) {
    return invalid_input("a memory bound is a positive number of bytes");
  }
  if (options.memory_bytes && options.preset != Preset::kDefault) {
    return invalid_input(
        fmt::format("preset {} does not trade memory for speed, so it takes no memory bound.\nWhat to "
                    "do: leave out --memory, or use --preset default",
                    preset_name(options.preset)));
  }
  std::int64_t product = 1;
  for (const Link& link : options.topology.links) {
    if (link.parts < 1 || !(link.bandwidth > 0) || !(link.latency >= 0)) {
      return invalid_input(
          fmt::format("link {}: parts and bandwidth are positive, latency is not negative", link.name));
    }
    product *= link.parts;
  }
  if (!options.topology.links.empty() && product != options.workers) {
    return invalid_input(
        fmt::format("the topology's links separate {} workers, but {} are asked for", product, options.workers));
  }
  return {};
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> list;
    for (const PresetName& entry : kPresets) {
      list.push_back(entry.preset);
    }
    return list;
  }();
  return all;
}

std::string_view preset_name(Preset preset) {
  const auto found =
      std::find_if(kPresets.begin(), kPresets.end(), [&](const PresetName& entry) { return entry.preset == preset; });
  TESSER_CHECK(found != kPresets.end(), "a preset of the list");
  return found->name;
}

std::optional<Preset> preset_from_name(std::string_view name) {
  const auto found =
      std::find_if(kPresets.begin(), kPresets.end(), [&](const PresetName& entry) { return entry.name == name; });
  return found == kPresets.end() ? std::nullopt : std::optional(found->preset);
}

Result<Plan> search(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                    const SearchOptions& options, SearchReport* report) {
  const auto start = std::chrono::steady_clock::now();
  TESSER_RETURN_IF_ERROR(check(options));
  SearchReport own_report;
  Result<Plan> plan = Searcher(program, semantics, options).run(report != nullptr ? *report : own_report);
  if (report != nullptr) {
    report->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return plan;
}

}  // namespace tesser::partition
