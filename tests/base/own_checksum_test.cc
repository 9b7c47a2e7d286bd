#include "base/own_checksum.h"

#include <cstddef>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser {
namespace {

using testing::HasSubstr;

constexpr std::string_view kText =
    "{\n\"format\":\"x\",\n\"version\":1,\n\"name\":\"größe\",\n\"entries\":[\n1,\n20\n]\n}\n";

// Why the text is refused; empty where it is not, or is no JSON.
std::string defect(const std::string& text) {
  const Result<Json> json = parse_json(text);
  const Result<void> checked = json ? check_own_checksum(text, *json) : Result<void>();
  return checked ? "" : checked.error().message;
}

TEST(OwnChecksum, StandsOnALineOfItsOwn) {
  const std::string whole = with_checksum(kText);
  // The same as zlib.crc32(text.encode()) in Python.
  EXPECT_THAT(whole, HasSubstr("\"version\":1,\n\"checksum\":\"be7ad186\",\n\"name\""));
  EXPECT_EQ(without_checksum(whole), kText);
  EXPECT_EQ(without_checksum(kText), kText);
  EXPECT_EQ(defect(whole), "");
}

TEST(OwnChecksum, AnyChangedByteIsRefused) {
  const std::string whole = with_checksum(kText);
  int refused = 0;
  for (std::size_t place = 0; place < whole.size(); ++place) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 1);
    const Result<Json> json = parse_json(changed);
    if (!json || json->find("checksum") == nullptr) {
      continue;  // refused by readers for what it is: no JSON, or an unknown key
    }
    EXPECT_THAT(defect(changed), HasSubstr("was damaged or changed by hand")) << changed;
    ++refused;
  }
  EXPECT_GT(refused, 20);
}

TEST(OwnChecksum, WhoeverChangesTheFileDeletesTheLine) {
  std::string changed = with_checksum(kText);
  changed.replace(changed.find("20"), 2, "21");
  EXPECT_THAT(defect(changed), testing::EndsWith("if by hand, delete the line \"checksum\""));
  EXPECT_EQ(defect(without_checksum(changed)), "");
  const Json json = parse_json(changed).value();
  EXPECT_THAT(check_own_checksum(changed, json, "").error().message, testing::EndsWith("changed by hand"));
}

TEST(OwnChecksum, ATextInAnotherFormIsAnother) {
  EXPECT_THAT(defect(R"({"version":1,"checksum":"be7ad186"})"), HasSubstr("on no line of its own"));
  EXPECT_THAT(defect("{\"version\":1,\n\"checksum\":7,\n\"x\":1}"), HasSubstr("on no line of its own"));
  EXPECT_THAT(defect("{\"version\":1,\n\"checksum\":\"BE7AD186\",\n\"x\":1}"), HasSubstr("states BE7AD186"));
}

}  // namespace
}  // namespace tesser
