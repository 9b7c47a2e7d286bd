#include "cli/event_text.h"

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/json_reader.h"

namespace tesser::cli {
namespace {

const Json::Object kNothing;

// Null is what is not finite.
std::string number_text(const Json* value) {
  if (const double* number = value != nullptr ? value->get<double>() : nullptr) {
    return fmt::format("{:.4g}", *number);
  }
  const std::int64_t* integer = value != nullptr ? value->integer() : nullptr;
  return integer != nullptr ? fmt::format("{}", *integer) : "not finite";
}

// "  accuracy 0.9"
std::string values_text(const Json* values) {
  std::string text;
  for (const auto& [name, value] : values != nullptr && values->object() != nullptr ? *values->object() : kNothing) {
    text += fmt::format("  {} {}", name, number_text(&value));
  }
  return text;
}

std::string step_text(const Json& event, JsonReader& reader) {
  return fmt::format("epoch {}  step {}  loss {}{}", reader.integer("epoch"), reader.integer("step"),
                     number_text(event.find("loss")), values_text(event.find("metrics")));
}

std::string evaluation_text(const Json& event, JsonReader& reader) {
  return fmt::format("epoch {}, step {}: evaluation:{} ({} samples)", reader.integer("epoch"), reader.integer("step"),
                     values_text(event.find("results")), reader.integer("samples"));
}

std::string checkpoint_text(const Json&, JsonReader& reader) {
  return fmt::format("checkpoint {} ({}, {:.1f} s)", reader.string("path"), bytes_text(reader.integer("bytes")),
                     reader.number("seconds"));
}

std::string start_text(const Json& event, JsonReader& reader) {
  const Json* from = event.find("resumed_from");
  return fmt::format("{}: {} samples, batch {}, steps {} to {}, seed {}, predicted peak memory {}{}",
                     reader.string("program"), reader.integer("samples"), reader.integer("batch_size"),
                     reader.integer("step") + 1, reader.integer("until_step"), reader.integer("seed"),
                     bytes_text(reader.integer("predicted_peak_bytes")),
                     from != nullptr && from->string() != nullptr ? ", resumed from " + *from->string() : "");
}

std::string end_text(const Json& event, JsonReader& reader) {
  const Json* loss = event.find("final_loss");
  return fmt::format("{} after step {}{}: {} steps in {}, {:.1f} samples/s, peak memory {}",
                     reader.boolean("interrupted") ? "stopped" : "done", reader.integer("step"),
                     loss != nullptr ? ", loss " + number_text(loss) : "", reader.integer("steps"),
                     duration_text(reader.number("seconds")), reader.number("samples_per_second"),
                     bytes_text(reader.integer("peak_bytes")));
}

}  // namespace

std::optional<std::string> event_text(std::string_view line) {
  if (!line.starts_with("{\"event\":")) {
    return std::nullopt;
  }
  const auto event = parse_json(line);
  if (!event) {
    return std::nullopt;
  }
  JsonReader reader(*event, "an event");
  const std::string kind = reader.string("event");
  std::string text;
  if (kind == "step") {
    text = step_text(*event, reader);
  } else if (kind == "evaluation") {
    text = evaluation_text(*event, reader);
  } else if (kind == "checkpoint") {
    text = checkpoint_text(*event, reader);
  } else if (kind == "start") {
    text = start_text(*event, reader);
  } else if (kind == "end") {
    text = end_text(*event, reader);
  } else if (kind == "note") {
    text = reader.string("message");
  } else if (kind == "error") {
    text = "error: " + reader.string("message");
  } else {
    return std::nullopt;
  }
  return reader.outcome() ? std::optional(text) : std::nullopt;
}

}  // namespace tesser::cli
