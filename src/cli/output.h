// What a command prints: results on standard output, messages for people on standard error.
//
// Results that could not be written are an error, with which run() (command_line.h) ends. A reader that has closed its
// pipe ends the command as SIGPIPE ends other programs, or the output alone where the command has more to do. A message
// that nobody can read is lost and nothing else.
#pragma once

#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "base/result.h"

namespace tesser::cli {

// Before anything is opened: standard descriptors that are closed are given away to no file, and a closed pipe becomes
// an error of the write.
void prepare_output();

// From now on a closed pipe ends the output and not the command.
void outlive_output();

// Buffered, as standard output is. After a failure nothing more is written.
void write_output(std::string_view text);
void write_message(std::string_view text);

template <typename... Arguments>
void print_output(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write_output(fmt::format(format, std::forward<Arguments>(arguments)...));
}
template <typename... Arguments>
void print_message(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write_message(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Writes what is buffered. kFailed where that, or anything printed before, could not be written; a closed pipe that the
// command outlives is no error.
Result<void> flush_output();

// Whether a file that a command writes is its standard output (-o /dev/stdout), where a summary does not belong.
bool is_standard_output(const std::filesystem::path& path);

// A summary of what was written to `path`: on standard output, or where the results went there, on standard error.
template <typename... Arguments>
void print_summary(const std::filesystem::path& path, fmt::format_string<Arguments...> format,
                   Arguments&&... arguments) {
  const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  is_standard_output(path) ? write_message(text) : write_output(text);
}

}  // namespace tesser::cli
