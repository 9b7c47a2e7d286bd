// Reads a manifest from each line of standard input and writes a line for each: "ok", or why it is refused.
#include <iostream>
#include <string>

#include "platform/job/manifest.h"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto manifest = tesser::platform::read_manifest(line, "job.yaml");
    std::cout << (manifest ? "ok" : manifest.error().message) << "\n";
  }
  return 0;
}
