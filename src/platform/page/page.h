// The page at `/` (docs/page.md): HTML, style and scripts, which the build puts into the program, so that a browser
// needs nothing but the server.
//
// Any thread.
#pragma once

#include <span>
#include <string_view>

namespace tesser::platform {

struct PageFile {
  std::string_view name;  // "index.html", "main.js"
  std::string_view content_type;
  std::string_view content;
  std::string_view digest;  // of the content, hexadecimal
};

std::span<const PageFile> page_files();
// None: there is no file of this name.
const PageFile* page_file(std::string_view name);
// Another one whenever a file is another. Files refer to each other below `/assets/VERSION/`, so that a browser never
// mixes those of two builds, and may keep them for ever.
std::string_view page_version();

}  // namespace tesser::platform
