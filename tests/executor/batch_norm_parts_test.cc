// Batch normalisation in steps, run by the executor, has the numbers of PyTorch's operators.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "program_text.h"
#include "runtime/executor.h"

namespace tesser::runtime {
namespace {

std::string value(const std::string& name, const std::string& shape, const std::string& dtype = "float32") {
  return R"([")" + name + R"(",")" + dtype + R"(",)" + shape + "]";
}

std::string node(const std::string& name, const std::string& op, const std::string& args, const std::string& out) {
  return R"({"name":")" + name + R"(","op":")" + op + R"(","args":[)" + args + R"(],"out":[)" + out +
         R"(],"phase":"forward","module":"net","source":"step.py:7"})";
}

std::string input(const std::string& name, const std::string& role, const std::string& shape) {
  return R"({"name":")" + name + R"(","role":")" + role + R"(","dtype":"float32","shape":)" + shape +
         (role == "buffer" ? R"(,"persistent":true})" : "}");
}

// y, running values, dx, dweight, dbias are left in buffers of the same names. With `layout` channels_last, x is
// brought there first.
graph::Program program(const std::string& shape, const std::string& channels, const std::string& layout, int count,
                       bool in_steps) {
  const std::string vector = "[" + channels + "]";
  std::string inputs = input("x", "batch", shape) + "," + input("dy", "batch", shape);
  for (const char* name : {"w", "b", "mean", "var", "new_mean", "new_var", "dw", "db"})
    inputs += "," + input(name, "buffer", vector);
  for (const char* name : {"y", "dx"}) inputs += "," + input(name, "buffer", shape);
  std::string nodes = node("l", "aten::clone", R"("%x",{"memory_format":")" + layout + R"("})", value("l", shape));
  if (in_steps) {
    const std::string n = std::to_string(count);
    const std::string two = value("s", vector, "float64") + "," + value("q", vector, "float64");
    nodes +=
        "," + node("sums", "tesser::batch_norm_sums", R"("%l")", two) + "," +
        node("stats", "tesser::batch_norm_statistics", R"("%s","%q","%mean","%var",)" + n + ",0.3,0.001",
             value("m", vector) + "," + value("r", vector) + "," + value("nm", vector) + "," + value("nv", vector)) +
        "," + node("apply", "tesser::batch_norm_apply", R"("%l","%w","%b","%m","%r")", value("out", shape)) + "," +
        node("gsums", "tesser::batch_norm_backward_sums", R"("%dy","%l","%m","%r")",
             value("gs", vector, "float64") + "," + value("gq", vector, "float64")) +
        "," +
        node("gapply", "tesser::batch_norm_backward_apply", R"("%dy","%l","%w","%m","%r","%gs","%gq",)" + n,
             value("g", shape)) +
        "," + node("gw", "aten::_to_copy", R"("%gq",{"dtype":"float32"})", value("gw", vector)) + "," +
        node("gb", "aten::_to_copy", R"("%gs",{"dtype":"float32"})", value("gb", vector));
  } else {
    nodes +=
        "," +
        node("norm", "aten::_native_batch_norm_legit_functional", R"("%l","%w","%b","%mean","%var",true,0.3,0.001)",
             value("out", shape) + "," + value("m", vector) + "," + value("r", vector) + "," + value("nm", vector) +
                 "," + value("nv", vector)) +
        "," +
        node("gnorm", "aten::native_batch_norm_backward",
             R"("%dy","%l","%w",null,null,"%m","%r",true,0.001,[true,true,true])",
             value("g", shape) + "," + value("gw", vector) + "," + value("gb", vector));
  }
  nodes += "," + node("flat", "aten::sum", R"("%out")", value("total", "[]"));
  std::string outputs = R"({"role":"loss","value":"%total"})";
  for (const auto& [state, result] : std::vector<std::pair<std::string, std::string>>{
           {"y", "out"}, {"new_mean", "nm"}, {"new_var", "nv"}, {"dx", "g"}, {"dw", "gw"}, {"db", "gb"}}) {
    outputs += R"(,{"role":"state","name":")" + state + R"(","value":"%)" + result + R"("})";
  }
  return testing::step_program(inputs + R"(,{"name":"step","role":"step","dtype":"int64","shape":[]})", nodes, outputs);
}

std::vector<std::vector<float>> results(const graph::Program& program) {
  auto executor = Executor::create(program, {.threads = 2});
  EXPECT_TRUE(executor.has_value()) << (executor ? "" : executor.error().message);
  std::mt19937 generator(5);
  std::normal_distribution<float> normal(3, 2);
  const auto fill = [&](float* data, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) data[i] = std::abs(normal(generator));
  };
  for (const graph::ValueId id : program.inputs) {
    const graph::Value& input = program.value(id);
    if (input.role == graph::Role::kBatch) {
      fill(static_cast<float*>((*executor)->batch(input.name).data), input.elements());
    } else if (input.is_state()) {
      std::vector<float> data(static_cast<std::size_t>(input.elements()));
      fill(data.data(), input.elements());
      EXPECT_TRUE((*executor)->write_state(input.name, {DType::kFloat32, input.shape, data.data()}));
    }
  }
  const auto run = (*executor)->run(0, 0);
  EXPECT_TRUE(run.has_value()) << (run ? "" : run.error().message);
  std::vector<std::vector<float>> all;
  for (const char* name : {"y", "new_mean", "new_var", "dx", "dw", "db"}) {
    const graph::Value& state = program.value(program.find(name));
    all.emplace_back(static_cast<std::size_t>(state.elements()));
    EXPECT_TRUE((*executor)->read_state(name, {DType::kFloat32, state.shape, all.back().data()}));
  }
  return all;
}

TEST(BatchNormParts, AreTheNumbersOfTheWholeOperator) {
  struct Case {
    const char* shape;
    const char* channels;
    const char* layout;
    int count;
  };
  for (const Case& each :
       {Case{"[6,5]", "5", "contiguous_format", 6}, Case{"[3,5,9]", "5", "contiguous_format", 27},
        Case{"[4,17,3,3]", "17", "contiguous_format", 36}, Case{"[4,17,3,3]", "17", "channels_last", 36},
        Case{"[2,3,2,3,4]", "3", "channels_last_3d", 48}}) {
    const auto expected = results(program(each.shape, each.channels, each.layout, each.count, false));
    const auto found = results(program(each.shape, each.channels, each.layout, each.count, true));
    for (std::size_t which = 0; which < expected.size(); ++which) {
      float largest = 0;
      for (const float element : expected[which]) largest = std::max(largest, std::abs(element));
      for (std::size_t i = 0; i < expected[which].size(); ++i) {
        ASSERT_NEAR(found[which][i], expected[which][i], 3e-6F * largest)
            << each.shape << " " << each.layout << ", result " << which;
      }
    }
  }
}

TEST(BatchNormParts, ChannelsThatDoNotFitAreRefused) {
  const auto wrong = program("[4,17,3,3]", "16", "channels_last", 36, true);
  auto executor = Executor::create(wrong, {.threads = 1});
  ASSERT_TRUE(executor.has_value());
  const auto run = (*executor)->run(0, 0);
  ASSERT_FALSE(run.has_value());
  EXPECT_NE(run.error().message.find("17 channels"), std::string::npos) << run.error().message;
}

}  // namespace
}  // namespace tesser::runtime
