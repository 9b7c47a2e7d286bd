#include "hub/hub_hosts.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

namespace tesser::hub {
namespace {

std::string_view host_of(std::string_view place) {
  constexpr std::string_view kScheme = "http://";
  if (place.starts_with(kScheme)) {
    place.remove_prefix(kScheme.size());
  }
  if (place.starts_with('[')) {
    return place.substr(1, place.find(']') - 1);
  }
  return place.substr(0, place.find(':'));
}

bool is_this_machine(const std::string& host) {
  in_addr version4{};
  in6_addr version6{};
  const bool is_version4 = ::inet_pton(AF_INET, host.c_str(), &version4) == 1;
  if (!is_version4 && ::inet_pton(AF_INET6, host.c_str(), &version6) != 1) {
    return host == "localhost";
  }
  constexpr std::uint32_t kLoopback = 127;
  if (is_version4 ? ntohl(version4.s_addr) >> 24 == kLoopback : IN6_IS_ADDR_LOOPBACK(&version6)) {
    return true;
  }
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) {
    return false;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(interfaces, &::freeifaddrs);
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != (is_version4 ? AF_INET : AF_INET6)) {
      continue;
    }
    const bool same = is_version4 ? std::memcmp(&reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr,
                                                &version4, sizeof(version4)) == 0
                                  : std::memcmp(&reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr,
                                                &version6, sizeof(version6)) == 0;
    if (same) {
      return true;
    }
  }
  return false;
}

}  // namespace

HubHosts::HubHosts(const std::string& list) {
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::string_view host = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), host.size() + 1));
    any_ = any_ || host == "any";
    hosts_.emplace(host);
  }
}

Result<void> HubHosts::check(std::string_view place) const {
  const std::string host(host_of(place));
  if (any_ || hosts_.contains(host) || is_this_machine(host)) {
    return {};
  }
  return invalid_input(
      fmt::format("it names another hub at {}, to which this one does not connect\nWhat to do: start both with "
                  "tesser hub serve --hubs {}, which lists the hosts of a job's other hubs",
                  host.substr(0, 200), host.substr(0, 200)));
}

}  // namespace tesser::hub
