// Values that no listing, log or stored manifest shows. A manifest has their names, "${NAME}"; the values lie in the
// job's secrets.json (mode 0600) and meet where they are used.
//
// Values; any thread. Errors are kInvalidInput and have names in them, never values.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

struct Manifest;

using Secrets = std::map<std::string, std::string>;

// The names in "https://${USER}:${PASSWORD}@host", in their order. "$${" is "${" itself. Fails on "${" without a name
// of letters, digits and underscores and a "}" behind it.
Result<std::vector<std::string>> secret_references(std::string_view text);
// The text with each reference replaced.
Result<std::string> with_secrets(std::string_view text, const Secrets& secrets);

// The environment that the command gets.
Result<std::map<std::string, std::string>> resolved_environment(const Manifest& manifest, const Secrets& secrets);

// secrets.json: an object of strings.
std::string to_json(const Secrets& secrets);
Result<Secrets> secrets_from_json(std::string_view json);

}  // namespace tesser::platform
