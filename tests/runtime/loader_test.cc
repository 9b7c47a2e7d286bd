#include "runtime/loader.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/data_order.h"
#include "temporary_directory.h"

namespace tesser::runtime {
namespace {

using ::testing::ElementsAre;

// A data set of ten samples whose only value is their number, in batches of four.
class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() {
    test::write_safetensors<std::int64_t>(directory_ / "x.safetensors", "x", DType::kInt64, {10},
                                          {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    auto opened = DataSet::open(directory_.path(), {{"x", DType::kInt64, {4}}});
    EXPECT_TRUE(opened.has_value());
    data_.emplace(std::move(*opened));
  }

  std::pair<DataPosition, std::vector<std::int64_t>> next(Loader& loader) const {
    std::vector<std::int64_t> batch(4);
    const MutableTensorView target{DType::kInt64, {4}, batch.data()};
    const DataPosition position = loader.next({&target, 1});
    return {position, batch};
  }

  test::TemporaryDirectory directory_;
  std::optional<DataSet> data_;
};

TEST_F(LoaderTest, InOrder) {
  Loader loader(*data_, {0, false, {}, {}});
  auto [position, batch] = next(loader);
  EXPECT_EQ(position, (DataPosition{0, 0}));
  EXPECT_THAT(batch, ElementsAre(0, 1, 2, 3));
  std::tie(position, batch) = next(loader);
  EXPECT_THAT(batch, ElementsAre(4, 5, 6, 7));
  std::tie(position, batch) = next(loader);
  EXPECT_EQ(position, (DataPosition{1, 0}));
  EXPECT_THAT(batch, ElementsAre(0, 1, 2, 3));
}

TEST_F(LoaderTest, ShuffledByTheDocumentedOrderFromAnyPosition) {
  for (std::int64_t begin = 0; begin < 6; ++begin) {
    const DataPosition start{begin / 2, begin % 2};
    Loader loader(*data_, {77, true, start, {}});
    for (std::int64_t i = begin; i < 8; ++i) {
      const auto [position, batch] = next(loader);
      EXPECT_EQ(position, (DataPosition{i / 2, i % 2}));
      const auto order = shuffled_order(77, i / 2, 10);
      const auto first = order.begin() + 4 * (i % 2);
      EXPECT_EQ(batch, std::vector<std::int64_t>(first, first + 4));
    }
  }
}

TEST_F(LoaderTest, ReplicasTakeOneBatchAfterTheOther) {
  test::write_safetensors<std::int64_t>(directory_ / "x.safetensors", "x", DType::kInt64, {11},
                                        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const auto data = DataSet::open(directory_.path(), {{"x", DType::kInt64, {2}}});  // five batches
  ASSERT_TRUE(data.has_value());
  for (std::int64_t replica = 0; replica < 2; ++replica) {
    Loader loader(*data, {0, false, {3, 1}, {}, 2, replica});
    for (const auto& [epoch, first] :
         {std::pair(3, 1), std::pair(3, 3), std::pair(4, 0), std::pair(4, 2), std::pair(5, 0)}) {
      std::vector<std::int64_t> batch(2);
      const MutableTensorView target{DType::kInt64, {2}, batch.data()};
      EXPECT_EQ(loader.next({&target, 1}), (DataPosition{epoch, first}));
      EXPECT_EQ(batch[0], 2 * (first + replica));
    }
  }
  EXPECT_EQ(with_batches({3, 3}, *data, 2), (DataPosition{3, 3}));
  EXPECT_EQ(with_batches({3, 4}, *data, 2), (DataPosition{4, 0}));
}

TEST_F(LoaderTest, EndsWithoutBeingAsked) {
  for (int i = 0; i < 50; ++i) {
    Loader loader(*data_, {1, true, {}, {}});
    if (i % 2 == 0) {
      next(loader);
    }
  }
}

// Each worker copies its own part of a batch.
TEST(LoaderPartsTest, GivesTheNamedPartsOfTheSameBatches) {
  const test::TemporaryDirectory directory;
  std::vector<std::int64_t> numbers(60);
  std::iota(numbers.begin(), numbers.end(), 0);
  test::write_safetensors<std::int64_t>(directory / "x.safetensors", "x", DType::kInt64, {10, 2, 3}, numbers);
  test::write_safetensors<std::int64_t>(directory / "y.safetensors", "y", DType::kInt64, {10},
                                        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto data = DataSet::open(directory.path(), {{"x", DType::kInt64, {4, 2, 3}}, {"y", DType::kInt64, {4}}});
  ASSERT_TRUE(data.has_value()) << data.error().message;
  for (const Rectangle& place : {Rectangle{{1, 0, 1}, {3, 2, 2}}, Rectangle{{2, 0, 0}, {2, 2, 3}}}) {
    Loader whole(*data, {5, true, {}, {}});
    Loader part(*data, {5, true, {}, {place, std::nullopt}});
    for (int i = 0; i < 5; ++i) {
      std::vector<std::int64_t> x(24);
      std::vector<std::int64_t> y(4);
      const std::vector<MutableTensorView> targets{{DType::kInt64, {4, 2, 3}, x.data()},
                                                   {DType::kInt64, {4}, y.data()}};
      whole.next(targets);
      std::vector<std::int64_t> expected(static_cast<std::size_t>(element_count(place.size)));
      copy_rectangle(8, place, reinterpret_cast<const std::byte*>(x.data()), whole_rectangle({4, 2, 3}),
                     reinterpret_cast<std::byte*>(expected.data()), place);
      std::vector<std::int64_t> found(expected.size());
      const MutableTensorView target{DType::kInt64, place.size, found.data()};
      part.next({&target, 1});
      EXPECT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace tesser::runtime
