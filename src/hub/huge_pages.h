// Pages of 2 MiB for what hubs and workers share: an exchange streams through all of it, and every page of 4 KiB costs
// a walk through page tables, in a virtual machine through two of them (docs/benchmarks.md).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "hub/job_settings.h"
#include "transport/memory_region.h"

namespace tesser::hub {

// Of weights and optimizer state.
inline transport::HugePages pages_for(bool wanted) {
  return wanted ? transport::HugePages::kIfAvailable : transport::HugePages::kNone;
}
// Of a replica's gradients: no large ones where rows are given, for which memory must cost nothing until it is touched.
transport::HugePages pages_for_gradients(bool wanted, const JobSettings& settings);

// A line for people: what pages this machine gives to shared memory, and how it gives larger ones.
std::string describe_pages(bool wanted);

// Pages that were added to the system's pool (vm.nr_hugepages), and leave it again at the end, once nobody has them.
class ReservedPages {
 public:
  ReservedPages() = default;
  // At least so many bytes are free in the pool then. kInvalidInput where this process may not, or the system has no
  // such memory in one piece.
  static Result<ReservedPages> add(std::uint64_t bytes);
  ReservedPages(ReservedPages&& other) noexcept;
  ReservedPages& operator=(ReservedPages&& other) noexcept;
  ~ReservedPages();

 private:
  explicit ReservedPages(std::int64_t pages) : pages_(pages) {}

  std::int64_t pages_ = 0;
};

}  // namespace tesser::hub
