// The text of URLs.
//
// Values; any thread.
#pragma once

#include <string>
#include <string_view>

namespace tesser::platform {

// Every byte but letters, digits and "-._~" as %XX: a part of a path or query. `slash` keeps "/" too.
std::string url_encoded(std::string_view text, bool slash = false);
// The other way; what is no %XX stays as it is.
std::string url_decoded(std::string_view text);

struct UrlParts {
  std::string scheme;     // "https"
  std::string authority;  // "HOST[:PORT]" as the Host header has it: without the scheme's own port
  std::string path;       // from "/", as it is encoded
  std::string query;      // without "?"
};
// Parts that are not there are empty, but the path, which is "/".
UrlParts split_url(std::string_view url);

}  // namespace tesser::platform
