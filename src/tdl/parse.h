// .tdl text to descriptions. Internal to this folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tdl/description.h"

namespace tesser::tdl {

// All descriptions of a text, in its order. The first defect is the error (kInvalidInput): "my.tdl:3:14: expected ']'
// ...", with the line and a mark under the place.
Result<std::vector<std::shared_ptr<const Description>>> parse(std::string_view text, const std::string& file);

// A defect at a place of the text.
struct Defect {
  Position position;
  std::string message;
};

// Gives every name its meaning, checks the use of variables, and finds the terms of the equations. Part of parse().
std::optional<Defect> resolve(Description& description);

}  // namespace tesser::tdl
