// The functions that indices, attributes and local calls may use. Internal to this folder.
#pragma once

#include <string_view>

#include "tdl/description.h"

namespace tesser::tdl {

enum class FirstArgument : std::uint8_t { kValue, kTensor, kParameter, kVariable };

struct FunctionName {
  std::string_view name;
  Function function;
  int fewest;  // arguments
  int most;
  FirstArgument first;
  bool local;  // in a local call only
  std::string_view usage;
};

const FunctionName* find_function(std::string_view name);  // nullptr when there is none

}  // namespace tesser::tdl
