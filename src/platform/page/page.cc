#include "platform/page/page.h"

#include <algorithm>

namespace tesser::platform {

const PageFile* page_file(std::string_view name) {
  const auto files = page_files();
  const auto found = std::find_if(files.begin(), files.end(), [&](const PageFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

}  // namespace tesser::platform
