#include "platform/job/secrets.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_members.h"
#include "platform/job/manifest.h"

namespace tesser::platform {
namespace {

bool may_be_in_name(char c, bool first) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

// Calls `plain` with each piece of literal text and `reference` with each name.
template <typename Plain, typename Reference>
Result<void> walk(std::string_view text, const Plain& plain, const Reference& reference) {
  while (!text.empty()) {
    const std::size_t dollar = std::min(text.find("${"), text.size());
    if (dollar > 0 && dollar < text.size() && text[dollar - 1] == '$') {
      plain(text.substr(0, dollar - 1));
      plain("${");
      text.remove_prefix(dollar + 2);
      continue;
    }
    plain(text.substr(0, dollar));
    text.remove_prefix(dollar);
    if (text.empty()) {
      break;
    }
    std::size_t end = 2;
    while (end < text.size() && may_be_in_name(text[end], end == 2)) {
      ++end;
    }
    if (end == 2 || end == text.size() || text[end] != '}') {
      return invalid_input(
          "'${' is not followed by a name of letters, digits and underscores and '}'; '$${' stands "
          "for '${' itself");
    }
    TESSER_RETURN_IF_ERROR(reference(std::string(text.substr(2, end - 2))));
    text.remove_prefix(end + 1);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> secret_references(std::string_view text) {
  std::vector<std::string> names;
  TESSER_RETURN_IF_ERROR(walk(
      text, [](std::string_view) {},
      [&](std::string name) -> Result<void> {
        names.push_back(std::move(name));
        return {};
      }));
  return names;
}

Result<std::string> with_secrets(std::string_view text, const Secrets& secrets) {
  std::string made;
  TESSER_RETURN_IF_ERROR(walk(
      text, [&](std::string_view piece) { made += piece; },
      [&](const std::string& name) -> Result<void> {
        const auto found = secrets.find(name);
        if (found == secrets.end()) {
          return invalid_input(fmt::format("the secret '{}' was not given when the job was submitted", name));
        }
        made += found->second;
        return {};
      }));
  return made;
}

Result<std::map<std::string, std::string>> resolved_environment(const Manifest& manifest, const Secrets& secrets) {
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : manifest.environment) {
    Result<std::string> resolved = with_secrets(value, secrets);
    if (!resolved) {
      return invalid_input(fmt::format("environment, {}: {}", name, resolved.error().message));
    }
    environment.emplace(name, std::move(*resolved));
  }
  return environment;
}

std::string to_json(const Secrets& secrets) {
  JsonMembers members;
  for (const auto& [name, value] : secrets) {
    members.add(name, value);
  }
  return members.object();
}

Result<Secrets> secrets_from_json(std::string_view text) {
  // What the reader says of a text that is no JSON could quote it.
  const Result<Json> json = parse_json(text, {.depth = 2, .values = 10'000});
  if (!json || json->object() == nullptr) {
    return invalid_input("secrets: expected a JSON object of strings");
  }
  Secrets secrets;
  for (const auto& [name, value] : *json->object()) {
    if (value.string() == nullptr) {
      return invalid_input(fmt::format("secrets: '{}' is no string", name));
    }
    secrets.emplace(name, *value.string());
  }
  return secrets;
}

}  // namespace tesser::platform
