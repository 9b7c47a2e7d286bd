#include "platform/learner/event_file.h"

#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

std::string record_of(const std::string& data) {
  std::string bytes;
  append_tf_record(bytes, data);
  return bytes;
}

// A record as TensorFlow writes it: the first one of every event file of torch.utils.tensorboard 2.13 (wall_time 1.5).
TEST(TfRecord, IsAsOthersWriteIt) {
  const unsigned char bytes[] = {0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22};
  const std::string record = record_of(version_event_bytes(1.5));
  EXPECT_EQ(record.substr(0, 12), std::string(reinterpret_cast<const char*>(bytes), 12));
  EXPECT_EQ(record.size(), 12U + 24U + 4U);
}

TEST(TfRecord, EveryCutAndEveryFlippedBit) {
  const std::string record = record_of("some data");
  ASSERT_EQ(next_tf_record(record).outcome, TfRecord::Outcome::kWhole);
  EXPECT_EQ(next_tf_record(record + "more").data, "some data");
  EXPECT_EQ(next_tf_record(record + "more").bytes, record.size());
  for (std::size_t length = 0; length < record.size(); ++length) {
    EXPECT_EQ(next_tf_record(record.substr(0, length)).outcome, TfRecord::Outcome::kCutShort) << length;
  }
  for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
    std::string other = record;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(next_tf_record(other).outcome, TfRecord::Outcome::kDamaged) << bit;
  }
}

TEST(Event, ReadsWhatItWrites) {
  const ScalarEvent event{1795732832.25, 12'345'678'901, {{"loss", 0.25}, {"a/b é", -1e30}}};
  const auto read = parse_event(event_bytes(event));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->wall_time, event.wall_time);
  EXPECT_EQ(read->step, event.step);
  ASSERT_EQ(read->scalars.size(), 2U);
  EXPECT_EQ(read->scalars[0], event.scalars[0]);
  EXPECT_FLOAT_EQ(read->scalars[1].second, -1e30);
  EXPECT_TRUE(parse_event(version_event_bytes(3))->scalars.empty());
}

// Scalars as TensorFlow 2 writes them: tensors.
TEST(Event, ScalarsInTensors) {
  const auto field = [](int number, const std::string& bytes) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
  };
  const auto event_with = [&](const std::string& tensor) {
    return field(5, field(1, field(1, "x") + field(8, tensor)));
  };
  const float number = 2.5F;
  const double wide = -7.25;
  std::string four(4, '\0');
  std::string eight(8, '\0');
  std::memcpy(four.data(), &number, 4);
  std::memcpy(eight.data(), &wide, 8);
  const std::string is_float{0x08, 1};
  const std::string is_double{0x08, 2};
  for (const std::string& tensor : {is_float + field(4, four), is_float + field(5, four), is_float + "\x2d" + four}) {
    const auto event = parse_event(event_with(tensor));
    ASSERT_TRUE(event && event->scalars.size() == 1);
    EXPECT_EQ(event->scalars[0].second, 2.5);
  }
  for (const std::string& tensor : {is_double + field(4, eight), is_double + field(6, eight)}) {
    const auto event = parse_event(event_with(tensor));
    ASSERT_TRUE(event && event->scalars.size() == 1);
    EXPECT_EQ(event->scalars[0].second, -7.25);
  }
  // An image, a vector and a string are none.
  EXPECT_TRUE(parse_event(event_with(is_float + field(4, four + four)))->scalars.empty());
  EXPECT_TRUE(parse_event(event_with(std::string{0x08, 7} + field(8, "text")))->scalars.empty());
  EXPECT_TRUE(parse_event(field(5, field(1, field(1, "x") + field(4, "image"))))->scalars.empty());
}

TEST(Event, RefusesWhatIsNone) {
  for (const std::string& bytes : {std::string("\x0a\xff"), std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
                                   std::string("\x09\x01"), std::string("\x0b")}) {
    EXPECT_FALSE(parse_event(bytes));
  }
}

}  // namespace
}  // namespace tesser::platform
