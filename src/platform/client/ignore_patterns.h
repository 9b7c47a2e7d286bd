// Which files of a directory are left out of a submission (docs/formats/manifest.md, the submitted directory).
//
// Values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tesser::platform {

class IgnorePatterns {
 public:
  // The platform's own patterns, then those of the text of a .tesserignore.
  explicit IgnorePatterns(std::string_view text);

  // `path` is relative, with '/' between its parts. What is below an ignored directory is for the caller to leave out.
  bool ignores(std::string_view path, bool is_directory) const;

 private:
  struct Pattern {
    std::string text;
    bool takes_back = false;
    bool directories_only = false;
    bool is_bound = false;  // to the whole path, instead of its last part
  };

  void add(std::string_view line);

  std::vector<Pattern> patterns_;
};

}  // namespace tesser::platform
