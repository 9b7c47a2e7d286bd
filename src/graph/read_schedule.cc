#include "graph/read_schedule.h"

#include "graph/entry_reader.h"
#include "graph/names.h"

namespace tesser::graph {

Schedule read_schedule(const Json& json, const std::string& where, std::optional<std::string>& error) {
  EntryReader entry(json, where, error);
  Schedule schedule;
  const std::string kind = entry.string("kind");
  const auto known = schedule_kind_from_name(kind);
  if (!known.has_value()) {
    entry.fail("unknown kind " + brief(kind));
    return schedule;
  }
  schedule.kind = *known;
  switch (schedule.kind) {
    case Schedule::Kind::kConstant:
      schedule.rate = entry.number("rate");
      break;
    case Schedule::Kind::kStep:
      schedule.rate = entry.number("rate");
      schedule.every = entry.integer("every");
      schedule.factor = entry.number("factor");
      break;
    case Schedule::Kind::kLinear:
      schedule.rate = entry.number("rate");
      schedule.start = entry.number("start");
      schedule.end = entry.number("end");
      schedule.steps = entry.integer("steps");
      break;
    case Schedule::Kind::kCosine:
    case Schedule::Kind::kCosineWave:
      schedule.rate = entry.number("rate");
      schedule.minimum = entry.number("minimum");
      schedule.steps = entry.integer("steps");
      break;
    case Schedule::Kind::kOneCycle: {
      schedule.maximum = entry.number("maximum");
      schedule.initial = entry.number("initial");
      schedule.final = entry.number("final");
      schedule.steps = entry.integer("steps");
      schedule.rise = entry.number("rise");
      const std::string anneal = entry.string("anneal");
      schedule.cosine_anneal = anneal == "cosine";
      if (anneal != "cosine" && anneal != "linear") {
        entry.fail("unknown anneal " + brief(anneal));
      }
      break;
    }
    case Schedule::Kind::kSequence: {
      const Json::Array& parts = entry.array("parts");
      for (std::size_t index = 0; index < parts.size() && !entry.failed(); ++index) {
        schedule.parts.push_back(read_schedule(parts[index], where + ".parts[" + std::to_string(index) + "]", error));
      }
      if (const Json* const milestones = entry.required("milestones")) {
        schedule.milestones = entry.integers_of(*milestones, "milestones");
      }
      break;
    }
    case Schedule::Kind::kEnd:
      break;
  }
  entry.finish();
  return schedule;
}

}  // namespace tesser::graph
