#include "platform/job/times.h"

#include <string>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

TEST(Times, AsRfc3339WithMicroseconds) {
  EXPECT_EQ(time_text(0), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(time_text(1'795'732'832'123'456), "2026-11-26T22:40:32.123456Z");
  for (const std::int64_t time :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{951'827'696'000'007}, std::int64_t{4'102'444'799'999'999}}) {
    EXPECT_EQ(time_from_text(time_text(time)), time);
  }
  for (const char* wrong : {"", "2026-11-26", "2026-13-26T21:20:32.123456Z", "2026-02-30T21:20:32.123456Z",
                            "2026-11-26T24:20:32.123456Z", "2026-11-26T21:20:32.123456+", "2026-11-26 21:20:32.123456Z",
                            "2026-11-26T21:20:32.123456Zx", "2026-11-26T21:20:-2.123456Z"}) {
    EXPECT_EQ(time_from_text(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace tesser::platform
