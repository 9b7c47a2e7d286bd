// The texts of the .layout files of this folder, compiled in (embed.cmake).
#pragma once

#include <string_view>

namespace tesser::layout {

std::string_view measured_statements();  // operators.layout
std::string_view own_statements();       // tesser.layout

}  // namespace tesser::layout
