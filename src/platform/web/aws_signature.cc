#include "platform/web/aws_signature.h"

#include <algorithm>
#include <cctype>
#include <ctime>

#include <fmt/format.h>

#include "platform/web/sha256.h"
#include "platform/web/url.h"

namespace tesser::platform {
namespace {

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return result;
}

// Without spaces at its ends, and one for each run of them inside.
std::string trimmed(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter != ' ' || (!result.empty() && result.back() != ' ')) {
      result += letter;
    }
  }
  if (!result.empty() && result.back() == ' ') {
    result.pop_back();
  }
  return result;
}

// Names and values encoded one way, sorted.
std::string canonical_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), parameter.size() + 1));
    if (parameter.empty()) {
      continue;
    }
    const std::size_t equals = std::min(parameter.find('='), parameter.size());
    parameters.emplace_back(url_encoded(url_decoded(parameter.substr(0, equals))),
                            url_encoded(url_decoded(parameter.substr(std::min(parameter.size(), equals + 1)))));
  }
  std::sort(parameters.begin(), parameters.end());
  std::string text;
  for (const auto& [name, value] : parameters) {
    text += (text.empty() ? "" : "&") + name + "=" + value;
  }
  return text;
}

std::string time_text(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> aws_signature(
    const AwsCredentials& credentials, std::string_view method, std::string_view url,
    const std::vector<std::pair<std::string, std::string>>& headers, const std::string& payload_sha256,
    std::int64_t seconds) {
  const UrlParts parts = split_url(url);
  const std::string time = time_text(seconds);
  const std::string day = time.substr(0, 8);

  std::vector<std::pair<std::string, std::string>> added{{"x-amz-date", time}};
  if (credentials.service == "s3") {
    added.emplace_back("x-amz-content-sha256", payload_sha256);
  }
  if (!credentials.session_token.empty()) {
    added.emplace_back("x-amz-security-token", credentials.session_token);
  }
  std::vector<std::pair<std::string, std::string>> signed_headers{{"host", parts.authority}};
  for (const auto& list : {headers, added}) {
    for (const auto& [name, value] : list) {
      signed_headers.emplace_back(lower_case(name), trimmed(value));
    }
  }
  std::stable_sort(signed_headers.begin(), signed_headers.end(),
                   [](const auto& left, const auto& right) { return left.first < right.first; });

  std::string canonical_headers;
  std::string names;
  for (const auto& [name, value] : signed_headers) {
    canonical_headers += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string request = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", method, parts.path, canonical_query(parts.query),
                                          canonical_headers, names, payload_sha256);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", day, credentials.region, credentials.service);
  const std::string text = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, hexadecimal(sha256(request)));
  std::string key = "AWS4" + credentials.secret_key;
  for (const std::string_view part : {std::string_view(day), std::string_view(credentials.region),
                                      std::string_view(credentials.service), std::string_view("aws4_request")}) {
    key = hmac_sha256(key, part);
  }
  added.emplace_back("authorization",
                     fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                                 credentials.access_key, scope, names, hexadecimal(hmac_sha256(key, text))));
  return added;
}

}  // namespace tesser::platform
