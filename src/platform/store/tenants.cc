#include "platform/store/tenants.h"

#include <algorithm>
#include <array>

namespace tesser::platform {
namespace {

constexpr std::size_t kMostNameBytes = 63;
constexpr std::size_t kMostTeamBytes = 40;
constexpr std::array<std::string_view, 3> kRoles = {"viewer", "member", "administrator"};

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

}  // namespace

std::string_view name_of(TeamRole role) { return kRoles[static_cast<std::size_t>(role)]; }

std::optional<TeamRole> team_role_named(std::string_view name) {
  const auto found = std::find(kRoles.begin(), kRoles.end(), name);
  return found == kRoles.end() ? std::nullopt : std::optional(static_cast<TeamRole>(found - kRoles.begin()));
}

bool is_user_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && is_letter_or_digit(name.front()) &&
         is_letter_or_digit(name.back()) && std::all_of(name.begin(), name.end(), [](char c) {
           return is_letter_or_digit(c) || c == '.' || c == '_' || c == '@' || c == '-';
         });
}

bool is_team_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostTeamBytes && !name.starts_with('-') && !name.ends_with('-') &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

std::optional<std::vector<std::string>> Caller::seen_teams() const {
  if (is_administrator) {
    return std::nullopt;
  }
  std::vector<std::string> names;
  for (const auto& [team, role] : teams) {
    names.push_back(team);
  }
  return names;
}

}  // namespace tesser::platform
