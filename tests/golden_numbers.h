// Reads the golden.txt files: lines of a name and values, floats as their bits in hexadecimal.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

namespace tesser::test {

class GoldenNumbers {
 public:
  // `path` from the root of the repository.
  explicit GoldenNumbers(const std::string& path) {
    std::ifstream file(std::string(TESSER_SOURCE_DIR) + "/" + path);
    EXPECT_TRUE(file.good()) << path;
    for (std::string line; std::getline(file, line);) {
      const std::size_t space = line.find(' ');
      lines_[line.substr(0, space)] = line.substr(space + 1);
    }
  }

  bool has(const std::string& name) const { return lines_.contains(name); }

  // Values written as bits.
  template <typename Element>
  std::vector<Element> bits(const std::string& name) const {
    using Word = std::conditional_t<sizeof(Element) == 4, std::uint32_t, std::uint64_t>;
    std::vector<Element> values;
    for (const std::string& text : words(name)) {
      const auto word = static_cast<Word>(std::strtoull(text.c_str(), nullptr, 16));
      Element value;
      std::memcpy(&value, &word, sizeof value);
      values.push_back(value);
    }
    return values;
  }

  // Values written as decimal or hexadecimal numbers.
  std::vector<double> numbers(const std::string& name) const {
    std::vector<double> values;
    for (const std::string& text : words(name)) values.push_back(std::strtod(text.c_str(), nullptr));
    return values;
  }

 private:
  std::vector<std::string> words(const std::string& name) const {
    const auto line = lines_.find(name);
    EXPECT_NE(line, lines_.end()) << name;
    if (line == lines_.end()) return {};
    std::istringstream stream(line->second);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
  }

  std::map<std::string, std::string> lines_;
};

}  // namespace tesser::test
