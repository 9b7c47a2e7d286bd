#include "optimizer/update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "golden_numbers.h"
#include "optimizer/update_loops.h"

namespace tesser::optimizer {
namespace {

const test::GoldenNumbers& golden() {
  static const test::GoldenNumbers numbers("tests/optimizer/golden.txt");
  return numbers;
}

template <typename Element>
std::string dtype() {
  return sizeof(Element) == 4 ? "float32/" : "float64/";
}

template <typename Element>
void expect_same_bits(const std::vector<Element>& found, const std::vector<Element>& expected,
                      const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::memcmp(&found[i], &expected[i], sizeof(Element)), 0)
        << what << "[" << i << "]: " << found[i] << ", expected " << expected[i];
  }
}

// What docs/exactness.md allows an Adam parameter after the golden file's steps: PyTorch's square root is not correctly
// rounded, so each step may differ by four units in the last place of the parameter or of the update.
template <typename Element>
void expect_close(const std::vector<Element>& found, const std::vector<Element>& expected, double steps,
                  const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double tolerance = 4 * steps * std::numeric_limits<Element>::epsilon() *
                             std::max(0.02, std::abs(static_cast<double>(expected[i])));
    EXPECT_NEAR(found[i], expected[i], tolerance) << what << "[" << i << "]";
  }
}

template <typename Element>
struct Inputs {
  std::vector<Element> start = golden().bits<Element>(dtype<Element>() + "start");
  std::vector<double> rates = golden().numbers("rates");

  std::vector<Element> gradient(std::size_t step) const {
    return golden().bits<Element>(dtype<Element>() + "gradient/" + std::to_string(step));
  }
};

template <typename Element>
void check_sgd(const std::string& name) {
  const Inputs<Element> inputs;
  const auto count = static_cast<std::int64_t>(inputs.start.size());
  const std::vector<double> given = golden().numbers("settings/" + name);
  const SgdSettings settings = {given[0], given[1], given[2], given[3] != 0, given[4] != 0};
  std::vector<Element> parameter = inputs.start;
  std::vector<Element> buffer(parameter.size(),
                              std::numeric_limits<Element>::quiet_NaN());  // the first step must not read it
  Element* const given_buffer = settings.momentum != 0 ? buffer.data() : nullptr;
  for (std::size_t step = 0; step < inputs.rates.size(); ++step) {
    const std::vector<Element> gradient = inputs.gradient(step);
    sgd_update(parameter.data(), gradient.data(), given_buffer, 0, count, settings, inputs.rates[step],
               static_cast<std::int64_t>(step));
  }
  const std::string prefix = dtype<Element>() + name;
  expect_same_bits(parameter, golden().bits<Element>(prefix + "/parameter"), prefix);
  if (given_buffer != nullptr)
    expect_same_bits(buffer, golden().bits<Element>(prefix + "/momentum_buffer"), prefix + " buffer");
}

TEST(SgdUpdate, EqualsTorchBitForBit) {
  for (const char* name : {"plain", "decay", "momentum", "nesterov", "dampening", "everything"}) {
    check_sgd<float>(name);
    check_sgd<double>(name);
  }
}

AdamSettings adam_settings(const std::string& name) {
  const std::vector<double> given = golden().numbers("settings/" + name);
  return {given[0], given[1], given[2], given[3], given[4] != 0, given[5] != 0};
}

template <typename Element>
void check_adam(const std::string& name) {
  const Inputs<Element> inputs;
  const auto count = static_cast<std::int64_t>(inputs.start.size());
  const AdamSettings settings = adam_settings(name);
  const std::string prefix = dtype<Element>() + name;
  const bool amsgrad = golden().has(prefix + "/max_exp_avg_sq");
  std::vector<Element> parameter = inputs.start;
  std::vector<Element> average(parameter.size());
  std::vector<Element> square(parameter.size());
  std::vector<Element> maximum(parameter.size());
  for (std::size_t step = 0; step < inputs.rates.size(); ++step) {
    const std::vector<Element> gradient = inputs.gradient(step);
    adam_update(parameter.data(), gradient.data(), average.data(), square.data(), amsgrad ? maximum.data() : nullptr, 0,
                count, settings, inputs.rates[step], static_cast<std::int64_t>(step));
  }
  const double steps = static_cast<double>(inputs.rates.size());
  expect_close(parameter, golden().bits<Element>(prefix + "/parameter"), steps, prefix);
  // Without coupled weight decay the moments depend on the gradients alone.
  if (settings.weight_decay != 0 && !settings.decoupled_weight_decay) {
    expect_close(average, golden().bits<Element>(prefix + "/exp_avg"), steps, prefix + " exp_avg");
    expect_close(square, golden().bits<Element>(prefix + "/exp_avg_sq"), steps, prefix + " exp_avg_sq");
  } else {
    expect_same_bits(average, golden().bits<Element>(prefix + "/exp_avg"), prefix + " exp_avg");
    expect_same_bits(square, golden().bits<Element>(prefix + "/exp_avg_sq"), prefix + " exp_avg_sq");
    if (amsgrad)
      expect_same_bits(maximum, golden().bits<Element>(prefix + "/max_exp_avg_sq"), prefix + " max_exp_avg_sq");
  }
}

TEST(AdamUpdate, EqualsTorch) {
  for (const char* name : {"adam", "adam_decay", "adam_low_betas", "adamw", "amsgrad", "adamw_everything"}) {
    check_adam<float>(name);
    check_adam<double>(name);
  }
}

// What one call over everything gives, and what calls over uneven ranges give.
TEST(Updates, DoNotDependOnTheRanges) {
  const Inputs<float> inputs;
  const auto count = static_cast<std::int64_t>(inputs.start.size());
  const std::vector<float> gradient = inputs.gradient(0);
  const SgdSettings sgd = {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
  const AdamSettings adam = {.weight_decay = 0.1, .decoupled_weight_decay = true};
  std::vector<float> whole = inputs.start;
  std::vector<float> whole_state[3] = {inputs.gradient(1), inputs.gradient(2), inputs.start};
  for (float& value : whole_state[2]) value = std::abs(value);
  std::vector<float> cut = whole;
  std::vector<float> cut_state[3] = {whole_state[0], whole_state[1], whole_state[2]};
  sgd_update(whole.data(), gradient.data(), whole_state[0].data(), 0, count, sgd, 0.1, 3);
  adam_update(whole.data(), gradient.data(), whole_state[1].data(), whole_state[2].data(), nullptr, 0, count, adam, 0.1,
              3);
  for (const auto& [begin, end] : {std::pair{0, 1}, {1, 20}, {20, 20}, {20, 37}, {37, static_cast<int>(count)}}) {
    sgd_update(cut.data(), gradient.data(), cut_state[0].data(), begin, end, sgd, 0.1, 3);
    adam_update(cut.data(), gradient.data(), cut_state[1].data(), cut_state[2].data(), nullptr, begin, end, adam, 0.1,
                3);
  }
  expect_same_bits(cut, whole, "parameter");
  for (int i = 0; i < 3; ++i) expect_same_bits(cut_state[i], whole_state[i], "state");
}

TEST(Updates, ScaleTheGradientAsItIsRead) {
  const Inputs<float> inputs;
  const auto count = static_cast<std::int64_t>(inputs.start.size());
  const std::vector<float> gradient = inputs.gradient(0);
  std::vector<float> scaled = gradient;
  for (float& value : scaled) value *= 0.3F;
  std::vector<float> expected = inputs.start;
  std::vector<float> found = inputs.start;
  sgd_update(expected.data(), scaled.data(), nullptr, 0, count, {.weight_decay = 0.1, .maximize = true}, 0.1, 0);
  sgd_update(found.data(), gradient.data(), nullptr, 0, count, {.weight_decay = 0.1, .maximize = true}, 0.1, 0, 0.3F);
  expect_same_bits(found, expected, "scaled");
}

TEST(Updates, KeepNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> parameter = {1, 1};
  std::vector<float> average(2);
  std::vector<float> square(2);
  std::vector<float> maximum = {nan, 5};
  const std::vector<float> gradient = {1, nan};
  adam_update(parameter.data(), gradient.data(), average.data(), square.data(), maximum.data(), 0, 2, {}, 0.1, 0);
  EXPECT_TRUE(std::isnan(maximum[0]));
  EXPECT_TRUE(std::isnan(maximum[1]));
  EXPECT_TRUE(std::isnan(parameter[0]));
  EXPECT_TRUE(std::isnan(parameter[1]));
}

#if defined(__x86_64__)
template <typename Element>
void check_same_loops(const UpdateLoops<Element>& loops, const UpdateLoops<Element>& reference) {
  const Inputs<Element> inputs;
  const auto count = static_cast<std::int64_t>(inputs.start.size());
  const std::vector<Element> gradient = inputs.gradient(0);
  for (const bool first : {true, false}) {
    for (const bool nesterov : {true, false}) {
      const SgdScalars<Element> scalars = {1,     Element(0.1), Element(0.9), Element(0.7), Element(-0.01),
                                           first, nesterov};
      std::vector<Element> parameter[2] = {inputs.start, inputs.start};
      std::vector<Element> buffer[2] = {inputs.gradient(1), inputs.gradient(1)};
      reference.sgd(parameter[0].data(), gradient.data(), buffer[0].data(), count, scalars);
      loops.sgd(parameter[1].data(), gradient.data(), buffer[1].data(), count, scalars);
      expect_same_bits(parameter[1], parameter[0], "sgd parameter");
      expect_same_bits(buffer[1], buffer[0], "sgd buffer");
    }
  }
  for (const bool decoupled : {true, false}) {
    const AdamScalars<Element> scalars = {1,
                                          Element(decoupled ? 0 : 0.1),
                                          Element(0.99),
                                          Element(0.1),
                                          Element(0.99),
                                          Element(0.01),
                                          Element(0.2),
                                          Element(1e-8),
                                          Element(-0.01),
                                          decoupled};
    std::vector<Element> parameter[2] = {inputs.start, inputs.start};
    std::vector<Element> average[2] = {inputs.gradient(1), inputs.gradient(1)};
    std::vector<Element> square[2] = {inputs.start, inputs.start};
    for (Element& value : square[0]) value = std::abs(value);
    square[1] = square[0];
    std::vector<Element> maximum[2] = {inputs.gradient(2), inputs.gradient(2)};
    reference.adam(parameter[0].data(), gradient.data(), average[0].data(), square[0].data(), maximum[0].data(), count,
                   scalars);
    loops.adam(parameter[1].data(), gradient.data(), average[1].data(), square[1].data(), maximum[1].data(), count,
               scalars);
    expect_same_bits(parameter[1], parameter[0], "adam parameter");
    expect_same_bits(average[1], average[0], "exp_avg");
    expect_same_bits(square[1], square[0], "exp_avg_sq");
    expect_same_bits(maximum[1], maximum[0], "max_exp_avg_sq");
  }
}

TEST(Updates, AreTheSameOnEveryInstructionSet) {
  if (best_instruction_set() == InstructionSet::kPortable)
    GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
  check_same_loops(avx2::kFloatLoops, portable::kFloatLoops);
  check_same_loops(avx2::kDoubleLoops, portable::kDoubleLoops);
  if (best_instruction_set() != InstructionSet::kAvx512) return;
  check_same_loops(avx512::kFloatLoops, portable::kFloatLoops);
  check_same_loops(avx512::kDoubleLoops, portable::kDoubleLoops);
}
#endif

TEST(UpdatesDeathTest, MomentumNeedsItsBuffer) {
  float parameter = 1;
  const float gradient = 1;
  EXPECT_DEATH(sgd_update(&parameter, &gradient, nullptr, 0, 1, {.momentum = 0.9}, 0.1, 0), "momentum buffer");
}

}  // namespace
}  // namespace tesser::optimizer
