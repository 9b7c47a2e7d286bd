// Where a server listens. Internal to this folder.
#pragma once

#include <optional>
#include <string>

namespace tesser::control {

struct HostAndPort {
  std::string host;
  int port = 0;
};

// "HOST:PORT" or "[V6]:PORT".
std::optional<HostAndPort> split_address(const std::string& address);

}  // namespace tesser::control
