// AWS Signature Version 4 for S3 and what speaks like it.
//
// Signed here and not by libcurl, whose version in Debian 12 signs paths and queries as they stand, unsorted.
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tesser::platform {

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty: none
  std::string region = "us-east-1";
  std::string service = "s3";
};

// What stands for the hash of a body that is not known before it is sent.
inline constexpr const char* kUnsignedPayload = "UNSIGNED-PAYLOAD";

// The headers to add to a request so that it is signed: x-amz-date, x-amz-content-sha256, x-amz-security-token where
// there is one, and authorization. All `headers` and the host of the URL are signed with it and must be sent as given.
// `url` is encoded as it is sent: each part of the path once, by url_encoded(). `seconds` is the time since 1970.
std::vector<std::pair<std::string, std::string>> aws_signature(
    const AwsCredentials& credentials, std::string_view method, std::string_view url,
    const std::vector<std::pair<std::string, std::string>>& headers, const std::string& payload_sha256,
    std::int64_t seconds);

}  // namespace tesser::platform
