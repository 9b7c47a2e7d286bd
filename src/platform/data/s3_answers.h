// The little XML that S3 answers with. Internal to this folder.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tesser::platform {

struct S3Object {
  std::string key;
  std::int64_t bytes = 0;
  std::string tag;  // ETag without quotes
};

struct S3Page {
  std::vector<S3Object> objects;
  std::string next;  // continuation token; empty at the end
};

// The text of the first element of this name, its entities decoded. Names must not be prefixes of attributes.
std::optional<std::string> element_text(std::string_view xml, std::string_view name);
std::optional<S3Page> read_s3_page(std::string_view xml);
// "&<>" as entities.
std::string xml_text(std::string_view text);

}  // namespace tesser::platform
