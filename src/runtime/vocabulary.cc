#include "runtime/vocabulary.h"

#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/json.h"

namespace tesser::runtime {
namespace {

// The code points of a UTF-8 text, each as its bytes; nothing when it is malformed.
std::optional<std::vector<std::string>> code_points(std::string_view text) {
  std::vector<std::string> points;
  for (std::size_t position = 0; position < text.size();) {
    const auto first = static_cast<unsigned char>(text[position]);
    const std::size_t length = first < 0x80           ? 1
                               : (first >> 5) == 0x6  ? 2
                               : (first >> 4) == 0xE  ? 3
                               : (first >> 3) == 0x1E ? 4
                                                      : 0;
    if (length == 0 || position + length > text.size()) {
      return std::nullopt;
    }
    for (std::size_t i = 1; i < length; ++i) {
      if ((static_cast<unsigned char>(text[position + i]) & 0xC0) != 0x80) {
        return std::nullopt;
      }
    }
    points.emplace_back(text.substr(position, length));
    position += length;
  }
  return points;
}

}  // namespace

Result<Vocabulary> Vocabulary::read(std::filesystem::path path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    path /= "vocabulary.json";
  }
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path, 1 << 26));
  const Result<Json> json = parse_json(text);
  if (!json) {
    return invalid_input(path.string() + ": " + json.error().message);
  }
  const Json* characters = json->find("characters");
  if (characters == nullptr || characters->string() == nullptr) {
    return invalid_input(path.string() + ": expected {\"characters\": \"...\"}");
  }
  auto points = code_points(*characters->string());
  if (!points || points->empty()) {
    return invalid_input(path.string() + ": 'characters' is empty or not UTF-8");
  }
  Vocabulary vocabulary;
  vocabulary.file_ = path.string();
  vocabulary.characters_ = std::move(*points);
  for (std::size_t i = 0; i < vocabulary.characters_.size(); ++i) {
    if (!vocabulary.tokens_.emplace(vocabulary.characters_[i], static_cast<std::int64_t>(i)).second) {
      return invalid_input(path.string() + ": has the character " + json_string(vocabulary.characters_[i]) + " twice");
    }
  }
  return vocabulary;
}

Result<std::vector<std::int64_t>> Vocabulary::encode(std::string_view text) const {
  const auto points = code_points(text);
  if (!points) {
    return invalid_input("the text is not UTF-8");
  }
  std::vector<std::int64_t> tokens;
  for (const std::string& point : *points) {
    const auto found = tokens_.find(point);
    if (found == tokens_.end()) {
      return invalid_input("the character " + json_string(point) + " is not in the vocabulary " + file_);
    }
    tokens.push_back(found->second);
  }
  return tokens;
}

}  // namespace tesser::runtime
