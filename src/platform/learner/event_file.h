// TensorBoard's event files: records (TFRecord) with an Event of Protocol Buffers each, of which scalars are read and
// written.
//
// Written by hand: of the format's three messages seven fields matter here, and they have not changed since 2015; the
// alternative is the protobuf compiler, its library and TensorFlow's message definitions in every build.
//
// Values; any thread. No bytes make a reader read beyond them or allocate more than they are long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tesser::platform {

struct TfRecord {
  enum class Outcome : std::uint8_t {
    kWhole,
    kCutShort,  // the rest has not been written yet
    kDamaged,   // a checksum is wrong: nothing behind it can be read
  };
  Outcome outcome = Outcome::kCutShort;
  std::string_view data;
  std::size_t bytes = 0;  // of the record with its frame
};
// The record at the beginning of `bytes`. One that says it is longer than 64 MiB is damaged.
TfRecord next_tf_record(std::string_view bytes);
void append_tf_record(std::string& to, std::string_view data);

struct ScalarEvent {
  double wall_time = 0;  // seconds since 1970
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> scalars;  // tag and value
};
// Values that are no scalars (histograms, images, text) are passed over; none when the bytes are no Event.
std::optional<ScalarEvent> parse_event(std::string_view bytes);
std::string event_bytes(const ScalarEvent& event);
// What an event file begins with: "brain.Event:2".
std::string version_event_bytes(double wall_time);

}  // namespace tesser::platform
