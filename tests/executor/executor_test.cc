#include "runtime/executor.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "program_text.h"

namespace tesser::runtime {
namespace {

using testing::step_program;

std::string value(const std::string& name, const std::string& shape, const std::string& dtype = "float32") {
  return R"([")" + name + R"(",")" + dtype + R"(",)" + shape + "]";
}

std::string node(const std::string& name, const std::string& op, const std::string& args, const std::string& out,
                 const std::string& phase = "forward") {
  return R"({"name":")" + name + R"(","op":")" + op + R"(","args":[)" + args + R"(],"out":[)" + out + R"(],"phase":")" +
         phase + R"(","module":"net.)" + name + R"(","source":"step.py:7"})";
}

std::string input(const std::string& name, const std::string& role, const std::string& shape) {
  return R"({"name":")" + name + R"(","role":")" + role + R"(","dtype":"float32","shape":)" + shape +
         (role == "parameter" ? R"(,"trainable":true})"
          : role == "buffer"  ? R"(,"persistent":true})"
                              : "}");
}

const std::string kScalars =
    R"({"name":"step","role":"step","dtype":"int64","shape":[]},{"name":"seed","role":"seed","dtype":"int64","shape":[]},)"
    R"({"name":"lr","role":"learning_rate","dtype":"float64","shape":[],"schedule":0})";

// A convolution, activation and loss with its backward pass and a plain update of the weight.
graph::Program convolution_program() {
  return step_program(
      input("w", "parameter", "[8,3,3,3]") + "," + input("x", "batch", "[2,3,9,7]") + "," + kScalars,
      node("conv", "aten::convolution", R"("%x","%w",null,[1,1],[1,1],[1,1],false,[0,0],1)",
           value("conv", "[2,8,9,7]")) +
          "," + node("scaled", "aten::mul.Tensor", R"("%conv",0.5)", value("scaled", "[2,8,9,7]")) + "," +
          node("gelu", "aten::gelu", R"("%scaled")", value("gelu", "[2,8,9,7]")) + "," +
          node("flat", "aten::view", R"("%gelu",[2,504])", value("flat", "[2,504]")) + "," +
          node("square", "aten::pow.Tensor_Scalar", R"("%flat",2)", value("square", "[2,504]")) + "," +
          node("loss", "aten::mean", R"("%square")", value("loss", "[]")) + "," +
          node("g1", "aten::mul.Tensor", R"("%flat",0.001984126984126984)", value("g1", "[2,504]"), "backward") + "," +
          node("g2", "aten::view", R"("%g1",[2,8,9,7])", value("g2", "[2,8,9,7]"), "backward") + "," +
          node("g3", "aten::gelu_backward", R"("%g2","%scaled")", value("g3", "[2,8,9,7]"), "backward") + "," +
          node("g4", "aten::mul.Tensor", R"("%g3",0.5)", value("g4", "[2,8,9,7]"), "backward") + "," +
          node("gconv", "aten::convolution_backward",
               R"("%g4","%x","%w",[0],[1,1],[1,1],[1,1],false,[0,0],1,[false,true,false])",
               "null," + value("gw", "[8,3,3,3]") + ",null", "backward") +
          "," +
          node("update", "tesser::sgd", R"("%w","%gw",null,"%lr","%step",0.0,0.0,0.0,false,false)",
               value("w.new", "[8,3,3,3]") + ",null", "update"),
      R"({"role":"loss","value":"%loss"},{"role":"state","name":"w","value":"%w.new"})");
}

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& each : values) each = normal(generator);
  return values;
}

struct Trained {
  std::vector<double> losses;
  std::vector<float> weight;
  MemoryReport memory;
};

Trained train(const ExecutorOptions& options, int steps) {
  Trained trained;
  auto executor = Executor::create(convolution_program(), options);
  EXPECT_TRUE(executor.has_value()) << (executor ? "" : executor.error().message);
  const auto weight = random_floats(8 * 27, 1);
  EXPECT_TRUE((*executor)->write_state("w", {DType::kFloat32, {8, 3, 3, 3}, weight.data()}).has_value());
  for (int step = 0; step < steps; ++step) {
    const auto x = random_floats(2 * 3 * 9 * 7, 10 + static_cast<unsigned>(step));
    std::memcpy((*executor)->batch("x").data, x.data(), x.size() * sizeof(float));
    const auto result = (*executor)->run(step, 0);
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    trained.losses.push_back(result->loss);
  }
  trained.weight.resize(weight.size());
  EXPECT_TRUE((*executor)->read_state("w", {DType::kFloat32, {8, 3, 3, 3}, trained.weight.data()}).has_value());
  trained.memory = (*executor)->memory();
  return trained;
}

TEST(Executor, TrainsAndRepeatsToTheBit) {
  const Trained first = train({.threads = 2}, 6);
  const Trained second = train({.threads = 2}, 6);
  EXPECT_NE(first.losses.front(), first.losses.back());
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.weight, second.weight);
}

TEST(Executor, FusionAndLayoutKeepTheNumbers) {
  const Trained plain = train({.threads = 1, .fuse = false, .choose_layout = false}, 4);
  const Trained fused = train({.threads = 1, .fuse = true, .choose_layout = false}, 4);
  const Trained laid_out = train({.threads = 1, .fuse = true, .choose_layout = true}, 4);
  for (std::size_t i = 0; i < plain.losses.size(); ++i) {
    EXPECT_NEAR(plain.losses[i], fused.losses[i], 1e-6 * plain.losses[i]);
    EXPECT_NEAR(plain.losses[i], laid_out.losses[i], 1e-5 * plain.losses[i]);
  }
  for (std::size_t i = 0; i < plain.weight.size(); ++i) {
    EXPECT_NEAR(plain.weight[i], fused.weight[i], 1e-6);
    EXPECT_NEAR(plain.weight[i], laid_out.weight[i], 1e-5);
  }
}

TEST(Executor, NoStorageOutsideThePlanAfterTheFirstStep) {
  const Trained trained = train({.threads = 2}, 5);
  EXPECT_EQ(trained.memory.unplanned_allocations, 0);
  EXPECT_GT(trained.memory.arena_bytes, trained.memory.state_bytes);
}

TEST(Executor, WritesAndReadsStateRowMajor) {
  auto executor = Executor::create(convolution_program(), {.threads = 1});
  const auto weight = random_floats(8 * 27, 3);
  ASSERT_TRUE((*executor)->write_state("w", {DType::kFloat32, {8, 3, 3, 3}, weight.data()}).has_value());
  std::vector<float> back(weight.size());
  ASSERT_TRUE((*executor)->read_state("w", {DType::kFloat32, {8, 3, 3, 3}, back.data()}).has_value());
  EXPECT_EQ(weight, back);
  const auto wrong = (*executor)->write_state("w", {DType::kFloat32, {8, 3, 9}, weight.data()});
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message,
            "'w' is float32 of shape [8, 3, 3, 3] in the program, but float32 of shape [8, 3, 9] was given");
  EXPECT_FALSE((*executor)->write_state("nobody", {DType::kFloat32, {1}, weight.data()}).has_value());
}

TEST(Executor, NamesTheFirstOperatorThatGivesNan) {
  auto executor =
      Executor::create(step_program(input("w", "parameter", "[4]") + "," + input("x", "batch", "[4]") + "," + kScalars,
                                    node("a", "aten::log", R"("%x")", value("a", "[4]")) + "," +
                                        node("b", "aten::cumsum", R"("%a",0)", value("b", "[4]")) + "," +
                                        node("loss", "aten::sum", R"("%b")", value("loss", "[]")),
                                    R"({"role":"loss","value":"%loss"})"),
                       {.threads = 1, .check_nan = true});
  ASSERT_TRUE(executor.has_value());
  const std::vector<float> x{1, 2, -1, 3};
  std::memcpy((*executor)->batch("x").data, x.data(), sizeof(float) * 4);
  const auto result = (*executor)->run(0, 0);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("node 'a' (aten::log, module 'net.a', step.py:7) is the first operator"),
            std::string::npos)
      << result.error().message;
}

TEST(Executor, NamesTheOperatorThatMadeTheLossInfinite) {
  auto executor =
      Executor::create(step_program(input("w", "parameter", "[4]") + "," + input("x", "batch", "[4]") + "," + kScalars,
                                    node("mask", "aten::clamp", R"("%x",null,{"float":"inf"})", value("mask", "[4]")) +
                                        "," + node("a", "aten::exp", R"("%x")", value("a", "[4]")) + "," +
                                        node("loss", "aten::sum", R"("%a")", value("loss", "[]")),
                                    R"({"role":"loss","value":"%loss"})"),
                       {.threads = 1, .check_nan = true});
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  const std::vector<float> x{1, 200, 0, 3};
  std::memcpy((*executor)->batch("x").data, x.data(), sizeof(float) * 4);
  const auto result = (*executor)->run(0, 0);
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("The first operator whose result became infinite was node 'a' (aten::exp"),
            std::string::npos)
      << result.error().message;
}

// A buffer that takes the weight as it was before the step, and one that takes a view of it, while the weight is
// updated in place.
TEST(Executor, NewStateMayBeOldStateOfAnother) {
  auto executor = Executor::create(
      step_program(input("w", "parameter", "[2,2]") + "," + input("previous", "buffer", "[2,2]") + "," +
                       input("flat", "buffer", "[4]") + "," + input("x", "batch", "[2,2]") + "," + kScalars,
                   node("view", "aten::view", R"("%w",[4])", value("view", "[4]")) + "," +
                       node("loss", "aten::sum", R"("%x")", value("loss", "[]")) + "," +
                       node("update", "tesser::sgd", R"("%w","%x",null,"%lr","%step",0.0,0.0,0.0,false,false)",
                            value("w.new", "[2,2]") + ",null", "update"),
                   R"({"role":"loss","value":"%loss"},{"role":"state","name":"w","value":"%w.new"},)"
                   R"({"role":"state","name":"previous","value":"%w"},{"role":"state","name":"flat","value":"%view"})"),
      {.threads = 1});
  ASSERT_TRUE(executor.has_value()) << executor.error().message;
  const std::vector<float> weight{1, 2, 3, 4};
  ASSERT_TRUE((*executor)->write_state("w", {DType::kFloat32, {2, 2}, weight.data()}).has_value());
  const std::vector<float> x{2, 2, 2, 2};
  std::memcpy((*executor)->batch("x").data, x.data(), sizeof(float) * 4);
  std::vector<float> previous(4), flat(4), updated(4);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE((*executor)->run(step, 0).has_value());
    ASSERT_TRUE((*executor)->read_state("previous", {DType::kFloat32, {2, 2}, previous.data()}).has_value());
    ASSERT_TRUE((*executor)->read_state("flat", {DType::kFloat32, {4}, flat.data()}).has_value());
    ASSERT_TRUE((*executor)->read_state("w", {DType::kFloat32, {2, 2}, updated.data()}).has_value());
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(previous[i], weight[i] - static_cast<float>(step));
      EXPECT_EQ(flat[i], previous[i]);
      EXPECT_EQ(updated[i], previous[i] - 1);
    }
  }
}

TEST(Executor, RefusesOperatorsAndArgumentsItDoesNotKnow) {
  const auto refusal = [](const std::string& nodes) {
    auto executor = Executor::create(
        step_program(input("x", "batch", "[4]") + "," + kScalars, nodes, R"({"role":"loss","value":"%loss"})"), {});
    return executor.has_value() ? std::string("accepted") : executor.error().message;
  };
  EXPECT_NE(refusal(node("loss", "aten::no_such_operator", R"("%x")", value("loss", "[]")))
                .find("no operator aten::no_such_operator"),
            std::string::npos);
  EXPECT_NE(refusal(node("loss", "tesser::nothing", R"("%x")", value("loss", "[]"))).find("unknown operator"),
            std::string::npos);
  EXPECT_NE(refusal(node("loss", "aten::sum", R"("%x",null,1,2,3)", value("loss", "[]")))
                .find("arguments, the operator takes"),
            std::string::npos);
  EXPECT_NE(
      refusal(node("loss", "aten::sum.dim_IntList", R"("%x","text")", value("loss", "[]"))).find("'dim' does not fit"),
      std::string::npos);
  EXPECT_NE(refusal(node("loss", "aten::mm", R"("%x")", value("loss", "[]"))).find("'mat2' is missing"),
            std::string::npos);
  EXPECT_NE(refusal(node("loss", "tesser::dropout", R"("%x",0.5)", value("loss", "[]"))).find("tesser::dropout"),
            std::string::npos);
}

TEST(Executor, AFailingKernelNamesItsNode) {
  auto executor =
      Executor::create(step_program(input("x", "batch", "[4]") + "," + input("y", "batch", "[5]") + "," + kScalars,
                                    node("loss", "aten::dot", R"("%x","%y")", value("loss", "[]")),
                                    R"({"role":"loss","value":"%loss"})"),
                       {});
  ASSERT_TRUE(executor.has_value());
  const auto result = (*executor)->run(0, 0);
  ASSERT_FALSE(result.has_value());
  EXPECT_FALSE((*executor)->run(1, 0).has_value());
  EXPECT_NE(result.error().message.find("node 'loss' (aten::dot, module 'net.loss', step.py:7)"), std::string::npos)
      << result.error().message;
}

}  // namespace
}  // namespace tesser::runtime
