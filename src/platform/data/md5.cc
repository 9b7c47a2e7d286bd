#include "platform/data/md5.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

namespace tesser::platform {
namespace {

constexpr std::array<int, 16> kShifts = {7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21};

// The whole part of 2^32 |sin(i + 1)|, as the RFC makes its table.
const std::array<std::uint32_t, 64>& sines() {
  static const std::array<std::uint32_t, 64> kSines = [] {
    std::array<std::uint32_t, 64> made{};
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = static_cast<std::uint32_t>(std::floor(std::abs(std::sin(static_cast<double>(i + 1))) * 4294967296.0));
    }
    return made;
  }();
  return kSines;
}

void take_block(std::array<std::uint32_t, 4>& state, const char* block) {
  std::array<std::uint32_t, 16> words;
  std::memcpy(words.data(), block, 64);  // little-endian, as the machine is
  auto [a, b, c, d] = state;
  for (std::uint32_t i = 0; i < 64; ++i) {
    std::uint32_t mixed = 0;
    std::uint32_t word = 0;
    switch (i / 16) {
      case 0:
        mixed = (b & c) | (~b & d);
        word = i;
        break;
      case 1:
        mixed = (d & b) | (~d & c);
        word = (5 * i + 1) % 16;
        break;
      case 2:
        mixed = b ^ c ^ d;
        word = (3 * i + 5) % 16;
        break;
      default:
        mixed = c ^ (b | ~d);
        word = (7 * i) % 16;
    }
    const std::uint32_t next = b + std::rotl(a + mixed + sines()[i] + words[word], kShifts[i / 16 * 4 + i % 4]);
    a = d;
    d = c;
    c = b;
    b = next;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
}

}  // namespace

std::string md5(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  std::array<std::uint32_t, 4> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::size_t done = 0;
  for (; done + 64 <= bytes.size(); done += 64) {
    take_block(state, bytes.data() + done);
  }
  std::string tail(bytes.substr(done));
  tail += '\x80';
  tail.resize((tail.size() + 8 + 63) / 64 * 64);
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  std::memcpy(tail.data() + tail.size() - 8, &bits, 8);
  for (std::size_t i = 0; i < tail.size(); i += 64) {
    take_block(state, tail.data() + i);
  }
  std::string digits;
  for (const std::uint32_t word : state) {
    digits += fmt::format("{:08x}", __builtin_bswap32(word));
  }
  return digits;
}

}  // namespace tesser::platform
