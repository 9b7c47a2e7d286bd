// Which character each token stands for (docs/formats/data.md, Vocabulary).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace tesser::runtime {

class Vocabulary {
 public:
  // `path` is a vocabulary.json, or a directory that holds one.
  static Result<Vocabulary> read(std::filesystem::path path);

  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }

  // Tokens of a text in UTF-8; kInvalidInput naming the first character that the vocabulary does not have.
  Result<std::vector<std::int64_t>> encode(std::string_view text) const;
  // UTF-8 of one token, which must be in range.
  const std::string& decode(std::int64_t token) const { return characters_[static_cast<std::size_t>(token)]; }

 private:
  std::string file_;
  std::vector<std::string> characters_;
  std::unordered_map<std::string, std::int64_t> tokens_;
};

}  // namespace tesser::runtime
