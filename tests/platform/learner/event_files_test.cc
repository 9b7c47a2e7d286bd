#include "platform/learner/event_files.h"

#include <cmath>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "base/file.h"
#include "platform/learner/event_file.h"

namespace tesser::platform {
namespace {

std::vector<ScalarEvent> events_of(const std::filesystem::path& path) {
  const std::string bytes = read_file(path).value();
  std::string_view rest = bytes;
  std::vector<ScalarEvent> events;
  while (!rest.empty()) {
    const TfRecord record = next_tf_record(rest);
    EXPECT_EQ(record.outcome, TfRecord::Outcome::kWhole);
    events.push_back(parse_event(record.data).value());
    rest.remove_prefix(record.bytes);
  }
  return events;
}

TEST(EventFiles, AFileALearnerThatGrows) {
  const TemporaryDirectory directory;
  EventFiles files(directory.path() / "tb");
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "tb")) << "nothing to write yet";
  ASSERT_TRUE(files.add(0, 1, 1'500'000, "loss", 1.0));
  ASSERT_TRUE(files.add(0, 2, 2'000'000, "loss", 0.5));
  ASSERT_TRUE(files.add(1, 5, 9'000'000, "loss", std::nan("")));
  ASSERT_TRUE(files.flush());
  const auto zero = directory.path() / "tb" / "learner-0" / "events.out.tfevents.0000000001.tesser";
  auto events = events_of(zero);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_TRUE(events[0].scalars.empty());
  EXPECT_EQ(events[1].wall_time, 1.5);
  EXPECT_EQ(events[2].step, 2);
  EXPECT_EQ(events[2].scalars[0].second, 0.5);
  ASSERT_TRUE(files.add(0, 3, 3'000'000, "loss", 0.25));
  ASSERT_TRUE(files.flush());
  EXPECT_EQ(events_of(zero).size(), 4U);
  events = events_of(directory.path() / "tb" / "learner-1" / "events.out.tfevents.0000000009.tesser");
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(std::isnan(events[1].scalars[0].second));
}

TEST(EventFiles, SayWhereTheyCannotBeWritten) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(write_file_atomically(directory.path() / "tb", "a file"));
  EventFiles files(directory.path() / "tb");
  const auto added = files.add(0, 1, 1, "loss", 1.0);
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("learner-0"), std::string::npos) << added.error().message;
}

}  // namespace
}  // namespace tesser::platform
