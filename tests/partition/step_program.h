#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/read.h"
#include "partition/plan.h"
#include "partition/signature.h"
#include "tdl/catalogue.h"

namespace tesser::partition {

inline graph::Program parsed(const std::string& text) {
  Result<graph::Program> program = graph::parse_program(text, "test");
  EXPECT_TRUE(program.has_value()) << (program.has_value() ? "" : program.error().message);
  return std::move(program).value();
}

// A program of these inputs and nodes (JSON entries), with a loss.
inline std::string step_text(const std::string& inputs, const std::string& nodes, const std::string& outputs) {
  return R"({"format":"tesser.program","version":1,"name":"step","kind":"step","producer":"","first_step":0,
"schedules":[{"kind":"constant","rate":0.1}],"inputs":[
{"name":"step","role":"step","dtype":"int64","shape":[]},
{"name":"learning_rate/0","role":"learning_rate","dtype":"float64","shape":[],"schedule":0},
)" + inputs +
         "],\n\"nodes\":[\n" + nodes + "],\n\"outputs\":[\n" + outputs + "]}\n";
}

// One layer, x[8,64] w[64,32], with its gradient and update; nothing in it that expansion rewrites.
inline graph::Program layer_step() {
  return parsed(step_text(
      R"({"name":"w","role":"parameter","dtype":"float32","shape":[64,32],"trainable":true},
{"name":"x","role":"batch","dtype":"float32","shape":[8,64]})",
      R"({"name":"mm","op":"aten::mm","args":["%x","%w"],"out":[["y","float32",[8,32]]],"phase":"forward","module":"fc"},
{"name":"relu","op":"aten::relu","args":["%y"],"out":[["a","float32",[8,32]]],"phase":"forward","module":"fc"},
{"name":"loss","op":"aten::sum","args":["%a"],"out":[["loss","float32",[]]],"phase":"forward"},
{"name":"ones","op":"aten::ones_like","args":["%a"],"out":[["da","float32",[8,32]]],"phase":"backward"},
{"name":"da","op":"aten::threshold_backward","args":["%da","%a",0],"out":[["dy","float32",[8,32]]],"phase":"backward","forward":"relu"},
{"name":"t","op":"aten::t","args":["%x"],"out":[["xt","float32",[64,8]]],"phase":"backward","forward":"mm"},
{"name":"dw","op":"aten::mm","args":["%xt","%dy"],"out":[["dw","float32",[64,32]]],"phase":"backward","forward":"mm"},
{"name":"update","op":"tesser::sgd","args":["%w","%dw",null,"%learning_rate/0","%step",0.0,0.0,0.0,false,false],"out":[["w.new","float32",[64,32]],null],"phase":"update"}
)",
      R"({"role":"loss","value":"%loss"},{"role":"state","name":"w","value":"%w.new"})"));
}

inline std::vector<tdl::NodeSemantics> semantics_of(const graph::Program& program) {
  return analyze_nodes(program, tdl::Catalogue::shipped());
}

// A plan in which everything is replicated over these levels.
inline Plan replicated_plan(const graph::Program& program, std::vector<int> parts) {
  Plan plan;
  plan.program = program.name;
  plan.preset = "by hand";
  for (const int part : parts) plan.levels.push_back({part, ""});
  plan.layouts.assign(program.values.size(), std::vector<Cut>(parts.size()));
  plan.nodes.assign(program.nodes.size(), std::vector<Cut>(parts.size()));
  return plan;
}

// Which variable of the node has this name; fails the test when none has.
inline int variable(const tdl::NodeSemantics& semantics, const std::string& name) {
  for (std::size_t index = 0; index < semantics.variables().size(); ++index) {
    if (semantics.variables()[index].name == name) return static_cast<int>(index);
  }
  ADD_FAILURE() << "no variable " << name;
  return 0;
}

// layer_step() with everything of the batch cut into the parts of one level, weights replicated: `dw` is to be reduced.
inline Plan batch_plan(const graph::Program& program, const std::vector<tdl::NodeSemantics>& semantics, int parts) {
  Plan plan = replicated_plan(program, {parts});
  for (const char* const name : {"x", "y", "a", "da", "dy"}) {
    plan.layouts[static_cast<std::size_t>(program.find(name))][0].axis = 0;
  }
  plan.layouts[static_cast<std::size_t>(program.find("xt"))][0].axis = 1;
  for (std::size_t node = 0; node < program.nodes.size(); ++node) {
    const graph::Node& it = program.nodes[node];
    if (it.phase == graph::Phase::kUpdate) continue;
    for (const tdl::Strategy& strategy : semantics[node].strategies()) {
      constexpr std::int64_t kBatch = 8;  // no other variable is as long
      if (semantics[node].variables()[static_cast<std::size_t>(strategy.variable)].extent == kBatch) {
        plan.nodes[node][0].axis = strategy.variable;
      }
    }
  }
  return plan;
}

}  // namespace tesser::partition
