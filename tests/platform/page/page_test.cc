#include "platform/page/page.h"

#include <regex>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/file.h"

namespace tesser::platform {
namespace {

TEST(Page, FilesAreThoseOfTheFolderByteByByte) {
  ASSERT_GT(page_files().size(), 3U);
  for (const PageFile& file : page_files()) {
    const auto source =
        read_file(std::string(TESSER_SOURCE_DIR "/src/platform/page/") + std::string(file.name), 1 << 20);
    ASSERT_TRUE(source) << file.name;
    std::string expected = *source;
    if (const auto at = expected.find("@PAGE_VERSION@"); at != std::string::npos) {
      expected = std::regex_replace(expected, std::regex("@PAGE_VERSION@"), std::string(page_version()));
    }
    EXPECT_EQ(file.content, expected) << file.name;
  }
}

TEST(Page, DigestsTellFilesApart) {
  std::set<std::string_view> digests;
  for (const PageFile& file : page_files()) {
    EXPECT_EQ(file.digest.size(), 32U);
    digests.insert(file.digest);
  }
  EXPECT_EQ(digests.size(), page_files().size());
}

TEST(Page, EverythingNamedByAFileIsThere) {
  const std::regex named(R"re((?:from |import\(|href=|src=)"(?:\./|/assets/[0-9a-f]+/)([a-z_]+\.(?:js|css|svg))")re");
  int found = 0;
  for (const PageFile& file : page_files()) {
    const std::string text(file.content);
    for (std::sregex_iterator each(text.begin(), text.end(), named), end; each != end; ++each, ++found) {
      EXPECT_NE(page_file((*each)[1].str()), nullptr) << file.name << " names " << (*each)[1];
    }
  }
  EXPECT_GT(found, 5);
}

TEST(Page, NothingIsFetchedFromElsewhereAndNothingIsInline) {
  const std::regex elsewhere(R"re((?:src|href|url|import|from)\s*[=(]?\s*["']?(?:https?:)?//)re");
  for (const PageFile& file : page_files()) {
    EXPECT_FALSE(std::regex_search(std::string(file.content), elsewhere)) << file.name;
  }
  const std::string html(page_file("index.html")->content);
  EXPECT_FALSE(std::regex_search(html, std::regex(R"re(<style|\sstyle=|\son[a-z]+=|<script>)re")));
}

TEST(Page, UnknownFilesAreNone) {
  EXPECT_EQ(page_file(""), nullptr);
  EXPECT_EQ(page_file("../page.h"), nullptr);
}

}  // namespace
}  // namespace tesser::platform
