#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tesser {

void check_failed(const char* file, int line, const char* expected, const std::string& found) {
  std::fprintf(stderr, "%s:%d: internal error: expected %s, found %s\n", file, line, expected, found.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tesser
