#include "platform/job/manifest_secrets.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

// A value this short may well stand elsewhere by chance.
constexpr std::size_t kSearched = 6;

// The bytes of the scalar that begins here, quotes included; 0 when it is not written on one line.
std::size_t scalar_length(std::string_view text, const YamlValue& value) {
  const std::string_view rest = text.substr(std::min(value.position, text.size()));
  if (rest.empty()) {
    return 0;
  }
  const char quote = rest.front();
  if (quote != '"' && quote != '\'') {
    return !value.text.empty() && rest.starts_with(value.text) ? value.text.size() : 0;
  }
  for (std::size_t i = 1; i < rest.size() && rest[i] != '\n'; ++i) {
    if (quote == '"' && rest[i] == '\\') {
      ++i;
    } else if (rest[i] == quote) {
      if (quote == '\'' && i + 1 < rest.size() && rest[i + 1] == quote) {
        ++i;
      } else {
        return i + 1;
      }
    }
  }
  return 0;
}

}  // namespace

std::string SecretTaker::free_name(const std::string& likely) const {
  std::string name;
  for (const char c : likely) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0
                ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
                : '_';
  }
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0) {
    name.insert(0, "_");
  }
  // Also no name that the text refers to further down.
  while (secrets_.contains(name) || text_.find("${" + name + "}") != std::string_view::npos) {
    name += "_";
  }
  return name;
}

void SecretTaker::refer(const YamlValue& value) {
  const auto names = secret_references(value.text);
  if (!names) {
    problem_.at(value.line, names.error().message);
    return;
  }
  for (const std::string& name : *names) {
    missing_.emplace(name, value.line);
  }
}

std::string SecretTaker::take(const YamlValue& value, const std::string& likely) {
  if (value.kind != YamlValue::Kind::kText || value.text.empty() || !is_free_text(value.text)) {
    problem_.at(value.line, value.is_scalar() ? "a secret must be text that is not empty; numbers belong in quotes"
                                              : "a secret must be text");
    return {};
  }
  const auto names = secret_references(value.text);
  if (names && names->size() == 1 && value.text == "${" + names->front() + "}") {
    missing_.emplace(names->front(), value.line);
    return names->front();
  }
  if (value.text.find("${") != std::string::npos) {
    problem_.at(value.line, "a secret is either its value or ${NAME} alone");
    return {};
  }
  if (const auto again = taken_.find(value.position); again != taken_.end()) {  // by an alias
    return again->second.name;
  }
  const std::size_t length = scalar_length(text_, value);
  if (length == 0) {
    problem_.at(value.line, "a secret must stand on one line, without an anchor before it");
    return {};
  }
  const std::string name = free_name(likely);
  taken_.emplace(value.position, Taken{name, length, value.line});
  secrets_.emplace(name, value.text);
  return name;
}

std::string SecretTaker::text_without_secrets() {
  std::string text(text_);
  for (auto each = taken_.rbegin(); each != taken_.rend(); ++each) {
    text.replace(each->first, each->second.length, "\"${" + each->second.name + "}\"");
  }
  for (const auto& [position, taken] : taken_) {
    const std::string& value = secrets_.at(taken.name);
    const std::size_t found = value.size() < kSearched ? std::string::npos : text.find(value);
    if (found != std::string::npos) {
      const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(found), '\n') + 1;
      problem_.at(static_cast<int>(line),
                  fmt::format("the secret of line {} stands here as well, where all may read it; "
                              "take it away",
                              taken.line));
    }
  }
  return text;
}

}  // namespace tesser::platform
