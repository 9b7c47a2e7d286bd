// CRC-32C (Castagnoli), the checksum of checkpoints, data fingerprints and event files; and CRC-32, the one that zlib
// and Python have, of text files that Python writes too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tesser {

// Continues from the checksum of the bytes before these; 0 at the beginning. Uses the processor's instruction where
// there is one.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t previous = 0);

// The same without that instruction; public so that a test can hold one against the other.
std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t previous = 0);

// CRC-32, in the same way.
std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t previous = 0);

// Eight hexadecimal digits, lower case.
std::string checksum_text(std::uint32_t checksum);

}  // namespace tesser
