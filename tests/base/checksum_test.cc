#include "base/checksum.h"

#include <string>

#include <gtest/gtest.h>

namespace tesser {
namespace {

TEST(Checksum, KnownValues) {
  // RFC 3720, B.4, and the check value of the CRC catalogue.
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF').data(), 32), 0x62A8AB43U);
  EXPECT_EQ(crc32c("", 0), 0U);
  EXPECT_EQ(crc32("123456789", 9), 0xCBF43926U);
  EXPECT_EQ(crc32("6789", 4, crc32("12345", 5)), 0xCBF43926U);
}

TEST(Checksum, InstructionAndTablesAgreeAndPiecesContinue) {
  std::string text;
  for (std::size_t length = 0; length < 300; ++length) {
    const std::uint32_t whole = crc32c(text.data(), text.size());
    EXPECT_EQ(whole, crc32c_portable(text.data(), text.size()));
    const std::size_t cut = length / 3;
    EXPECT_EQ(whole, crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)));
    text += static_cast<char>(length * 37 + 11);
  }
}

TEST(Checksum, Text) {
  EXPECT_EQ(checksum_text(0xE3069283U), "e3069283");
  EXPECT_EQ(checksum_text(0x1U), "00000001");
}

}  // namespace
}  // namespace tesser
