// Any bytes as a safetensors file: an error, or entries that lie inside the file and cover its data.

#include <cstddef>
#include <cstdint>
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
  std::uint64_t end = header->data_begin;
  for (const SafetensorsEntry& entry : header->entries) {
    TESSER_CHECK(header->data_begin + entry.offset == end, entry.name);
    TESSER_CHECK(static_cast<std::uint64_t>(checked_bytes(entry.dtype, entry.shape).value()) == entry.bytes,
                 entry.name);
    end += entry.bytes;
  }
  TESSER_CHECK(end == size, std::to_string(end) + " of " + std::to_string(size) + " bytes");
  return 0;
}
