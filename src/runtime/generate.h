// Continues a text with a language model's forward program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/executor.h"

namespace tesser::runtime {

struct GenerateOptions {
  std::int64_t length = 200;  // tokens to generate
  double temperature = 1.0;   // 0 takes the likeliest token
  std::int64_t seed = 0;
};

// What a forward program must look like to generate from.
struct LanguageModel {
  std::string batch_value;   // int64[B, S] or int32[B, S], the program's only batch value
  std::int64_t context = 0;  // tokens it sees at most: S, or the positions of its logits where those are fewer
  std::int64_t vocabulary = 0;
};

// kInvalidInput unless the program takes one integer batch value [B, S] and has a floating result `logits` of shape [B,
// L, V] (or [B, V], for the last position).
Result<LanguageModel> language_model(const graph::Program& forward);

// Generates tokens after `prompt` (not empty) and hands each to `emit`, until `length` are made or emit returns false.
// The window holds the last tokens, as many as fit, from place 0 on, its rest filled with token 0: a causal model's
// logits at a place do not depend on what follows. Models with logits [B, V] need a prompt that fills their window.
// Token number t (from 0) is drawn with the number word t mod 4 of block t div 4 of the Philox stream of `seed` with id
// 0xFFFFFFFE and step 0, taken as in docs/formats/operators.md: the first token whose cumulative probability exceeds
// it.
Result<void> generate(Executor& forward, std::vector<std::int64_t> prompt, const GenerateOptions& options,
                      const std::function<bool(std::int64_t)>& emit);

}  // namespace tesser::runtime
