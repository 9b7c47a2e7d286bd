#include "runtime/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace tesser::runtime {

Result<Arena> Arena::reserve(std::size_t capacity) {
  void* base = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return failed("cannot reserve " + std::to_string(capacity >> 20) + " MiB of address space for the tensors (" +
                  std::strerror(errno) + "); raise the limit on virtual memory (ulimit -v) or use a smaller model");
  }
  // Large pages where the system grants them: fewer page faults in the first step and fewer address look-ups in all
  // others.
  madvise(base, capacity, MADV_HUGEPAGE);
  return Arena(static_cast<std::byte*>(base), capacity);
}

void Arena::give_back(std::byte* begin, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const auto until = (reinterpret_cast<std::uintptr_t>(begin) + bytes) / page * page;
  if (from < until) madvise(reinterpret_cast<void*>(from), until - from, MADV_DONTNEED);
}

Arena::Arena(Arena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, capacity_);
}

}  // namespace tesser::runtime
