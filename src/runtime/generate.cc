#include "runtime/generate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "kernels/philox.h"
#include "runtime/data.h"
#include "runtime/element.h"

namespace tesser::runtime {
namespace {

// The stream's place among those of the random operators, which count from 0.
constexpr std::int64_t kSamplingStream = 0xFFFFFFFE;

const graph::Value* find_logits(const graph::Program& program) {
  for (const graph::NamedOutput& output : program.results) {
    if (output.name == "logits") {
      return &program.value(output.value);
    }
  }
  return nullptr;
}

// Index of the token to take. `uniform` is in [0, 1).
std::int64_t draw(const std::vector<double>& logits, double temperature, double uniform) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) {
    return likeliest - logits.begin();
  }
  std::vector<double> cumulative(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp((logits[i] - *likeliest) / temperature);
    cumulative[i] = sum;
  }
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum);
  return std::min<std::int64_t>(chosen - cumulative.begin(), static_cast<std::int64_t>(logits.size()) - 1);
}

void put_token(const MutableTensorView& window, std::int64_t index, std::int64_t token) {
  if (window.dtype == DType::kInt64) {
    static_cast<std::int64_t*>(window.data)[index] = token;
  } else {
    static_cast<std::int32_t*>(window.data)[index] = static_cast<std::int32_t>(token);
  }
}

}  // namespace

Result<LanguageModel> language_model(const graph::Program& forward) {
  const std::vector<BatchValue> batch = batch_values(forward);
  const bool takes_tokens = batch.size() == 1 && batch[0].shape.size() == 2 &&
                            (batch[0].dtype == DType::kInt64 || batch[0].dtype == DType::kInt32) &&
                            batch[0].shape[0] >= 1 && batch[0].shape[1] >= 1;
  if (!takes_tokens) {
    return invalid_input(
        fmt::format("the forward program '{}' is no language model: it takes {} batch values, expected one, int64[B, "
                    "S]; in the step file give "
                    "tesser.Step a forward_batch of tokens alone",
                    forward.name, batch.size()));
  }
  const graph::Value* logits = find_logits(forward);
  const Shape& tokens = batch[0].shape;
  const bool fits = logits != nullptr && is_floating(logits->dtype) &&
                    (logits->shape.size() == 2 || logits->shape.size() == 3) && logits->shape[0] == tokens[0] &&
                    std::all_of(logits->shape.begin(), logits->shape.end(), [](std::int64_t d) { return d >= 1; });
  if (!fits) {
    return invalid_input(fmt::format(
        "the forward program '{}' is no language model: {}, expected a floating [{}, S, V] or [{}, V]", forward.name,
        logits == nullptr ? "it has no result 'logits'"
                          : "its result 'logits' is " + type_text(logits->dtype, logits->shape),
        tokens[0], tokens[0]));
  }
  const bool every_position = logits->shape.size() == 3;
  return LanguageModel{batch[0].name, every_position ? std::min(tokens[1], logits->shape[1]) : tokens[1],
                       logits->shape.back()};
}

Result<void> generate(Executor& forward, std::vector<std::int64_t> tokens, const GenerateOptions& options,
                      const std::function<bool(std::int64_t)>& emit) {
  TESSER_ASSIGN_OR_RETURN(const LanguageModel model, language_model(forward.program()));
  const graph::Value& logits = *find_logits(forward.program());
  const bool every_position = logits.shape.size() == 3;
  if (tokens.empty() || !(options.temperature >= 0) || options.length < 0) {
    return invalid_input("the prompt must not be empty, and temperature and length not negative");
  }
  if (!every_position && static_cast<std::int64_t>(tokens.size()) < model.context) {
    return invalid_input(
        fmt::format("the forward program '{}' gives logits for its last position only, so the prompt must have at "
                    "least {} tokens; it has {}",
                    forward.program().name, model.context, tokens.size()));
  }
  const MutableTensorView window = forward.batch(model.batch_value);
  std::vector<std::byte> memory(static_cast<std::size_t>(logits.bytes()));
  std::vector<double> row(static_cast<std::size_t>(model.vocabulary));
  std::array<std::uint32_t, 4> words{};
  for (std::int64_t t = 0; t < options.length; ++t) {
    const std::int64_t used = std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()), model.context);
    for (std::int64_t i = 0; i < element_count(window.shape); ++i) {
      const std::int64_t place = i % window.shape[1];
      put_token(window, i, place < used ? tokens[tokens.size() - static_cast<std::size_t>(used - place)] : 0);
    }
    TESSER_RETURN_IF_ERROR(forward.run(0, 0));
    TESSER_RETURN_IF_ERROR(forward.read_result("logits", {logits.dtype, logits.shape, memory.data()}));
    const std::int64_t first = every_position ? (used - 1) * model.vocabulary : 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = element_as_double(logits.dtype, memory.data(), static_cast<std::size_t>(first) + i);
      if (std::isnan(row[i])) {
        return failed(
            fmt::format("the logits for token {} are not numbers; the weights are those of a run that failed", t));
      }
    }
    if (t % 4 == 0) {
      kernels::philox_words(words.data(), static_cast<std::uint64_t>(t / 4), 1,
                            static_cast<std::uint64_t>(options.seed), 0, kSamplingStream);
    }
    const std::int64_t token = draw(row, options.temperature, (words[static_cast<std::size_t>(t % 4)] >> 8) * 0x1p-24);
    tokens.push_back(token);
    if (!emit(token)) {
      break;
    }
  }
  return {};
}

}  // namespace tesser::runtime
