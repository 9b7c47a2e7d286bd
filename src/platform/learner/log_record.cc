#include "platform/learner/log_record.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace tesser::platform {
namespace {

template <typename Number>
void append_number(std::string& to, Number number) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  to.append(digits.data(), end);
  to += '\t';
}

// Takes a decimal number and the tab behind it.
template <typename Number>
bool take_number(std::string_view& from, Number& number) {
  const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), number);
  if (error != std::errc() || end == from.data() + from.size() || *end != '\t' || number < Number{0}) {
    return false;
  }
  from.remove_prefix(static_cast<std::size_t>(end - from.data()) + 1);
  return true;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// Bytes of the UTF-8 character that begins here; 0 when there is none.
std::size_t character_bytes(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first < 0x80) {
    return 1;
  }
  const std::size_t count = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (count == 0 || bytes.size() < count ||
      !std::all_of(bytes.begin() + 1, bytes.begin() + static_cast<std::ptrdiff_t>(count), is_continuation)) {
    return 0;
  }
  // Longer than needed, half of a surrogate pair, or beyond the last character.
  const auto second = static_cast<unsigned char>(bytes[1]);
  const bool is_none = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return is_none ? 0 : count;
}

// Bytes from the beginning that are UTF-8.
std::size_t valid_prefix(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t word = 0;
    while (at + 8 <= bytes.size() && (std::memcpy(&word, bytes.data() + at, 8), (word & 0x8080808080808080U) == 0)) {
      at += 8;
    }
    if (at == bytes.size()) {
      break;
    }
    const std::size_t count = character_bytes(bytes.substr(at));
    if (count == 0) {
      break;
    }
    at += count;
  }
  return at;
}

}  // namespace

void append_record(std::string& to, const LogRecord& record) {
  append_number(to, record.sequence);
  append_number(to, record.time);
  append_number(to, record.attempt);
  append_number(to, record.raw_end);
  const std::size_t begin = to.size();
  const LogFlags& flags = record.flags;
  for (const auto& [set, letter] :
       {std::pair(flags.cut, 'c'), std::pair(flags.escaped, 'b'), std::pair(flags.returned, 'r'),
        std::pair(flags.unended, 'e'), std::pair(flags.note, 'n')}) {
    if (set) {
      to += letter;
    }
  }
  if (to.size() == begin) {
    to += '-';
  }
  to += '\t';
  to += record.text;
  to += '\n';
}

std::optional<LogRecord> parse_record(std::string_view line) {
  LogRecord record;
  if (!take_number(line, record.sequence) || !take_number(line, record.time) || !take_number(line, record.attempt) ||
      !take_number(line, record.raw_end) || record.sequence == 0) {
    return std::nullopt;
  }
  const std::size_t end = line.find('\t');
  if (end == std::string_view::npos || end == 0) {
    return std::nullopt;
  }
  for (const char letter : line.substr(0, end)) {
    switch (letter) {
      case 'c':
        record.flags.cut = true;
        break;
      case 'b':
        record.flags.escaped = true;
        break;
      case 'r':
        record.flags.returned = true;
        break;
      case 'e':
        record.flags.unended = true;
        break;
      case 'n':
        record.flags.note = true;
        break;
      case '-':
        break;
      default:
        return std::nullopt;
    }
  }
  record.text = line.substr(end + 1);
  return record;
}

bool is_utf8(std::string_view bytes) { return valid_prefix(bytes) == bytes.size(); }

bool append_text(std::string& to, std::string_view bytes) {
  if (is_utf8(bytes)) {
    to += bytes;
    return false;
  }
  constexpr std::string_view kHexadecimal = "0123456789abcdef";
  while (!bytes.empty()) {
    const std::size_t count = character_bytes(bytes);
    if (count == 0) {
      const auto byte = static_cast<unsigned char>(bytes[0]);
      to += "\\x";
      to += kHexadecimal[byte >> 4];
      to += kHexadecimal[byte & 15U];
    } else if (bytes[0] == '\\') {
      to += "\\\\";
    } else {
      to += bytes.substr(0, count);
    }
    bytes.remove_prefix(std::max<std::size_t>(count, 1));
  }
  return true;
}

std::optional<LinePiece> next_line(std::string_view bytes, bool at_end, bool continues) {
  std::size_t begin = 0;
  while (begin < bytes.size()) {
    const std::string_view rest = bytes.substr(begin);
    const std::string_view searched = rest.substr(0, kLongestLine + 1);
    std::size_t end = searched.find('\n');
    const std::size_t carriage_return = searched.substr(0, end).find('\r');
    LinePiece piece;
    if (carriage_return != std::string_view::npos) {
      end = carriage_return;
      if (end + 1 == rest.size() && !at_end) {
        return std::nullopt;  // a line feed may follow
      }
      const bool is_pair = end + 1 < rest.size() && rest[end + 1] == '\n';
      piece.flags.returned = !is_pair;
      piece.consumed = begin + end + (is_pair ? 2 : 1);
      if (end == 0 && !is_pair && !continues) {
        begin = piece.consumed;
        continue;
      }
    } else if (end != std::string_view::npos) {
      piece.consumed = begin + end + 1;
    } else if (rest.size() > kLongestLine) {
      end = kLongestLine;
      for (int back = 0; back < 3 && is_continuation(rest[end]); ++back) {
        --end;
      }
      piece.flags.cut = true;
      piece.consumed = begin + end;
    } else if (at_end) {
      end = rest.size();
      piece.flags.unended = true;
      piece.consumed = begin + end;
    } else {
      return std::nullopt;
    }
    piece.bytes = rest.substr(0, end);
    return piece;
  }
  return std::nullopt;
}

}  // namespace tesser::platform
