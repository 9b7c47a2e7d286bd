// Any bytes as an event file, as its records' data and as a line of metrics: an error, or what lies inside them and is
// written again alike.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "platform/learner/event_file.h"
#include "platform/learner/metrics_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tesser;
  using namespace tesser::platform;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string_view rest = bytes;
  while (true) {
    const TfRecord record = next_tf_record(rest);
    if (record.outcome != TfRecord::Outcome::kWhole) {
      break;
    }
    TESSER_CHECK(record.bytes <= rest.size() && record.data.size() < record.bytes, std::to_string(record.bytes));
    std::string again;
    append_tf_record(again, record.data);
    TESSER_CHECK(again == rest.substr(0, record.bytes), "another record");
    parse_event(record.data);
    rest.remove_prefix(record.bytes);
  }
  if (const auto event = parse_event(bytes)) {
    for (const auto& [tag, value] : event->scalars) {
      TESSER_CHECK(!tag.empty() && tag.size() < size, tag);
    }
    const auto again = parse_event(event_bytes(*event));
    TESSER_CHECK(again && again->step == event->step && again->scalars.size() == event->scalars.size(),
                 "another event");
  }
  if (const auto line = parse_metric_line(bytes)) {
    std::string again;
    append_metric_line(again, *line);
    again.pop_back();
    TESSER_CHECK(parse_metric_line(again).has_value(), again);
  }
  return 0;
}
