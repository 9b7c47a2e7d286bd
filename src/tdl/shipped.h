// The texts of src/tdl/operators/*.tdl, compiled in. Internal to this folder.
#pragma once

#include <span>
#include <string_view>

namespace tesser::tdl {

struct ShippedText {
  std::string_view file;  // "core.tdl"
  std::string_view text;
};

std::span<const ShippedText> shipped_texts();  // by name of file

}  // namespace tesser::tdl
