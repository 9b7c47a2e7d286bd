// The random operators of docs/formats/operators.md: counter-based, Philox4x32-10.
//
// Each function computes elements [begin, end) of an operator's whole tensor, in row-major order; pointers point at
// element `begin`. So a tensor may be cut over threads, tiles or workers in any way: an element's number depends on
// seed, step, id and its place in the whole tensor only. `id` is the operator's number among the random operators of
// the step. Results equal python/tesser/operators.py bit for bit, on every instruction set. Input and output may be the
// same array. Any thread; no allocation.
#pragma once

#include <cstdint>

#include "kernels/tensor_part.h"

namespace tesser::kernels {

// result = x / (1 - p) where the element is kept, else 0. p in [0, 1].
void dropout(const float* x, float* result, std::int64_t begin, std::int64_t end, double p, std::uint64_t seed,
             std::int64_t step, std::int64_t id);
void dropout(const double* x, double* result, std::int64_t begin, std::int64_t end, double p, std::uint64_t seed,
             std::int64_t step, std::int64_t id);

// As dropout, with one mask element for each run of `inner` elements: inner is the product of the dimensions behind the
// first `channels`.
void dropout_channels(const float* x, float* result, std::int64_t begin, std::int64_t end, std::int64_t inner, double p,
                      std::uint64_t seed, std::int64_t step, std::int64_t id);
void dropout_channels(const double* x, double* result, std::int64_t begin, std::int64_t end, std::int64_t inner,
                      double p, std::uint64_t seed, std::int64_t step, std::int64_t id);

// low + u * (high - low), in float32.
void uniform(float* result, std::int64_t begin, std::int64_t end, double low, double high, std::uint64_t seed,
             std::int64_t step, std::int64_t id);

// Box-Muller in double, rounded to float32.
void normal(float* result, std::int64_t begin, std::int64_t end, double mean, double std, std::uint64_t seed,
            std::int64_t step, std::int64_t id);

// 1 where u < p, else 0.
void bernoulli(const float* p, float* result, std::int64_t begin, std::int64_t end, std::uint64_t seed,
               std::int64_t step, std::int64_t id);
void bernoulli(const double* p, double* result, std::int64_t begin, std::int64_t end, std::uint64_t seed,
               std::int64_t step, std::int64_t id);

// Integers in [low, high); high - low is 1 to 2^32.
void randint(std::int64_t* result, std::int64_t begin, std::int64_t end, std::int64_t low, std::int64_t high,
             std::uint64_t seed, std::int64_t step, std::int64_t id);

// The same for elements [first, last) of a part of the whole tensor, where pointers point at element `first` of the
// part. Of dropout_channels `part` says which channels of the first `channels` dimensions, and first and last count
// channels.
void dropout(const float* x, float* result, const TensorPart& part, std::int64_t first, std::int64_t last, double p,
             std::uint64_t seed, std::int64_t step, std::int64_t id);
void dropout(const double* x, double* result, const TensorPart& part, std::int64_t first, std::int64_t last, double p,
             std::uint64_t seed, std::int64_t step, std::int64_t id);
void dropout_channels(const float* x, float* result, const TensorPart& part, std::int64_t first, std::int64_t last,
                      std::int64_t inner, double p, std::uint64_t seed, std::int64_t step, std::int64_t id);
void dropout_channels(const double* x, double* result, const TensorPart& part, std::int64_t first, std::int64_t last,
                      std::int64_t inner, double p, std::uint64_t seed, std::int64_t step, std::int64_t id);
void uniform(float* result, const TensorPart& part, std::int64_t first, std::int64_t last, double low, double high,
             std::uint64_t seed, std::int64_t step, std::int64_t id);
void normal(float* result, const TensorPart& part, std::int64_t first, std::int64_t last, double mean, double std,
            std::uint64_t seed, std::int64_t step, std::int64_t id);
void bernoulli(const float* p, float* result, const TensorPart& part, std::int64_t first, std::int64_t last,
               std::uint64_t seed, std::int64_t step, std::int64_t id);
void bernoulli(const double* p, double* result, const TensorPart& part, std::int64_t first, std::int64_t last,
               std::uint64_t seed, std::int64_t step, std::int64_t id);
void randint(std::int64_t* result, const TensorPart& part, std::int64_t first, std::int64_t last, std::int64_t low,
             std::int64_t high, std::uint64_t seed, std::int64_t step, std::int64_t id);

// The generator itself: the words of blocks [first_block, first_block + block_count), four a block.
void philox_words(std::uint32_t* words, std::uint64_t first_block, std::int64_t block_count, std::uint64_t seed,
                  std::int64_t step, std::int64_t id);

}  // namespace tesser::kernels
