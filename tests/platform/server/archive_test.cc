#include "platform/server/archive.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ArchiveTest : public ::testing::Test {
 protected:
  ArchiveTest() { fs::create_directory(directory_ / "out"); }

  // A ZIP that Python makes: statements about `z`, a zipfile.ZipFile.
  fs::path zip(const std::string& statements) {
    const fs::path path = directory_ / "code.zip";
    std::ofstream(directory_ / "make.py") << "import zipfile\nwith zipfile.ZipFile('" << path.string()
                                          << "', 'w', zipfile.ZIP_DEFLATED) as z:\n  " << statements << "\n";
    EXPECT_EQ(std::system(("python3 " + (directory_ / "make.py").string()).c_str()), 0);
    return path;
  }
  std::string why_not(const std::string& statements, const UnpackLimits& limits = {}) {
    const auto unpacked = unpack_zip(zip(statements), directory_ / "out", limits);
    EXPECT_FALSE(unpacked);
    return unpacked ? "" : unpacked.error().message;
  }
  static std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryDirectory directory_;
};

TEST_F(ArchiveTest, AZipComesOutAsItWentIn) {
  const auto path =
      zip("z.writestr('a', 'x' * 1000000); z.writestr('d/e/ö.txt', 'y'); z.writestr('./f', ''); "
          "i = zipfile.ZipInfo('run.sh'); i.external_attr = 0o100755 << 16; z.writestr(i, 'true')");
  ASSERT_TRUE(unpack_zip(path, directory_ / "out", {}));
  EXPECT_EQ(content(directory_ / "out" / "a"), std::string(1'000'000, 'x'));
  EXPECT_EQ(content(directory_ / "out" / "d" / "e" / "ö.txt"), "y");
  EXPECT_TRUE(fs::exists(directory_ / "out" / "f"));
  EXPECT_EQ(fs::status(directory_ / "out" / "run.sh").permissions(), fs::perms(0755));
  EXPECT_EQ(fs::status(directory_ / "out" / "a").permissions(), fs::perms(0644));
}

TEST_F(ArchiveTest, WhatIsHostileIsRefused) {
  EXPECT_THAT(why_not("z.writestr('../x', '')"), HasSubstr("leads out"));
  EXPECT_THAT(why_not("z.writestr('/x', '')"), HasSubstr("relative"));
  EXPECT_THAT(why_not("z.writestr('a/../../x', '')"), HasSubstr("leads out"));
  EXPECT_THAT(why_not("z.writestr('same', ''); z.writestr('./same', '')"), HasSubstr("twice"));
  EXPECT_THAT(why_not("z.writestr('big', 'x' * 1001)", {1000, 10}), HasSubstr("more than"));
  EXPECT_THAT(why_not("[z.writestr('many' + str(i), '') for i in range(11)]", {1000, 10}), HasSubstr("more than 10"));
  EXPECT_THAT(why_not("i = zipfile.ZipInfo('l'); i.external_attr = 0o120777 << 16; z.writestr(i, '/etc')"),
              HasSubstr("link"));
  EXPECT_FALSE(fs::exists(directory_ / "x"));
}

TEST_F(ArchiveTest, ATarHasWhatTheDirectoryHas) {
  const fs::path from = directory_ / "from";
  fs::create_directories(from / "d" / "empty");
  std::ofstream(from / "d" / "a") << std::string(300'000, 'a');
  std::ofstream(from / "ö") << "umlaut";
  fs::create_symlink("d/a", from / "link");
  std::ofstream tar(directory_ / "t.tar", std::ios::binary);
  ASSERT_TRUE(write_tar(from, [&](std::string_view piece) {
    tar << piece;
    return true;
  }));
  tar.close();
  ASSERT_EQ(
      std::system(("tar -xf " + (directory_ / "t.tar").string() + " -C " + (directory_ / "out").string()).c_str()), 0);
  EXPECT_EQ(std::system(("diff -r " + from.string() + " " + (directory_ / "out").string()).c_str()), 0);
  EXPECT_TRUE(fs::is_symlink(directory_ / "out" / "link"));
  EXPECT_TRUE(fs::is_directory(directory_ / "out" / "d" / "empty"));
  EXPECT_FALSE(write_tar(from, [](std::string_view) { return false; }));  // the client is gone
  EXPECT_FALSE(write_tar(directory_ / "none", [](std::string_view) { return true; }));
}

// Commands name files as they like.
TEST_F(ArchiveTest, NamesThatAreNoUtf8ArePackedAsTheyAre) {
  const fs::path from = directory_ / "from";
  fs::create_directory(from);
  std::ofstream(from / "caf\xe9") << "x";
  std::ofstream(from / "other") << "y";
  std::string tar;
  ASSERT_TRUE(write_tar(from, [&](std::string_view piece) {
    tar.append(piece);
    return true;
  }));
  std::ofstream(directory_ / "made.tar", std::ios::binary) << tar;
  const fs::path out = directory_ / "out";
  ASSERT_EQ(std::system(("tar -C " + out.string() + " -xf " + (directory_ / "made.tar").string()).c_str()), 0);
  EXPECT_EQ(content(out / "caf\xe9"), "x");
  EXPECT_EQ(content(out / "other"), "y");
}

}  // namespace
}  // namespace tesser::platform
