// Any bytes as a submitted ZIP: refused, or files that lie inside the directory, are no links and have no more bytes
// than may be, and of which a TAR can be made.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "platform/server/archive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace fs = std::filesystem;
  using namespace tesser::platform;
  static const fs::path root = [] {
    char name[] = "/dev/shm/tesser-archive-fuzzer-XXXXXX";
    return fs::path(::mkdtemp(name));
  }();
  static const int at_end = std::atexit([] { fs::remove_all(root); });
  (void)at_end;
  const fs::path zip = root / "zip";
  const fs::path directory = root / "outer" / "directory";
  fs::remove_all(root / "outer");
  fs::create_directories(directory);
  std::ofstream(zip, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const UnpackLimits limits{1 << 20, 100};
  const auto outcome = unpack_zip(zip, directory, limits);
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    TESSER_CHECK(!entry.is_symlink() && (entry.is_regular_file() || entry.is_directory()), entry.path().string());
    bytes += entry.is_regular_file() ? entry.file_size() : 0;
  }
  TESSER_CHECK(!outcome || bytes <= limits.bytes, std::to_string(bytes));
  for (const fs::path& each : {root, root / "outer"}) {
    const auto count = std::distance(fs::directory_iterator(each), fs::directory_iterator());
    TESSER_CHECK(count == (each == root ? 2 : 1), "something lies outside of the directory");
  }
  if (outcome) {
    TESSER_CHECK(write_tar(directory, [](std::string_view) { return true; }), "no TAR of what was unpacked");
  }
  return 0;
}
