#include "platform/web/aws_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "platform/web/sha256.h"
#include "platform/web/url.h"

namespace tesser::platform {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(Sha256Test, HashesTheStandardsExamples) {
  EXPECT_EQ(hexadecimal(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hexadecimal(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hexadecimal(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hexadecimal(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, DoesNotDependOnHowTextIsCut) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += static_cast<char>(i);
    for (const std::size_t piece : {1, 3, 63, 64, 65, 128}) {
      Sha256 hash;
      for (std::size_t at = 0; at < text.size(); at += piece) {
        hash.update(std::string_view(text).substr(at, piece));
      }
      ASSERT_EQ(hash.digest(), sha256(text)) << text.size() << " bytes in pieces of " << piece;
    }
  }
}

// RFC 4231, cases 1, 2, 6.
TEST(Sha256Test, KeysAsHmac) {
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hexadecimal(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// The examples of Amazon's page "Signature Calculations for the Authorization Header" of S3.
struct Example {
  std::string method;
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string signature;
};

class S3Examples : public ::testing::TestWithParam<Example> {};

TEST_P(S3Examples, AreSignedAsAmazonDoes) {
  const Example& example = GetParam();
  const AwsCredentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "us-east-1",
                                   "s3"};
  const std::int64_t seconds = 1369353600;  // 24 May 2013, 0:00
  const auto headers = aws_signature(credentials, example.method, example.url, example.headers,
                                     hexadecimal(sha256(example.body)), seconds);
  EXPECT_EQ(headers.front().second, "20130524T000000Z");
  EXPECT_EQ(headers.back().first, "authorization");
  EXPECT_THAT(headers.back().second, EndsWith("Signature=" + example.signature));
}

INSTANTIATE_TEST_SUITE_P(AwsSignatureTest, S3Examples,
                         ::testing::Values(Example{"GET",
                                                   "https://examplebucket.s3.amazonaws.com/test.txt",
                                                   {{"Range", "bytes=0-9"}},
                                                   "",
                                                   "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
                                           Example{"PUT",
                                                   "https://examplebucket.s3.amazonaws.com/test%24file.text",
                                                   {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                                                    {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                                                   "Welcome to Amazon S3.",
                                                   "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
                                           Example{"GET",
                                                   "https://examplebucket.s3.amazonaws.com/?lifecycle",
                                                   {},
                                                   "",
                                                   "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
                                           Example{
                                               "GET",
                                               "https://examplebucket.s3.amazonaws.com:443/?prefix=J&max-keys=2",
                                               {},
                                               "",
                                               "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"}));

// get-vanilla-query-order-key-case of Amazon's test suite for Signature Version 4.
TEST(AwsSignatureTest, SortsTheQuery) {
  const AwsCredentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "", "us-east-1",
                                   "service"};
  const auto headers = aws_signature(credentials, "GET", "https://example.amazonaws.com/?Param2=value2&Param1=value1",
                                     {}, hexadecimal(sha256("")), 1440938160);
  EXPECT_THAT(headers.back().second,
              EndsWith("Signature=b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"));
}

TEST(AwsSignatureTest, SignsTheTokenOfASession) {
  const AwsCredentials credentials{"key", "secret", "token", "eu-central-1", "s3"};
  const auto headers = aws_signature(credentials, "GET", "https://bucket/", {}, kUnsignedPayload, 0);
  EXPECT_THAT(headers, ::testing::Contains(std::pair<std::string, std::string>("x-amz-security-token", "token")));
  EXPECT_THAT(headers.back().second,
              HasSubstr("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"));
  EXPECT_THAT(headers.back().second, HasSubstr("Credential=key/19700101/eu-central-1/s3/aws4_request,"));
}

TEST(UrlTest, EncodesEveryByteThatCouldMeanSomething) {
  EXPECT_EQ(url_encoded("a b/c+d~é%"), "a%20b%2Fc%2Bd~%C3%A9%25");
  EXPECT_EQ(url_encoded("a b/c", true), "a%20b/c");
  EXPECT_EQ(url_decoded("a%20b%2fc%C3%A9"), "a b/cé");
  EXPECT_EQ(url_decoded("100%"), "100%");
  EXPECT_EQ(url_decoded("%zz%4"), "%zz%4");
}

TEST(UrlTest, Splits) {
  const UrlParts parts = split_url("https://user:word@host:443/a/b%20c?d=e&f#g");
  EXPECT_EQ(parts.scheme, "https");
  EXPECT_EQ(parts.authority, "host");
  EXPECT_EQ(parts.path, "/a/b%20c");
  EXPECT_EQ(parts.query, "d=e&f");
  EXPECT_EQ(split_url("http://[::1]:8080").authority, "[::1]:8080");
  EXPECT_EQ(split_url("http://host:80").path, "/");
  EXPECT_EQ(split_url("https://host?a=/b").query, "a=/b");
}

}  // namespace
}  // namespace tesser::platform
