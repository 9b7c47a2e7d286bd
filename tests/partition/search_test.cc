#include "partition/search.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "partition/alignment.h"
#include "partition/coarsen.h"
#include "partition/level_search.h"
#include "partition/memory.h"
#include "partition/signature.h"
#include "partition/traffic.h"
#include "step_program.h"

namespace tesser::partition {
namespace {

std::string tensor(const std::string& name, std::int64_t rows, std::int64_t columns) {
  return R"([")" + name + R"(","float32",[)" + std::to_string(rows) + "," + std::to_string(columns) + "]]";
}
std::string node(const std::string& name, const std::string& op, const std::string& args, const std::string& out) {
  return R"({"name":")" + name + R"(","op":")" + op + R"(","args":[)" + args + R"(],"out":[)" + out +
         R"(],"phase":"forward"},)";
}

// Matrix products, sums with earlier results, activations and transpositions at random.
graph::Program random_program(std::mt19937& random) {
  const auto below = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  const auto size = [&] { return std::int64_t{2} + below(5); };
  struct Made {
    std::string name;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
  };
  std::vector<Made> made{{"x", size(), size()}};
  std::string inputs = R"({"name":"x","role":"batch","dtype":"float32","shape":[)" + std::to_string(made[0].rows) +
                       "," + std::to_string(made[0].columns) + "]}";
  std::string nodes;
  for (int index = 0; index < 5; ++index) {
    const Made from = made[static_cast<std::size_t>(below(static_cast<int>(made.size())))];
    const std::string name = "v" + std::to_string(index);
    const int kind = below(4);
    if (kind == 0) {
      const std::int64_t columns = size();
      inputs += R"(,{"name":"w)" + std::to_string(index) + R"(","role":"parameter","dtype":"float32","shape":[)" +
                std::to_string(from.columns) + "," + std::to_string(columns) + R"(],"trainable":true})";
      nodes += node("n" + name, "aten::mm", R"("%)" + from.name + R"(","%w)" + std::to_string(index) + R"(")",
                    tensor(name, from.rows, columns));
      made.push_back({name, from.rows, columns});
    } else if (kind == 1) {
      nodes += node("n" + name, "aten::t", R"("%)" + from.name + R"(")", tensor(name, from.columns, from.rows));
      made.push_back({name, from.columns, from.rows});
    } else if (kind == 2) {
      const auto same = std::find_if(made.begin(), made.end(), [&](const Made& other) {
        return other.name != from.name && other.rows == from.rows && other.columns == from.columns;
      });
      const std::string other = same == made.end() ? from.name : same->name;
      nodes += node("n" + name, "aten::add.Tensor", R"("%)" + from.name + R"(","%)" + other + R"(")",
                    tensor(name, from.rows, from.columns));
      made.push_back({name, from.rows, from.columns});
    } else {
      nodes += node("n" + name, "aten::relu", R"("%)" + from.name + R"(")", tensor(name, from.rows, from.columns));
      made.push_back({name, from.rows, from.columns});
    }
  }
  nodes += R"({"name":"nloss","op":"aten::sum","args":["%)" + made.back().name +
           R"("],"out":[["loss","float32",[]]],"phase":"forward"})";
  return parsed(step_text(inputs, nodes, R"({"role":"loss","value":"%loss"})"));
}

// The least traffic over every combination of layouts of groups and cuts of nodes, one after the other.
std::int64_t least_traffic(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, int parts,
                           const Rules& rules) {
  const Coarsening coarsening = coarsen(program, node_signatures(program), semantics);
  const Alignment alignment = align(program, semantics, coarsening);
  Decided nothing;
  nothing.groups.resize(coarsening.groups.size());
  nothing.classes.resize(coarsening.classes.size());
  const Candidates candidates = candidates_at(program, semantics, coarsening, alignment, nothing, parts, rules);
  Plan plan = replicated_plan(program, {parts});
  std::vector<std::size_t> choice(coarsening.groups.size(), 0);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  while (true) {
    for (std::size_t value = 0; value < program.values.size(); ++value) {
      const int group = coarsening.group_of_value[value];
      if (group >= 0) {
        plan.layouts[value][0] =
            candidates.groups[static_cast<std::size_t>(group)][choice[static_cast<std::size_t>(group)]];
      }
    }
    std::int64_t total = 0;
    for (std::size_t id = 0; id < program.nodes.size(); ++id) {
      std::int64_t best = std::numeric_limits<std::int64_t>::max();
      for (const Cut& cut : candidates.classes[static_cast<std::size_t>(coarsening.class_of_node[id])]) {
        plan.nodes[id][0] = cut;
        best = std::min(best, node_traffic(program, static_cast<graph::NodeId>(id), semantics[id], plan).total());
      }
      total += best;
    }
    least = std::min(least, total);
    std::size_t place = 0;
    while (place < choice.size() && ++choice[place] == candidates.groups[place].size()) {
      choice[place++] = 0;
    }
    if (place == choice.size()) {
      return least;
    }
  }
}

// What a plan moves when every node fetches what it needs anew.
std::int64_t traffic_node_by_node(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics,
                                  const Plan& plan) {
  std::int64_t total = 0;
  for (std::size_t id = 0; id < program.nodes.size(); ++id) {
    total += node_traffic(program, static_cast<graph::NodeId>(id), semantics[id], plan).total();
  }
  return total;
}

TEST(Search, FindsTheOptimumOfRandomPrograms) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 150; ++trial) {
    const graph::Program program = random_program(random);
    const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
    for (const Preset preset : {Preset::kTofu, Preset::kEqualChop, Preset::kNoReduction}) {
      for (const int workers : {2, 3}) {
        SearchOptions options;
        options.workers = workers;
        options.preset = preset;
        Rules rules;
        rules.even_cuts_first = preset != Preset::kEqualChop;
        rules.reductions = preset != Preset::kNoReduction;
        const Result<Plan> plan = search(program, semantics, options);
        if (!plan) {  // two or three parts are too many for every tensor
          continue;
        }
        ASSERT_EQ(traffic_node_by_node(program, semantics, *plan), least_traffic(program, semantics, workers, rules))
            << "trial " << trial << ", " << workers << " workers, " << preset_name(preset);
      }
    }
  }
}

// Under preset tofu every worker holds exactly 1/K wherever sizes divide.
TEST(Search, TofuCutsEveryTensorThatDivides) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  for (const int workers : {2, 4, 8}) {
    SearchOptions options;
    options.workers = workers;
    options.preset = Preset::kTofu;
    const Result<Plan> plan = search(program, semantics, options);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    for (graph::ValueId value = 0; value < static_cast<graph::ValueId>(program.values.size()); ++value) {
      const graph::Value& whole = program.value(value);
      if (whole.shape.empty()) {
        continue;
      }
      for (int worker = 0; worker < workers; ++worker) {
        EXPECT_EQ(tdl::volume(owned_region(*plan, program, value, worker_digits(plan->levels, worker))) * workers,
                  whole.elements())
            << whole.name << " of worker " << worker;
      }
    }
  }
}

TEST(Search, DataParallelismReplicatesWeightsAndCutsTheBatch) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  SearchOptions options;
  options.workers = 2;
  options.preset = Preset::kDataParallel;
  const Result<Plan> plan = search(program, semantics, options);
  ASSERT_TRUE(plan.has_value());
  const auto axis = [&](const char* name) {
    return plan->layouts[static_cast<std::size_t>(program.find(name))][0].axis;
  };
  EXPECT_EQ(axis("w"), kReplicated);
  EXPECT_EQ(axis("x"), 0);
  EXPECT_EQ(axis("a"), 0);
  // Reducing the gradient would move 2 * 64 * 32 floats. Here the batch is smaller than the weights: both workers
  // gather x and dy and make the whole gradient. The loss has two parts of four bytes.
  EXPECT_EQ(plan_traffic(program, semantics, *plan).total, 8 * 64 * 4 + 8 * 32 * 4 + 2 * 4);
}

TEST(Search, DefaultKeepsTheMemoryBoundAndSaysWhatWouldDo) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  SearchOptions options;
  options.workers = 2;
  options.topology.flops = 1e6;  // so slow that everything is worth cutting
  const auto peak = [&](const Plan& plan) { return worker_memory(program, semantics, plan).peak_bytes; };
  const Result<Plan> free_plan = search(program, semantics, options);
  ASSERT_TRUE(free_plan.has_value());
  options.memory_bytes = peak(*free_plan) - 1;
  const Result<Plan> bound = search(program, semantics, options);
  if (bound) {
    EXPECT_LE(peak(*bound), *options.memory_bytes);
  }
  options.memory_bytes = 4096;
  const Result<Plan> impossible = search(program, semantics, options);
  ASSERT_FALSE(impossible.has_value());
  EXPECT_EQ(impossible.error().code, ErrorCode::kFailed);
  EXPECT_NE(impossible.error().message.find("the smallest bound for 2 workers is"), std::string::npos)
      << impossible.error().message;
}

TEST(Search, RefusesContradictions) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  const auto message = [&](const SearchOptions& options) {
    const Result<Plan> plan = search(program, semantics, options);
    return plan ? std::string("a plan") : plan.error().message;
  };
  SearchOptions options;
  options.workers = 0;
  EXPECT_NE(message(options).find("at least one"), std::string::npos);
  options.workers = 2;
  options.preset = Preset::kTofu;
  options.memory_bytes = 1 << 20;
  EXPECT_NE(message(options).find("takes no memory bound"), std::string::npos);
  options.memory_bytes.reset();
  options.topology.links = {{"network", 4, 1e9, 1e-5}};
  EXPECT_NE(message(options).find("separate 4 workers, but 2"), std::string::npos);
  options.topology.links.clear();
  options.workers = 4096;  // more than any tensor has rows or columns, level after level
  EXPECT_NE(message(options).find("nothing is left that can be cut"), std::string::npos) << message(options);
}

// Rows [15, 4] and the sequences [5, 3, 4] they are a view of are cut at the same places, so that nothing moves.
TEST(Search, UnevenPartsOfViewsAreCutAlike) {
  const graph::Program program = parsed(step_text(
      R"({"name":"x","role":"batch","dtype":"float32","shape":[5,3,4]},
{"name":"w","role":"parameter","dtype":"float32","shape":[4,7],"trainable":true})",
      R"({"name":"view","op":"aten::view","args":["%x",[15,4]],"out":[["rows","float32",[15,4]]],"phase":"forward"},
{"name":"mm","op":"aten::mm","args":["%rows","%w"],"out":[["y","float32",[15,7]]],"phase":"forward"},
{"name":"back","op":"aten::view","args":["%y",[5,3,7]],"out":[["z","float32",[5,3,7]]],"phase":"forward"},
{"name":"sum","op":"aten::sum","args":["%z"],"out":[["loss","float32",[]]],"phase":"forward"})",
      R"({"role":"loss","value":"%loss"})"));
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  SearchOptions options;
  options.workers = 2;
  options.preset = Preset::kDataParallel;
  const Result<Plan> plan = search(program, semantics, options);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  const tdl::Region rows = owned_region(*plan, program, program.find("rows"), {0});
  EXPECT_EQ(rows[0], (tdl::Interval{0, 9}));
  EXPECT_EQ(plan_traffic(program, semantics, *plan).total, 2 * 4);  // the loss's two parts
}

// Each half of the workers, over the network from the other, has half of the batch; in a half each has a quarter.
TEST(Traffic, OfASumOverTwoLevels) {
  const graph::Program program = layer_step();
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  Plan plan = replicated_plan(program, {2, 2});
  const Plan flat = batch_plan(program, semantics, 4);
  for (std::size_t value = 0; value < plan.layouts.size(); ++value) {
    plan.layouts[value].assign(2, flat.layouts[value].front());
  }
  for (std::size_t node = 0; node < plan.nodes.size(); ++node) plan.nodes[node].assign(2, flat.nodes[node].front());
  const Traffic traffic = plan_traffic(program, semantics, plan);
  // Each of the four gets three parts of its share of dw, three shares, and three parts of the loss: one of three from
  // its own half, two from the other.
  constexpr std::int64_t kPart = (2 * 64 * 32 / 4 + 1) * 4;
  EXPECT_EQ(traffic.total, 4 * 3 * kPart);
  EXPECT_EQ(traffic.level_bytes, (std::vector<std::int64_t>{4 * 2 * kPart, 4 * kPart}));
  EXPECT_EQ(traffic.worker_bytes, std::vector<std::int64_t>(4, 3 * kPart));
  EXPECT_EQ(plan_traffic(program, semantics, flat).total, traffic.total);
}

// x is needed whole by two products of one phase and by one of another.
TEST(Traffic, AFetchedRegionIsThereForTheNextOperator) {
  const graph::Program program = parsed(
      step_text(R"({"name":"x","role":"batch","dtype":"float32","shape":[4,6]})",
                R"({"name":"relu","op":"aten::relu","args":["%x"],"out":[["y","float32",[4,6]]],"phase":"forward"},
{"name":"abs","op":"aten::abs","args":["%x"],"out":[["z","float32",[4,6]]],"phase":"forward"},
{"name":"neg","op":"aten::neg","args":["%x"],"out":[["u","float32",[4,6]]],"phase":"backward"},
{"name":"one","op":"aten::add.Tensor","args":["%y","%z"],"out":[["v","float32",[4,6]]],"phase":"backward"},
{"name":"two","op":"aten::add.Tensor","args":["%v","%u"],"out":[["w","float32",[4,6]]],"phase":"backward"},
{"name":"sum","op":"aten::sum","args":["%w"],"out":[["loss","float32",[]]],"phase":"backward"})",
                R"({"role":"loss","value":"%loss"})"));
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  Plan plan = replicated_plan(program, {2});
  plan.layouts[static_cast<std::size_t>(program.find("x"))][0].axis = 0;
  const Traffic traffic = plan_traffic(program, semantics, plan);
  constexpr std::int64_t kHalves = 2 * 2 * 6 * 4;
  EXPECT_EQ(traffic.nodes[0].operands, std::vector<std::int64_t>{kHalves});
  EXPECT_EQ(traffic.nodes[1].operands, std::vector<std::int64_t>{0});
  EXPECT_EQ(traffic.nodes[2].operands, std::vector<std::int64_t>{kHalves});
  EXPECT_EQ(traffic.total, 2 * kHalves);
  EXPECT_EQ(node_traffic(program, 1, semantics[1], plan).total(), kHalves);
}

// What the paper's section 5 counts for a matrix product x[4, 6] w[6, 8] in two parts, in elements.
TEST(Traffic, OfAMatrixProductAsThePaperCounts) {
  const graph::Program program = parsed(step_text(
      R"({"name":"x","role":"batch","dtype":"float32","shape":[4,6]},
{"name":"w","role":"parameter","dtype":"float32","shape":[6,8],"trainable":true})",
      R"({"name":"mm","op":"aten::mm","args":["%x","%w"],"out":[["y","float32",[4,8]]],"phase":"forward"},
{"name":"sum","op":"aten::sum","args":["%y"],"out":[["loss","float32",[]]],"phase":"forward"})",
      R"({"role":"loss","value":"%loss"})"));
  const std::vector<tdl::NodeSemantics> semantics = semantics_of(program);
  const auto traffic = [&](int x, int w, const std::string& cut, int y) {
    Plan plan = replicated_plan(program, {2});
    plan.layouts[static_cast<std::size_t>(program.find("x"))][0].axis = x;
    plan.layouts[static_cast<std::size_t>(program.find("w"))][0].axis = w;
    plan.layouts[static_cast<std::size_t>(program.find("y"))][0].axis = y;
    plan.nodes[0][0].axis = variable(semantics[0], cut);
    const NodeTraffic bytes = node_traffic(program, 0, semantics[0], plan);
    return std::vector<std::int64_t>{bytes.operands[0] / 4, bytes.operands[1] / 4, bytes.results[0] / 4};
  };
  using Elements = std::vector<std::int64_t>;
  EXPECT_EQ(traffic(0, kReplicated, "i", 0), (Elements{0, 0, 0}));   // rows, replicated -> rows
  EXPECT_EQ(traffic(0, 0, "i", 0), (Elements{0, 48, 0}));            // w cut to replicated: N
  EXPECT_EQ(traffic(1, 0, "i", 0), (Elements{12, 48, 0}));           // x columns to rows: N/2
  EXPECT_EQ(traffic(1, 0, "k", 0), (Elements{0, 0, 32}));            // to be reduced, to cut: N
  EXPECT_EQ(traffic(1, 0, "k", kReplicated), (Elements{0, 0, 64}));  // to be reduced, to replicated: 2N
  EXPECT_EQ(traffic(0, 1, "j", 1), (Elements{24, 0, 0}));            // columns
  EXPECT_EQ(traffic(0, 1, "j", 0), (Elements{24, 0, 16}));
}

}  // namespace
}  // namespace tesser::partition
