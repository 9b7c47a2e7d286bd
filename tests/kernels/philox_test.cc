#include "kernels/philox.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "golden_numbers.h"
#include "kernels/philox_loops.h"

namespace tesser::kernels {
namespace {

const test::GoldenNumbers& golden() {
  static const test::GoldenNumbers numbers("tests/kernels/golden.txt");
  return numbers;
}

struct Stream {
  std::uint64_t seed;
  std::int64_t step;
  std::int64_t id;
};

// As in make_golden.py: zeros; small numbers; a negative seed and a step beyond 32 bits.
const Stream kStreams[] = {{0, 0, 0}, {42, 7, 3}, {static_cast<std::uint64_t>(-6148914691236517206), 4294967299, 2}};
constexpr std::int64_t kCount = 301;

// Computes a whole tensor in uneven pieces, so that pieces begin and end inside blocks and pairs.
template <typename Element, typename Compute>
std::vector<Element> in_pieces(Compute compute) {
  std::vector<Element> result(kCount);
  for (std::int64_t begin = 0, length = 1; begin < kCount; begin += length++) {
    compute(result.data() + begin, begin, std::min(begin + length, kCount));
  }
  return result;
}

template <typename Element>
void expect_golden(const std::vector<Element>& found, int stream, const std::string& name) {
  const std::vector<Element> expected = golden().bits<Element>(std::to_string(stream) + "/" + name);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::memcmp(&found[i], &expected[i], sizeof(Element)), 0)
        << name << " of stream " << stream << ", element " << i << ": " << found[i] << ", expected " << expected[i];
  }
}

template <typename Element>
std::vector<Element> ramp() {
  std::vector<Element> values(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i + 1) / 7.0F;
  return values;
}

template <typename Element>
std::vector<Element> probabilities() {
  std::vector<Element> values(kCount);
  for (std::int64_t i = 0; i < kCount; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<float>(i) / static_cast<float>(kCount);
  return values;
}

// The vectors of the Random123 paper's distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  std::uint32_t words[4];
  philox_words(words, 0, 1, 0, 0, 0);
  EXPECT_EQ(std::vector<std::uint32_t>(words, words + 4),
            (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  philox_words(words, ~std::uint64_t{0}, 1, ~std::uint64_t{0}, 0xffffffff, 0xffffffff);
  EXPECT_EQ(std::vector<std::uint32_t>(words, words + 4),
            (std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  philox_words(words, 0x85a308d3243f6a88, 1, 0x299f31d0a4093822, 0x03707344, 0x13198a2e);
  EXPECT_EQ(std::vector<std::uint32_t>(words, words + 4),
            (std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Many blocks at once, across the carry of the block number into its upper word, equal single blocks.
TEST(Philox, BlocksInAnyNumberAreTheSame) {
  const std::uint64_t first = (std::uint64_t{1} << 32) - 17;
  std::vector<std::uint32_t> many(4 * 77);
  philox_words(many.data(), first, 77, 99, 5, 1);
  for (std::uint64_t block = 0; block < 77; ++block) {
    std::uint32_t one[4];
    philox_words(one, first + block, 1, 99, 5, 1);
    EXPECT_EQ(std::memcmp(one, many.data() + 4 * block, sizeof one), 0) << block;
  }
}

TEST(RandomOperators, EqualThePythonReferenceBitForBit) {
  const std::vector<float> x = ramp<float>();
  const std::vector<double> x_double = ramp<double>();
  const std::vector<float> p = probabilities<float>();
  const std::vector<double> p_double = probabilities<double>();
  for (int s = 0; s < 3; ++s) {
    const auto [seed, step, id] = kStreams[s];
    expect_golden(in_pieces<float>([&](float* out, std::int64_t b, std::int64_t e) {
                    dropout(&x[b], out, b, e, 0.3, seed, step, id);
                  }),
                  s, "dropout");
    expect_golden(in_pieces<double>([&](double* out, std::int64_t b, std::int64_t e) {
                    dropout(&x_double[b], out, b, e, 0.3, seed, step, id);
                  }),
                  s, "dropout_double");
    expect_golden(in_pieces<float>([&](float* out, std::int64_t b, std::int64_t e) {
                    dropout_channels(&x[b], out, b, e, 7, 0.5, seed, step, id);
                  }),
                  s, "dropout_channels");
    expect_golden(in_pieces<float>([&](float* out, std::int64_t b, std::int64_t e) {
                    uniform(out, b, e, -0.3, 2.1, seed, step, id);
                  }),
                  s, "uniform");
    expect_golden(in_pieces<float>(
                      [&](float* out, std::int64_t b, std::int64_t e) { normal(out, b, e, 0.5, 2.0, seed, step, id); }),
                  s, "normal");
    expect_golden(in_pieces<float>(
                      [&](float* out, std::int64_t b, std::int64_t e) { bernoulli(&p[b], out, b, e, seed, step, id); }),
                  s, "bernoulli");
    expect_golden(in_pieces<double>([&](double* out, std::int64_t b, std::int64_t e) {
                    bernoulli(&p_double[b], out, b, e, seed, step, id);
                  }),
                  s, "bernoulli_double");
    expect_golden(in_pieces<std::int64_t>([&](std::int64_t* out, std::int64_t b, std::int64_t e) {
                    randint(out, b, e, -5, std::int64_t{1} << 31, seed, step, id);
                  }),
                  s, "randint");
  }
}

TEST(RandomOperators, WholeTensorEqualsItsPieces) {
  std::vector<float> x(10007, 1.0F);
  std::vector<float> whole(x.size());
  std::vector<float> pieces(x.size());
  dropout(x.data(), whole.data(), 0, 10007, 0.4, 1, 2, 3);
  dropout(x.data(), pieces.data(), 0, 5002, 0.4, 1, 2, 3);
  dropout(x.data() + 5002, pieces.data() + 5002, 5002, 10007, 0.4, 1, 2, 3);
  EXPECT_EQ(whole, pieces);
  dropout(x.data(), x.data(), 0, 10007, 0.4, 1, 2, 3);  // in place
  EXPECT_EQ(x, whole);
}

TEST(Dropout, ProbabilitiesAtTheEnds) {
  std::vector<float> x(1000, std::numeric_limits<float>::infinity());
  std::vector<float> result(1000, -1.0F);
  dropout(x.data(), result.data(), 0, 1000, 1.0, 1, 2, 3);
  EXPECT_EQ(result, std::vector<float>(1000, 0.0F));
  std::vector<float> all(1000, -1.0F);
  dropout_channels(x.data(), all.data(), 0, 1000, 10, 1.0, 1, 2, 3);
  EXPECT_EQ(all, std::vector<float>(1000, 0.0F));
  dropout(x.data(), result.data(), 0, 1000, 0.0, 1, 2, 3);
  EXPECT_EQ(result, x);
  // A dropped infinity is 0.
  dropout(x.data(), result.data(), 0, 1000, 0.5, 1, 2, 3);
  for (const float value : result) EXPECT_TRUE(value == 0.0F || std::isinf(value));
  // Above 1 - 2^-24 nothing is kept.
  dropout(x.data(), result.data(), 0, 1000, 1.0 - 0x1p-30, 1, 2, 3);
  EXPECT_EQ(result, std::vector<float>(1000, 0.0F));
}

TEST(RandomOperators, EmptyRanges) {
  float untouched = 5;
  dropout(&untouched, &untouched, 7, 7, 0.5, 1, 2, 3);
  dropout_channels(&untouched, &untouched, 7, 7, 3, 0.5, 1, 2, 3);
  normal(&untouched, 7, 7, 0, 1, 1, 2, 3);
  uniform(&untouched, 8, 8, 0, 1, 1, 2, 3);
  EXPECT_EQ(untouched, 5);
}

TEST(RandomOperators, Moments) {
  constexpr int kMany = 1 << 20;
  std::vector<float> values(kMany);
  const auto moments = [&] {
    double sum = 0;
    double squares = 0;
    for (const float value : values) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const double mean = sum / kMany;
    return std::pair{mean, squares / kMany - mean * mean};
  };
  normal(values.data(), 0, kMany, 1.0, 2.0, 11, 0, 0);
  EXPECT_NEAR(moments().first, 1.0, 0.01);
  EXPECT_NEAR(moments().second, 4.0, 0.03);
  uniform(values.data(), 0, kMany, 0.0, 1.0, 11, 0, 1);
  EXPECT_NEAR(moments().first, 0.5, 0.002);
  EXPECT_NEAR(moments().second, 1.0 / 12, 0.001);
}

#if defined(__x86_64__)
void check_same_loops(const PhiloxLoops& loops, const PhiloxLoops& reference) {
  constexpr std::int64_t kBlocks = 205;
  std::vector<std::uint32_t> expected(4 * kBlocks);
  std::vector<std::uint32_t> found(4 * kBlocks);
  const PhiloxStream stream = {{123, 456}, 7, 89};
  reference.words(expected.data(), (std::uint64_t{1} << 32) - 100, kBlocks, stream);
  loops.words(found.data(), (std::uint64_t{1} << 32) - 100, kBlocks, stream);
  EXPECT_EQ(found, expected);
  std::vector<float> x(4 * kBlocks, 3.0F);
  std::vector<float> first(x.size());
  std::vector<float> second(x.size());
  const auto count = static_cast<std::int64_t>(x.size());
  reference.dropout_float(x.data(), first.data(), expected.data(), count, 5000000, 1.7F);
  loops.dropout_float(x.data(), second.data(), expected.data(), count, 5000000, 1.7F);
  EXPECT_EQ(first, second);
  reference.uniform(first.data(), expected.data(), count, -0.3F, 2.7F);
  loops.uniform(second.data(), expected.data(), count, -0.3F, 2.7F);
  EXPECT_EQ(first, second);
}

TEST(RandomOperators, AreTheSameOnEveryInstructionSet) {
  if (best_instruction_set() == InstructionSet::kPortable)
    GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512";
  check_same_loops(avx2::kPhiloxLoops, portable::kPhiloxLoops);
  if (best_instruction_set() == InstructionSet::kAvx512) check_same_loops(avx512::kPhiloxLoops, portable::kPhiloxLoops);
}
#endif

// A part of a tensor and the elements that it has of the whole.
struct PartCase {
  std::vector<std::int64_t> size, whole, begin;
  std::vector<std::int64_t> elements() const {
    std::vector<std::int64_t> found{0};
    for (std::size_t d = 0; d < size.size(); ++d) {
      std::vector<std::int64_t> longer;
      for (const std::int64_t prefix : found) {
        for (std::int64_t i = begin[d]; i < begin[d] + size[d]; ++i) longer.push_back(prefix * whole[d] + i);
      }
      found = std::move(longer);
    }
    return found;
  }
};

// Rows, wide and narrow columns, single columns, runs across blocks, dimensions of 1, nothing, scalars, long runs.
const PartCase kParts[] = {{{3, 50}, {9, 50}, {4, 0}},
                           {{9, 20}, {9, 50}, {0, 13}},
                           {{43, 1}, {43, 7}, {0, 3}},
                           {{60, 1}, {60, 2}, {0, 1}},
                           {{5, 3, 1, 4}, {6, 3, 2, 11}, {1, 0, 1, 6}},
                           {{2, 3, 5}, {2, 4, 5}, {0, 1, 0}},
                           {{0, 4}, {5, 4}, {5, 0}},
                           {{}, {}, {}},
                           {{2, 300}, {3, 701}, {1, 401}}};

TEST(TensorPart, RunsAreItsElements) {
  for (const PartCase& each : kParts) {
    const TensorPart part(each.size, each.whole, each.begin);
    const std::vector<std::int64_t> expected = each.elements();
    ASSERT_EQ(part.elements(), static_cast<std::int64_t>(expected.size()));
    for (const std::int64_t first : {std::int64_t{0}, part.elements() / 3}) {
      std::vector<std::int64_t> found(expected.begin(), expected.begin() + first);
      part.for_runs(first, part.elements(), [&](std::int64_t at, std::int64_t element, std::int64_t count) {
        EXPECT_EQ(at, static_cast<std::int64_t>(found.size()));
        for (std::int64_t i = 0; i < count; ++i) found.push_back(element + i);
      });
      EXPECT_EQ(found, expected);
    }
  }
}

// What `whole(out, elements)` makes at the elements of each part equals `part(out, part, first, last)`, called in two
// pieces.
template <typename Element, typename Whole, typename Part>
void expect_parts_of_whole(const Whole& whole, const Part& fill) {
  for (const PartCase& each : kParts) {
    std::int64_t count = 1;
    for (const std::int64_t size : each.whole) count *= size;
    std::vector<Element> all(static_cast<std::size_t>(count));
    whole(all.data(), count);
    const TensorPart part(each.size, each.whole, each.begin);
    std::vector<Element> found(static_cast<std::size_t>(part.elements()));
    const std::int64_t middle = part.elements() / 3;
    fill(found.data(), part, 0, middle, each);
    fill(found.data() + middle, part, middle, part.elements(), each);
    std::vector<Element> expected;
    for (const std::int64_t element : each.elements()) expected.push_back(all[static_cast<std::size_t>(element)]);
    EXPECT_EQ(found, expected);
  }
}

std::vector<float> values_at(const PartCase& part, std::int64_t first, std::int64_t last, float scale) {
  std::vector<float> values;
  const std::vector<std::int64_t> elements = part.elements();
  for (std::int64_t i = first; i < last; ++i)
    values.push_back(static_cast<float>(elements[static_cast<std::size_t>(i)] + 1) * scale);
  return values;
}

std::vector<float> values_of(std::int64_t count, float scale) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i + 1) * scale);
  return values;
}

TEST(RandomOperators, PartsHaveTheNumbersOfTheWhole) {
  constexpr std::uint64_t kSeed = 77;
  expect_parts_of_whole<float>([](float* out, std::int64_t n) { uniform(out, 0, n, -1, 3, kSeed, 5, 2); },
                               [](float* out, const TensorPart& part, std::int64_t first, std::int64_t last,
                                  const PartCase&) { uniform(out, part, first, last, -1, 3, kSeed, 5, 2); });
  expect_parts_of_whole<float>([](float* out, std::int64_t n) { normal(out, 0, n, -1, 3, kSeed, 5, 2); },
                               [](float* out, const TensorPart& part, std::int64_t first, std::int64_t last,
                                  const PartCase&) { normal(out, part, first, last, -1, 3, kSeed, 5, 2); });
  expect_parts_of_whole<std::int64_t>(
      [](std::int64_t* out, std::int64_t n) { randint(out, 0, n, -9, 1000, kSeed, 5, 2); },
      [](std::int64_t* out, const TensorPart& part, std::int64_t first, std::int64_t last, const PartCase&) {
        randint(out, part, first, last, -9, 1000, kSeed, 5, 2);
      });
  expect_parts_of_whole<float>(
      [](float* out, std::int64_t n) { dropout(values_of(n, 1).data(), out, 0, n, 0.4, kSeed, 5, 2); },
      [](float* out, const TensorPart& part, std::int64_t first, std::int64_t last, const PartCase& each) {
        dropout(values_at(each, first, last, 1).data(), out, part, first, last, 0.4, kSeed, 5, 2);
      });
  expect_parts_of_whole<float>(
      [](float* out, std::int64_t n) { bernoulli(values_of(n, 0.002F).data(), out, 0, n, kSeed, 5, 2); },
      [](float* out, const TensorPart& part, std::int64_t first, std::int64_t last, const PartCase& each) {
        bernoulli(values_at(each, first, last, 0.002F).data(), out, part, first, last, kSeed, 5, 2);
      });
}

TEST(RandomOperators, PartsOfChannelsHaveTheMaskOfTheWhole) {
  const TensorPart part({2, 3}, {4, 5}, {1, 2});
  std::vector<float> ones(4 * 5 * 6, 1), all(ones.size()), found(2 * 3 * 6);
  dropout_channels(ones.data(), all.data(), 0, 120, 6, 0.5, 8, 1, 2);
  dropout_channels(ones.data(), found.data(), part, 0, 4, 6, 0.5, 8, 1, 2);
  dropout_channels(ones.data(), found.data() + 4 * 6, part, 4, 6, 6, 0.5, 8, 1, 2);
  std::vector<float> expected;
  for (const std::int64_t row : {1, 2})
    expected.insert(expected.end(), &all[(row * 5 + 2) * 6], &all[(row * 5 + 5) * 6]);
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace tesser::kernels
