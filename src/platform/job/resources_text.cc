#include "platform/job/resources_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::string processors_text(std::int64_t millicpus) {
  std::string text = fmt::format("{}.{:03}", millicpus / 1000, millicpus % 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') {
    text.pop_back();
  }
  return text + (text == "1" ? " cpu" : " cpus");
}

std::string memory_text(std::int64_t bytes) {
  return bytes % (1024 * kMiB) == 0 ? fmt::format("{} GiB", bytes / (1024 * kMiB))
                                    : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMiB);
}

}  // namespace

std::string amounts_text(const Resources& amounts, const Resources& needs) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (needs.millicpus > 0) {
    add(processors_text(std::max<std::int64_t>(amounts.millicpus, 0)));
  }
  if (needs.memory_bytes > 0) {
    add(amounts.memory_bytes == kAnyMemory ? "any memory"
                                           : memory_text(std::max<std::int64_t>(amounts.memory_bytes, 0)));
  }
  for (const auto& [type, count] : needs.accelerators) {
    if (count > 0) {
      const auto found = amounts.accelerators.find(type);
      add(fmt::format("{} {}", found == amounts.accelerators.end() ? 0 : std::max<std::int64_t>(found->second, 0),
                      type));
    }
  }
  return text.empty() ? "nothing" : text;
}

std::string learners_text(std::int64_t count) { return fmt::format("{} learner{}", count, count == 1 ? "" : "s"); }

std::string needs_text(std::int64_t learners, const Resources& each) {
  return fmt::format("needs {} with {}{}", learners_text(learners), amounts_text(each, each),
                     learners > 1 ? " each" : "");
}

}  // namespace tesser::platform
