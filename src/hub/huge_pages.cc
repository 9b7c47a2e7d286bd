#include "hub/huge_pages.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

namespace tesser::hub {
namespace {

constexpr std::int64_t kPage = std::int64_t{2} << 20;
constexpr const char* kPool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
constexpr const char* kFree = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
constexpr const char* kPromised = "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages";
constexpr const char* kShared = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

std::int64_t read_number(const char* path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  file >> number;
  return file ? number : 0;
}

bool write_number(const char* path, std::int64_t number) {
  std::ofstream file(path);
  file << number << std::flush;
  return file.good();
}

// Which nobody has and nobody has been promised.
std::int64_t available_pages() { return read_number(kFree) - read_number(kPromised); }

// "advise" of "always within_size [advise] never".
std::string chosen(const char* path) {
  std::ifstream file(path);
  std::string words;
  std::getline(file, words);
  const std::size_t begin = words.find('[');
  const std::size_t end = words.find(']', begin);
  return end == std::string::npos ? "" : words.substr(begin + 1, end - begin - 1);
}

}  // namespace

transport::HugePages pages_for_gradients(bool wanted, const JobSettings& settings) {
  const bool has_rows =
      std::any_of(settings.keys.begin(), settings.keys.end(), [](const Key& key) { return key.row_elements != 0; });
  return pages_for(wanted && !has_rows);
}

std::string describe_pages(bool wanted) {
  if (!wanted) {
    return "pages: 4 KiB";
  }
  if (const std::int64_t pages = available_pages(); pages > 0) {
    return fmt::format("pages: 2 MiB, {} of them free in the pool; 4 KiB for a job that needs more", pages);
  }
  const std::string shared = chosen(kShared);
  if (shared == "always" || shared == "advise" || shared == "within_size" || shared == "force") {
    return "pages: 2 MiB where the kernel has them at hand";
  }
  return fmt::format(
      "pages: 4 KiB; with pages of 2 MiB exchanges on this machine are up to a third faster: root gives them by "
      "--reserve-pages SIZE, sysctl vm.nr_hugepages=N, or writing advise to {}",
      kShared);
}

Result<ReservedPages> ReservedPages::add(std::uint64_t bytes) {
  const std::int64_t wanted = (static_cast<std::int64_t>(bytes) + kPage - 1) / kPage;
  const std::int64_t before = read_number(kPool);
  const std::int64_t missing = wanted - available_pages();
  if (missing <= 0) {
    return ReservedPages();
  }
  if (!write_number(kPool, before + missing)) {
    return invalid_input(
        fmt::format("{} pages of 2 MiB cannot be reserved: only root may write to {}\nWhat to do: have root run sysctl "
                    "vm.nr_hugepages={} before, or start without --reserve-pages",
                    missing, kPool, before + missing));
  }
  ReservedPages added(read_number(kPool) - before);
  if (added.pages_ < missing) {
    return invalid_input(
        fmt::format("of {} pages of 2 MiB the system has {}: its free memory is too little, or in too small pieces\n"
                    "What to do: reserve them soon after the machine's start, or fewer",
                    missing, added.pages_));
  }
  return added;
}

ReservedPages::ReservedPages(ReservedPages&& other) noexcept : pages_(std::exchange(other.pages_, 0)) {}

ReservedPages& ReservedPages::operator=(ReservedPages&& other) noexcept {
  std::swap(pages_, other.pages_);
  return *this;
}

ReservedPages::~ReservedPages() {
  if (pages_ > 0) {
    write_number(kPool, std::max<std::int64_t>(0, read_number(kPool) - pages_));
  }
}

}  // namespace tesser::hub
