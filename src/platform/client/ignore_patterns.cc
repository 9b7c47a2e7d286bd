#include "platform/client/ignore_patterns.h"

#include <algorithm>
#include <cstddef>

namespace tesser::platform {
namespace {

// Whether the whole text fits. Linear in both but for '**', of which a pattern may have few: the work is bounded by
// remembering what does not fit.
class Matcher {
 public:
  Matcher(std::string_view pattern, std::string_view text)
      : pattern_(pattern), text_(text), known_((pattern.size() + 1) * (text.size() + 1), -1) {}

  bool fits(std::size_t p = 0, std::size_t t = 0) {
    signed char& known = known_[p * (text_.size() + 1) + t];
    if (known < 0) {
      known = compute(p, t) ? 1 : 0;
    }
    return known == 1;
  }

 private:
  bool compute(std::size_t p, std::size_t t) {
    if (p == pattern_.size()) {
      return t == text_.size();
    }
    if (pattern_.substr(p).starts_with("**/")) {  // any number of directories, also none
      if (fits(p + 3, t)) {
        return true;
      }
      const std::size_t slash = text_.find('/', t);
      return slash != std::string_view::npos && fits(p, slash + 1);
    }
    if (pattern_.substr(p).starts_with("**")) {
      return fits(p + 2, t) || (t < text_.size() && fits(p, t + 1));
    }
    if (pattern_[p] == '*') {
      return fits(p + 1, t) || (t < text_.size() && text_[t] != '/' && fits(p, t + 1));
    }
    if (t == text_.size()) {
      return false;
    }
    if (pattern_[p] == '?') {
      return text_[t] != '/' && fits(p + 1, t + 1);
    }
    const std::size_t escaped = pattern_[p] == '\\' && p + 1 < pattern_.size() ? 1 : 0;
    return pattern_[p + escaped] == text_[t] && fits(p + escaped + 1, t + 1);
  }

  std::string_view pattern_;
  std::string_view text_;
  std::vector<signed char> known_;  // -1: not yet
};

}  // namespace

IgnorePatterns::IgnorePatterns(std::string_view text) {
  for (const char* own : {".git/", ".hg/", ".svn/", "__pycache__/", ".venv/", "*.pyc", ".DS_Store"}) {
    add(own);
  }
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    add(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void IgnorePatterns::add(std::string_view line) {
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t')) {
    line.remove_suffix(1);
  }
  if (line.empty() || line.starts_with('#')) {
    return;
  }
  Pattern pattern;
  if (line.starts_with('!')) {
    pattern.takes_back = true;
    line.remove_prefix(1);
  }
  if (line.ends_with('/')) {
    pattern.directories_only = true;
    line.remove_suffix(1);
  }
  pattern.is_bound = line.find('/') != std::string_view::npos;
  if (line.starts_with('/')) {
    line.remove_prefix(1);
  }
  pattern.text = line;
  if (!pattern.text.empty()) {
    patterns_.push_back(std::move(pattern));
  }
}

bool IgnorePatterns::ignores(std::string_view path, bool is_directory) const {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  // The last pattern that fits decides.
  for (auto pattern = patterns_.rbegin(); pattern != patterns_.rend(); ++pattern) {
    if ((is_directory || !pattern->directories_only) &&
        Matcher(pattern->text, pattern->is_bound ? path : name).fits()) {
      return !pattern->takes_back;
    }
  }
  return false;
}

}  // namespace tesser::platform
