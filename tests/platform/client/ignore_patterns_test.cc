#include "platform/client/ignore_patterns.h"

#include <string>

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

TEST(IgnorePatterns, FitLikeThoseOfGit) {
  const IgnorePatterns patterns(
      "# comment\n\n*.log\r\n/top\nbuild/\na/*/c\ndocs/**/x.txt\n**/deep\n!keep.log\nw?rd\n\\!odd\nend/**\n");
  const auto ignores = [&](const char* path) { return patterns.ignores(path, false); };
  EXPECT_TRUE(ignores("x.log"));
  EXPECT_TRUE(ignores("a/b/x.log"));
  EXPECT_FALSE(ignores("keep.log"));
  EXPECT_FALSE(ignores("a/keep.log"));
  EXPECT_TRUE(ignores("top"));
  EXPECT_FALSE(ignores("a/top"));
  EXPECT_FALSE(ignores("build"));
  EXPECT_TRUE(patterns.ignores("build", true));
  EXPECT_TRUE(patterns.ignores("a/build", true));
  EXPECT_TRUE(ignores("a/b/c"));
  EXPECT_FALSE(ignores("a/b/b/c"));
  EXPECT_TRUE(ignores("docs/x.txt"));
  EXPECT_TRUE(ignores("docs/a/b/x.txt"));
  EXPECT_TRUE(ignores("a/b/deep"));
  EXPECT_TRUE(ignores("deep"));
  EXPECT_TRUE(ignores("word"));
  EXPECT_FALSE(ignores("woord"));
  EXPECT_TRUE(ignores("!odd"));
  EXPECT_TRUE(ignores("end/a/b"));
  EXPECT_FALSE(ignores("comment"));
}

TEST(IgnorePatterns, WhatNoJobNeedsIsLeftOutAlways) {
  const IgnorePatterns patterns("");
  EXPECT_TRUE(patterns.ignores(".git", true));
  EXPECT_TRUE(patterns.ignores("a/__pycache__", true));
  EXPECT_TRUE(patterns.ignores("a/b.pyc", false));
  EXPECT_FALSE(patterns.ignores("train.py", false));
  EXPECT_FALSE(IgnorePatterns("!*.pyc\n").ignores("b.pyc", false));
}

TEST(IgnorePatterns, NoPatternTakesForEver) {
  const IgnorePatterns patterns(std::string(200, '*') + "b\n" + [] {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += "*a";
    }
    return text + "\n";
  }());
  EXPECT_FALSE(patterns.ignores(std::string(3000, 'a') + "c", false));
}

}  // namespace
}  // namespace tesser::platform
