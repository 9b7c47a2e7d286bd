// Which machines a hub connects to of itself. Requests name the other hubs of their job, and a request may come from
// anybody: without a bound a hub would knock at any door that somebody names, within its own network, and show its
// token there.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tesser::hub {

class HubHosts {
 public:
  // `list`: hosts as workers write them, "10.0.0.2,node7"; "any": every one. This machine's own addresses are allowed
  // always.
  explicit HubHosts(const std::string& list);

  // Whether `place` ("HOST:PORT", "[HOST]:PORT" or "http://HOST:PORT") is on an allowed machine. Names are compared as
  // they are written: what one resolves to may change. kInvalidInput says what to do.
  Result<void> check(std::string_view place) const;

 private:
  bool any_ = false;
  std::set<std::string, std::less<>> hosts_;
};

}  // namespace tesser::hub
