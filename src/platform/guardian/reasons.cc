#include "platform/guardian/reasons.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/learner/log_reader.h"

namespace tesser::platform {
namespace {

constexpr std::size_t kLines = 3;
constexpr std::size_t kMostBytes = 500;

std::string place_of(int rank, const std::string& node) {
  return node.empty() ? fmt::format("learner {}", rank) : fmt::format("learner {} on {}", rank, node);
}

// Without what a terminal would act on: colours and the like go, other control characters become spaces.
std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at).starts_with("\x1b[")) {
      at = std::min(text.find_first_not_of("0123456789;:<=>? !\"#$%&'()*+,-./", at + 2), text.size());
    } else {
      shown += static_cast<unsigned char>(text[at]) < 32 ? ' ' : text[at];
    }
  }
  return shown;
}

// The end of a text, from the beginning of a character on.
std::string tail_of(const std::string& text, std::size_t bytes) {
  if (text.size() <= bytes) {
    return text;
  }
  std::size_t begin = text.size() - bytes;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U) {
    ++begin;
  }
  return "..." + text.substr(begin);
}

}  // namespace

std::string last_lines(const Volume& volume, int rank, int attempt) {
  LogReader reader(volume, rank);
  // Notes of the platform stand between the command's lines, so a few more are read than are shown.
  const auto cursor = reader.tail(kLines + 5);
  const auto page = cursor ? reader.read(*cursor, kLines + 5) : tl::unexpected(cursor.error());
  std::vector<std::string> lines;
  for (const LogLine& line : page ? page->lines : std::vector<LogLine>{}) {
    if (line.attempt == attempt && !line.is_note && !line.text.empty()) {
      lines.push_back(printable(line.text));
    }
  }
  std::string text;
  for (std::size_t i = lines.size() - std::min(lines.size(), kLines); i < lines.size(); ++i) {
    text += (text.empty() ? "" : " | ") + lines[i];
  }
  return tail_of(text, kMostBytes);
}

Reason reason_of_exit(const Volume& volume, int attempt, const LearnerExit& exit, const std::string& node) {
  const std::string what = exit.reason.empty() ? "ended" : exit.reason;
  const std::string lines = exit.started ? last_lines(volume, exit.rank, attempt) : "";
  return {exit.error_class == "U" ? codes::kCommand : codes::kLearner,
          fmt::format("{}: {}{}{}", place_of(exit.rank, node), what, lines.empty() ? "" : ": ", lines)};
}

Reason reason_of_death(const Volume& volume, int attempt, int rank, const std::string& node,
                       const std::string& system_reason) {
  if (system_reason == "out of memory" || system_reason.find("OOM") != std::string::npos) {
    return {codes::kMemory, fmt::format("{} used more memory than it has and was ended ({}): give it more `memory` in "
                                        "the manifest",
                                        place_of(rank, node), system_reason)};
  }
  const auto output = read_file(volume.learner_output(attempt, rank), std::uint64_t{1} << 20);
  std::string said = output ? *output : "";
  said.erase(said.find_last_not_of(" \n") + 1);
  said = tail_of(printable(said), kMostBytes);
  return {codes::kLearner, fmt::format("the process of {} ended before its command did{}{}{}", place_of(rank, node),
                                       system_reason.empty() ? "" : fmt::format(" ({})", system_reason),
                                       said.empty() ? "" : ": ", said)};
}

}  // namespace tesser::platform
