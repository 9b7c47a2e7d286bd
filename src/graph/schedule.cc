#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "graph/program.h"

namespace tesser::graph {
namespace {

double cosine_between(double from, double to, double part) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
}

// As torch.optim.lr_scheduler.OneCycleLR with two phases: up until step rise * steps - 1, then down until step steps
// - 1.
double one_cycle(const Schedule& schedule, std::int64_t step) {
  const double peak = schedule.rise * static_cast<double>(schedule.steps) - 1;
  const double last = static_cast<double>(schedule.steps - 1);
  const double now = std::min(static_cast<double>(step), last);
  const bool rising = now <= peak;
  const double from = rising ? schedule.initial : schedule.maximum;
  const double to = rising ? schedule.maximum : schedule.final;
  const double begin = rising ? 0 : peak;
  const double end = rising ? peak : last;
  const double part = end > begin ? (now - begin) / (end - begin) : 1;
  return schedule.cosine_anneal ? cosine_between(from, to, part) : from + (to - from) * part;
}

}  // namespace

double Schedule::at(std::int64_t step) const {
  TESSER_CHECK(step >= 0, "step " + std::to_string(step));
  switch (kind) {
    case Kind::kConstant:
      return rate;
    case Kind::kStep:
      return rate * std::pow(factor, static_cast<double>(step / every));
    case Kind::kLinear:
      return rate * (start + (end - start) * static_cast<double>(std::min(step, steps)) / static_cast<double>(steps));
    case Kind::kCosine: {
      const double part = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
      return minimum + (rate - minimum) * (1 + std::cos(std::numbers::pi * part)) / 2;
    }
    case Kind::kCosineWave: {
      const double part =
          static_cast<double>(step / steps % 2) + static_cast<double>(step % steps) / static_cast<double>(steps);
      return minimum + (rate - minimum) * (1 + std::cos(std::numbers::pi * part)) / 2;
    }
    case Kind::kOneCycle:
      return one_cycle(*this, step);
    case Kind::kSequence: {
      const auto next = std::upper_bound(milestones.begin(), milestones.end(), step);
      const auto part = static_cast<std::size_t>(next - milestones.begin());
      return parts[part].at(part == 0 ? step : step - milestones[part - 1]);
    }
    case Kind::kEnd:
      break;
  }
  TESSER_CHECK(false,
               "schedule kind " + std::to_string(static_cast<int>(kind)) + " has no rate at " + std::to_string(step));
}

std::optional<std::int64_t> Schedule::ends_at() const {
  if (kind == Kind::kEnd) {
    return 0;
  }
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::int64_t begin = part == 0 ? 0 : milestones[part - 1];
    const std::optional<std::int64_t> ended = parts[part].ends_at();
    if (ended.has_value() && (part == milestones.size() || *ended < milestones[part] - begin)) {
      return begin + *ended;
    }
  }
  return std::nullopt;
}

}  // namespace tesser::graph
