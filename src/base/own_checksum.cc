#include "base/own_checksum.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/check.h"
#include "base/checksum.h"

namespace tesser {
namespace {

constexpr std::string_view kKey = "checksum";
constexpr std::string_view kBegin = "\n\"checksum\":\"";
constexpr std::string_view kEnd = "\",\n";
constexpr std::size_t kDigits = 8;

// What stands around the line, and the digits in it. Text of JSON's strings holds no line break, so a line that begins
// like this is no part of one.
struct Parts {
  std::string_view before;  // with its line break
  std::string_view digits;
  std::string_view after;
};

std::optional<Parts> find_line(std::string_view text) {
  const std::size_t begin = text.find(kBegin);
  if (begin == std::string_view::npos || text.size() - begin < kBegin.size() + kDigits + kEnd.size() ||
      text.substr(begin + kBegin.size() + kDigits, kEnd.size()) != kEnd) {
    return std::nullopt;
  }
  const std::size_t digits = begin + kBegin.size();
  return Parts{text.substr(0, begin + 1), text.substr(digits, kDigits), text.substr(digits + kDigits + kEnd.size())};
}

std::string checksum_of(std::string_view before, std::string_view after) {
  return checksum_text(crc32(after.data(), after.size(), crc32(before.data(), before.size())));
}

}  // namespace

std::string with_checksum(std::string_view text) {
  const std::size_t version = text.find("\"version\":");
  const std::size_t end = text.find('\n', version);
  TESSER_CHECK(version != std::string_view::npos && end != std::string_view::npos, "a text without a version");
  const std::string_view before = text.substr(0, end + 1);
  const std::string_view after = text.substr(end + 1);
  std::string whole;
  whole.reserve(text.size() + kBegin.size() + kDigits + kEnd.size());
  whole.append(before).append(kBegin.substr(1)).append(checksum_of(before, after)).append(kEnd).append(after);
  return whole;
}

std::string without_checksum(std::string_view text) {
  const std::optional<Parts> parts = find_line(text);
  return parts ? std::string(parts->before) + std::string(parts->after) : std::string(text);
}

Result<void> check_own_checksum(std::string_view text, const Json& json, std::string_view what_to_do) {
  if (json.find(kKey) == nullptr) {
    return {};
  }
  const std::optional<Parts> parts = find_line(text);
  const std::string found = parts ? checksum_of(parts->before, parts->after) : "";
  if (parts && found == parts->digits) {
    return {};
  }
  return invalid_input((parts ? "has checksum " + found + " and states " + std::string(parts->digits)
                              : std::string("states a checksum on no line of its own")) +
                       ": it was damaged or changed by hand" + std::string(what_to_do));
}

}  // namespace tesser
