// SHA-256 (FIPS 180-4) and its keyed form HMAC (RFC 2104), as signatures of requests need them.
//
// Values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tesser::platform {

// Of text that comes in pieces.
class Sha256 {
 public:
  void update(std::string_view bytes);
  // The 32 bytes of the hash of all that came; nothing may follow.
  std::string digest();

 private:
  void take_block(const char* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<char, 64> waiting_{};  // what is not yet a whole block
  std::uint64_t bytes_ = 0;
};

std::string sha256(std::string_view bytes);
std::string hmac_sha256(std::string_view key, std::string_view bytes);
// Whether two hashes are the same, in a time that does not depend on where they differ.
bool is_same_hash(std::string_view a, std::string_view b);
// Two digits a byte, in lower case.
std::string hexadecimal(std::string_view bytes);

}  // namespace tesser::platform
