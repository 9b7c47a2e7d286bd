#include "platform/web/url.h"

#include <charconv>

namespace tesser::platform {
namespace {

bool is_unreserved(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '-' ||
         byte == '.' || byte == '_' || byte == '~';
}

bool is_hexadecimal(char digit) {
  return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f') || (digit >= 'A' && digit <= 'F');
}

}  // namespace

std::string url_encoded(std::string_view text, bool slash) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char byte : text) {
    if (is_unreserved(byte) || (slash && byte == '/')) {
      encoded += byte;
    } else {
      encoded += '%';
      encoded += kDigits[static_cast<unsigned char>(byte) >> 4];
      encoded += kDigits[static_cast<unsigned char>(byte) & 15];
    }
  }
  return encoded;
}

std::string url_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '%' && at + 2 < text.size() && is_hexadecimal(text[at + 1]) && is_hexadecimal(text[at + 2])) {
      unsigned value = 0;
      std::from_chars(text.data() + at + 1, text.data() + at + 3, value, 16);
      decoded += static_cast<char>(value);
      at += 2;
    } else {
      decoded += text[at];
    }
  }
  return decoded;
}

UrlParts split_url(std::string_view url) {
  UrlParts parts;
  url = url.substr(0, url.find('#'));
  if (const std::size_t scheme = url.find("://"); scheme != std::string_view::npos) {
    parts.scheme = url.substr(0, scheme);
    url.remove_prefix(scheme + 3);
  }
  const std::size_t question = url.find('?');
  if (question != std::string_view::npos) {
    parts.query = url.substr(question + 1);
    url = url.substr(0, question);
  }
  const std::size_t slash = url.find('/');
  parts.path = slash != std::string_view::npos ? std::string(url.substr(slash)) : "/";
  std::string_view authority = url.substr(0, slash);
  if (const std::size_t user = authority.rfind('@'); user != std::string_view::npos) {
    authority.remove_prefix(user + 1);
  }
  const std::string_view own_port = parts.scheme == "https" ? ":443" : ":80";
  if (authority.ends_with(own_port)) {
    authority.remove_suffix(own_port.size());
  }
  parts.authority = authority;
  return parts;
}

}  // namespace tesser::platform
