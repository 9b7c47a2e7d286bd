// Any bytes as a safetensors file: an error, or tensors that lie inside the file and cover its data.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/check.h"
#include "base/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tesser;
  const std::span<const std::uint8_t> bytes(data, size);
  const Result<SafetensorsHeader> header = parse_safetensors_header(std::as_bytes(bytes));
  if (!header.has_value()) {
    TESSER_CHECK(!header.error().message.empty(), "an error without a message");
    return 0;
  }
  std::map<std::uint64_t, std::uint64_t> ends;  // of what is not empty, by where it begins
  for (const SafetensorsOther& other : header->others) {
    TESSER_CHECK(other.bytes == 0 || ends.emplace(other.offset, other.offset + other.bytes).second, other.name);
  }
  for (const SafetensorsEntry& entry : header->entries) {
    TESSER_CHECK(entry.bytes == 0 || ends.emplace(entry.offset, entry.offset + entry.bytes).second, entry.name);
    TESSER_CHECK(static_cast<std::uint64_t>(checked_bytes(entry.dtype, entry.shape).value()) == entry.bytes,
                 entry.name);
  }
  std::uint64_t end = 0;
  for (const auto& [begin, next] : ends) {
    TESSER_CHECK(begin == end, std::to_string(begin) + " after " + std::to_string(end));
    end = next;
  }
  end += header->data_begin;
  TESSER_CHECK(end == size, std::to_string(end) + " of " + std::to_string(size) + " bytes");
  return 0;
}
