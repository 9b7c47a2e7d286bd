#include "runtime/rectangle.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::runtime {
namespace {

Rectangle random_part(std::mt19937& random, const Rectangle& of) {
  Rectangle part = of;
  for (std::size_t i = 0; i < of.size.size(); ++i) {
    const auto begin = static_cast<std::int64_t>(random() % static_cast<unsigned>(of.size[i] + 1));
    part.begin[i] = of.begin[i] + begin;
    part.size[i] = static_cast<std::int64_t>(random() % static_cast<unsigned>(of.size[i] - begin + 1));
  }
  return part;
}

// The number of an element in a tensor of `shape`.
std::int64_t number_of(const Shape& at, const Shape& shape) {
  std::int64_t number = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    number = number * shape[i] + at[i];
  }
  return number;
}

// Calls `visit` with every place in the rectangle, row-major.
template <typename Visit>
void for_each(const Rectangle& rectangle, const Visit& visit) {
  const std::int64_t count = element_count(rectangle.size);
  for (std::int64_t i = 0; i < count; ++i) {
    Shape at = rectangle.begin;
    std::int64_t rest = i;
    for (std::size_t k = at.size(); k-- > 0;) {
      at[k] += rest % rectangle.size[k];
      rest /= rectangle.size[k];
    }
    visit(at, i);
  }
}

TEST(RectangleTest, CopiesWhatIsAskedForAndNothingElse) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    Shape shape;
    for (std::size_t rank = random() % 5; shape.size() < rank;) {
      shape.push_back(1 + random() % 4);
    }
    const Rectangle source_place = random_part(random, whole_rectangle(shape));
    const Rectangle target_place = random_part(random, whole_rectangle(shape));
    const Rectangle common = intersection(source_place, target_place);
    const Rectangle region = random_part(random, common);
    std::vector<std::int32_t> source(static_cast<std::size_t>(element_count(source_place.size)));
    for_each(source_place, [&](const Shape& at, std::int64_t i) {
      source[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(number_of(at, shape));
    });
    std::vector<std::int32_t> target(static_cast<std::size_t>(element_count(target_place.size)), -1);
    copy_rectangle(4, region, reinterpret_cast<const std::byte*>(source.data()), source_place,
                   reinterpret_cast<std::byte*>(target.data()), target_place);
    for_each(target_place, [&](const Shape& at, std::int64_t i) {
      const Rectangle one{at, Shape(at.size(), 1)};
      const bool copied = element_count(region.size) > 0 && element_count(intersection(one, region).size) == 1;
      EXPECT_EQ(target[static_cast<std::size_t>(i)], copied ? number_of(at, shape) : -1);
    });
  }
}

TEST(RectangleTest, LiesInside) {
  EXPECT_TRUE(lies_inside({{}, {}}, {}));
  EXPECT_TRUE(lies_inside({{1, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(lies_inside({{2, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(lies_inside({{-1, 0}, {2, 4}}, {3, 4}));
  EXPECT_FALSE(lies_inside({{0}, {3}}, {3, 4}));
  EXPECT_FALSE(lies_inside({{1}, {INT64_MAX}}, {3}));
  EXPECT_EQ(rectangle_text({{0, 8}, {4, 8}}), "0:4,8:16");
}

}  // namespace
}  // namespace tesser::runtime
