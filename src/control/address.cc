#include "control/address.h"

namespace tesser::control {

std::optional<HostAndPort> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return std::nullopt;
  }
  HostAndPort parts{address.substr(0, colon), 0};
  if (parts.host.front() == '[' && parts.host.back() == ']') {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  }
  for (const char digit : address.substr(colon + 1)) {
    if (digit < '0' || digit > '9' || parts.port > 65535) {
      return std::nullopt;
    }
    parts.port = parts.port * 10 + (digit - '0');
  }
  return colon + 1 < address.size() && parts.port <= 65535 ? std::optional(parts) : std::nullopt;
}

}  // namespace tesser::control
