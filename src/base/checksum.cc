#include "base/checksum.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tesser {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b] is the effect of byte b with k zero bytes after it, so that eight bytes can be taken at once.
constexpr Tables make_tables(std::uint32_t polynomial) {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1U) != 0 ? polynomial : 0U);
    }
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFFU];
    }
  }
  return tables;
}
constexpr Tables kCastagnoli = make_tables(0x82F63B78U);
constexpr Tables kEthernet = make_tables(0xEDB88320U);

std::uint32_t checksum_by(const Tables& tables, const void* data, std::size_t bytes, std::uint32_t previous) {
  const auto* position = static_cast<const unsigned char*>(data);
  std::uint32_t value = ~previous;
  for (; bytes >= 8; bytes -= 8, position += 8) {
    value ^= position[0] | (std::uint32_t{position[1]} << 8) | (std::uint32_t{position[2]} << 16) |
             (std::uint32_t{position[3]} << 24);
    value = tables[7][value & 0xFFU] ^ tables[6][(value >> 8) & 0xFFU] ^ tables[5][(value >> 16) & 0xFFU] ^
            tables[4][value >> 24] ^ tables[3][position[4]] ^ tables[2][position[5]] ^ tables[1][position[6]] ^
            tables[0][position[7]];
  }
  for (; bytes > 0; --bytes, ++position) {
    value = (value >> 8) ^ tables[0][(value ^ *position) & 0xFFU];
  }
  return ~value;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_instruction(const unsigned char* data, std::size_t bytes,
                                                                   std::uint32_t previous) {
  std::uint64_t value = ~previous;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    value = _mm_crc32_u64(value, word);
  }
  auto rest = static_cast<std::uint32_t>(value);
  for (; bytes > 0; --bytes, ++data) {
    rest = _mm_crc32_u8(rest, *data);
  }
  return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t previous) {
  return checksum_by(kCastagnoli, data, bytes, previous);
}

std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t previous) {
  return checksum_by(kEthernet, data, bytes, previous);
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t previous) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) {
    return crc32c_instruction(static_cast<const unsigned char*>(data), bytes, previous);
  }
#endif
  return crc32c_portable(data, bytes, previous);
}

std::string checksum_text(std::uint32_t checksum) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(8, '0');
  for (std::size_t i = 0; i < 8; ++i) {
    text[7 - i] = kDigits[(checksum >> (4 * i)) & 0xFU];
  }
  return text;
}

}  // namespace tesser
