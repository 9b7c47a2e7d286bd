// Pages of 2 MiB from the system's pool, which root may fill: the numbers of a job do not depend on them.
#include "hub/huge_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica_run.h"
#include "transport/device.h"

namespace tesser::hub {
namespace {

using ::testing::HasSubstr;
using transport::HugePages;

constexpr std::uint64_t kPage = std::uint64_t{2} << 20;

TEST(HugePagesTest, MemoryIsThereWithOrWithoutThem) {
  const auto device = transport::Device::open({});
  ASSERT_TRUE(device.has_value()) << device.error().message;
  const auto reserved = ReservedPages::add(2 * kPage);
  const auto region = (*device)->allocate(kPage + 1, {.huge_pages = HugePages::kIfAvailable});
  ASSERT_TRUE(region.has_value()) << region.error().message;
  (*region)->data()[kPage] = std::byte{1};
  EXPECT_EQ((*region)->bytes(), kPage + 1);
  EXPECT_EQ((*region)->is_reserved(), reserved.has_value())
      << "reserving: " << (reserved ? "" : reserved.error().message);
  if (!reserved) {
    EXPECT_THAT(reserved.error().message, HasSubstr("What to do"));
  }
  const auto small = (*device)->allocate(kPage - 1, {.huge_pages = HugePages::kIfAvailable});
  ASSERT_TRUE(small.has_value()) << small.error().message;
  EXPECT_FALSE((*small)->is_reserved()) << "most of a page would be wasted";
}

TEST(HugePagesTest, NumbersAreTheSame) {
  RunOptions options;
  options.settings = settings_for(2, {700'000, 3}, {.algorithm = Algorithm::kSgd, .has_momentum = true});
  options.numbers = [](std::int64_t, std::size_t) {
    Hyperparameters numbers;
    numbers.learning_rate = 0.1;
    numbers.momentum = 0.9;
    return numbers;
  };
  const auto reserved = ReservedPages::add(32 * kPage);
  for (const auto& seen : run_replicas(options)) {
    EXPECT_EQ(seen, run_alone(options));
  }
}

TEST(HugePagesTest, NoneForGradientsThatComeByRows) {
  JobSettings settings = settings_for(2, {100});
  EXPECT_EQ(pages_for_gradients(true, settings), HugePages::kIfAvailable);
  EXPECT_EQ(pages_for_gradients(false, settings), HugePages::kNone);
  settings.keys[0].row_elements = 10;
  EXPECT_EQ(pages_for_gradients(true, settings), HugePages::kNone);
}

}  // namespace
}  // namespace tesser::hub
