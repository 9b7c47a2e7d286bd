#include "platform/data/s3_answers.h"

#include <charconv>

namespace tesser::platform {
namespace {

void append_utf8(std::string& text, std::uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0U | (code >> 6U));
    text += static_cast<char>(0x80U | (code & 0x3fU));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0U | (code >> 12U));
    text += static_cast<char>(0x80U | ((code >> 6U) & 0x3fU));
    text += static_cast<char>(0x80U | (code & 0x3fU));
  } else {
    text += static_cast<char>(0xf0U | (code >> 18U));
    text += static_cast<char>(0x80U | ((code >> 12U) & 0x3fU));
    text += static_cast<char>(0x80U | ((code >> 6U) & 0x3fU));
    text += static_cast<char>(0x80U | (code & 0x3fU));
  }
}

std::string decoded(std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const std::size_t end = text.front() == '&' ? text.find(';') : std::string_view::npos;
    if (end == std::string_view::npos) {
      made += text.front();
      text.remove_prefix(1);
      continue;
    }
    const std::string_view name = text.substr(1, end - 1);
    if (name == "amp") {
      made += '&';
    } else if (name == "lt") {
      made += '<';
    } else if (name == "gt") {
      made += '>';
    } else if (name == "quot") {
      made += '"';
    } else if (name == "apos") {
      made += '\'';
    } else if (name.starts_with('#')) {
      const bool is_hexadecimal = name.starts_with("#x");
      std::uint32_t code = 0;
      const std::string_view digits = name.substr(is_hexadecimal ? 2 : 1);
      std::from_chars(digits.data(), digits.data() + digits.size(), code, is_hexadecimal ? 16 : 10);
      append_utf8(made, code <= 0x10ffff ? code : 0xfffd);
    } else {
      made += text.substr(0, end + 1);
    }
    text.remove_prefix(end + 1);
  }
  return made;
}

// What stands between <NAME ...> and </NAME>; `xml` then begins behind it.
std::optional<std::string_view> take_element(std::string_view& xml, std::string_view name) {
  const std::string opening = "<" + std::string(name);
  for (std::size_t begin = xml.find(opening); begin != std::string_view::npos; begin = xml.find(opening, begin + 1)) {
    const std::size_t after = begin + opening.size();
    if (after >= xml.size() || (xml[after] != '>' && xml[after] != ' ' && xml[after] != '/')) {
      continue;
    }
    const std::size_t close = xml.find('>', after);
    if (close == std::string_view::npos) {
      return std::nullopt;
    }
    if (xml[close - 1] == '/') {
      xml.remove_prefix(close + 1);
      return std::string_view();
    }
    const std::string closing = "</" + std::string(name) + ">";
    const std::size_t end = xml.find(closing, close);
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view content = xml.substr(close + 1, end - close - 1);
    xml.remove_prefix(end + closing.size());
    return content;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> element_text(std::string_view xml, std::string_view name) {
  const auto content = take_element(xml, name);
  return content ? std::optional(decoded(*content)) : std::nullopt;
}

std::optional<S3Page> read_s3_page(std::string_view xml) {
  std::string_view rest = xml;
  const auto listing = take_element(rest, "ListBucketResult");
  if (!listing) {
    return std::nullopt;
  }
  S3Page page;
  rest = *listing;
  while (const auto contents = take_element(rest, "Contents")) {
    S3Object object;
    object.key = element_text(*contents, "Key").value_or("");
    const std::string bytes = element_text(*contents, "Size").value_or("");
    const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), object.bytes);
    if (object.key.empty() || error != std::errc{} || object.bytes < 0) {
      return std::nullopt;
    }
    for (const char c : element_text(*contents, "ETag").value_or("")) {
      if (c != '"') {
        object.tag += c;
      }
    }
    page.objects.push_back(std::move(object));
  }
  if (element_text(*listing, "IsTruncated") == "true") {
    page.next = element_text(*listing, "NextContinuationToken").value_or("");
    if (page.next.empty()) {
      return std::nullopt;
    }
  }
  return page;
}

std::string xml_text(std::string_view text) {
  std::string made;
  for (const char c : text) {
    made += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  }
  return made;
}

}  // namespace tesser::platform
