#include "platform/web/sha256.h"

#include <algorithm>
#include <bit>

namespace tesser::platform {
namespace {

constexpr std::size_t kBlockBytes = 64;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int byte = 0; byte < 4; ++byte) {
    value = (value << 8) | static_cast<unsigned char>(bytes[byte]);
  }
  return value;
}

}  // namespace

void Sha256::take_block(const char* block) {
  std::array<std::uint32_t, 64> words;
  for (std::size_t i = 0; i < 16; ++i) {
    words[i] = big_endian(block + 4 * i);
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t first = words[i - 15];
    const std::uint32_t second = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + (std::rotr(first, 7) ^ std::rotr(first, 18) ^ (first >> 3)) +
               (std::rotr(second, 17) ^ std::rotr(second, 19) ^ (second >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const std::uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + choice + kRound[i] + words[i];
    const std::uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> changed{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state_.size(); ++i) {
    state_[i] += changed[i];
  }
}

void Sha256::update(std::string_view bytes) {
  std::size_t held = bytes_ % kBlockBytes;
  bytes_ += bytes.size();
  if (held != 0) {
    const std::size_t taken = std::min(bytes.size(), kBlockBytes - held);
    std::copy_n(bytes.data(), taken, waiting_.data() + held);
    bytes.remove_prefix(taken);
    held += taken;
    if (held < kBlockBytes) {
      return;
    }
    take_block(waiting_.data());
  }
  for (; bytes.size() >= kBlockBytes; bytes.remove_prefix(kBlockBytes)) {
    take_block(bytes.data());
  }
  std::copy(bytes.begin(), bytes.end(), waiting_.begin());
}

std::string Sha256::digest() {
  const std::uint64_t bits = 8 * bytes_;
  const std::size_t held = bytes_ % kBlockBytes;
  std::string padding(1, '\x80');
  padding.append((held < 56 ? 55 : 119) - held, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) {
    padding += static_cast<char>(bits >> shift);
  }
  update(padding);
  std::string hash;
  for (const std::uint32_t word : state_) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      hash += static_cast<char>(word >> shift);
    }
  }
  return hash;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.digest();
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string block = key.size() > kBlockBytes ? sha256(key) : std::string(key);
  block.resize(kBlockBytes, '\0');
  const auto with = [&](char mask) {
    std::string masked = block;
    for (char& byte : masked) {
      byte = static_cast<char>(byte ^ mask);
    }
    return masked;
  };
  return sha256(with('\x5c') + sha256(with('\x36') + std::string(bytes)));
}

bool is_same_hash(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

}  // namespace tesser::platform
