#include "platform/data/s3_answers.h"

#include <gtest/gtest.h>

namespace tesser::platform {
namespace {

TEST(S3Answers, APageIsRead) {
  const auto page = read_s3_page(
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\"><Name>b</Name><KeyCount>2</KeyCount>"
      "<IsTruncated>true</IsTruncated><Contents><Key>a &amp; b/&#x4e2d;&#228;</Key><Size>12</Size>"
      "<ETag>&quot;abc&quot;</ETag></Contents><Contents><Key>c</Key><ETag>\"d-2\"</ETag><Size>0</Size></Contents>"
      "<NextContinuationToken>x+/=</NextContinuationToken></ListBucketResult>");
  ASSERT_TRUE(page.has_value());
  ASSERT_EQ(page->objects.size(), 2U);
  EXPECT_EQ(page->objects[0].key, "a & b/\xe4\xb8\xad\xc3\xa4");
  EXPECT_EQ(page->objects[0].bytes, 12);
  EXPECT_EQ(page->objects[0].tag, "abc");
  EXPECT_EQ(page->objects[1].tag, "d-2");
  EXPECT_EQ(page->next, "x+/=");
}

TEST(S3Answers, AnEmptyListingIsOne) {
  const auto page = read_s3_page("<ListBucketResult><Prefix/><IsTruncated>false</IsTruncated></ListBucketResult>");
  ASSERT_TRUE(page.has_value());
  EXPECT_TRUE(page->objects.empty());
  EXPECT_TRUE(page->next.empty());
}

TEST(S3Answers, WhatIsNoListingIsNotRead) {
  for (const char* text : {"", "<html></html>", "<ListBucketResult>",
                           "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
                           "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
                           "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"}) {
    EXPECT_FALSE(read_s3_page(text).has_value()) << text;
  }
  EXPECT_EQ(element_text("<Error><Code>NoSuchKey</Code></Error>", "Code"), "NoSuchKey");
  EXPECT_FALSE(element_text("<Error><CodeX>a</CodeX></Error>", "Code").has_value());
  EXPECT_EQ(xml_text("a<b>&\"c\""), "a&lt;b&gt;&amp;\"c\"");
}

}  // namespace
}  // namespace tesser::platform
