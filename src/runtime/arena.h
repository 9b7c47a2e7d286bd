// One reserved stretch of address space in which a worker's tensors lie: state first, then the planned memory of a
// step.
//
// Pages cost memory only once they are touched, so the whole capacity is reserved ahead and addresses never change; a
// transport can register [base, base + used) once. Not thread-safe.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace tesser::runtime {

class Arena {
 public:
  // Reserves `capacity` bytes. kFailed with the reason when the system refuses.
  static Result<Arena> reserve(std::size_t capacity);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  std::byte* base() const { return base_; }
  std::span<std::byte> memory() const { return {base_, capacity_}; }
  std::size_t capacity() const { return capacity_; }
  // Gives the whole pages in there back to the system; their content is lost and reads as zeros. Others stay.
  static void give_back(std::byte* begin, std::size_t bytes);
  bool contains(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= base_ && byte < base_ + capacity_;
  }

 private:
  Arena(std::byte* base, std::size_t capacity) : base_(base), capacity_(capacity) {}

  std::byte* base_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace tesser::runtime
