#include <arpa/inet.h>
#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <httplib.h>

#include "control/address.h"
#include "control/control_http.h"

namespace tesser::control {
namespace {

class HttpClient : public ControlClient {
 public:
  HttpClient(std::string url, std::string what, HostAndPort address, const std::string& token,
             std::chrono::milliseconds patience)
      : url_(std::move(url)),
        what_(std::move(what)),
        address_(std::move(address)),
        client_(address_.host, address_.port) {
    client_.set_keep_alive(true);
    client_.set_tcp_nodelay(true);
    client_.set_connection_timeout(patience);
    client_.set_read_timeout(patience);
    client_.set_write_timeout(patience);
    if (!token.empty()) {
      client_.set_default_headers({{"Authorization", "Bearer " + token}});
    }
  }

  Result<std::string> post(const std::string& path, const std::string& body) override {
    return body_of(client_.Post(path, body, "application/json"));
  }
  Result<std::string> get(const std::string& path) override { return body_of(client_.Get(path)); }

  Result<std::string> own_host() const override {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(address_.host.c_str(), std::to_string(address_.port).c_str(), &hints, &found) != 0) {
      return failed(fmt::format("{}: this machine does not know the host of the {}", url_, what_));
    }
    // Connecting a datagram socket sends nothing, but chooses the way.
    std::string host;
    const int socket = ::socket(found->ai_family, SOCK_DGRAM, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    char text[NI_MAXHOST];
    if (socket >= 0 && ::connect(socket, found->ai_addr, found->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      host = own.ss_family == AF_INET6 ? fmt::format("[{}]", text) : std::string(text);
    }
    if (socket >= 0) {
      ::close(socket);
    }
    ::freeaddrinfo(found);
    if (host.empty()) {
      return failed(fmt::format("{}: there is no way from this machine to the {}", url_, what_));
    }
    return host;
  }

 private:
  Result<std::string> body_of(const httplib::Result& result) const {
    if (!result && result.error() == httplib::Error::Connection) {
      return not_found(fmt::format("nobody listens at {}, where the {} should be", url_, what_));
    }
    if (!result) {
      return failed(fmt::format("the {} at {} does not answer ({})", what_, url_, httplib::to_string(result.error())));
    }
    if (result->status != 200) {
      return invalid_input(fmt::format("the {} at {} refuses: {}", what_, url_, result->body));
    }
    return result->body;
  }

  const std::string url_;
  const std::string what_;
  const HostAndPort address_;
  httplib::Client client_;
};

}  // namespace

std::string make_run_token() {
  unsigned char bytes[16];
  std::string token;
  if (::getrandom(bytes, sizeof(bytes), 0) == static_cast<ssize_t>(sizeof(bytes))) {
    for (const unsigned char byte : bytes) {
      token += fmt::format("{:02x}", byte);
    }
  }
  return token;
}

Result<std::unique_ptr<ControlClient>> ControlClient::open(const std::string& url, const std::string& token,
                                                           std::chrono::milliseconds patience,
                                                           const std::string& what) {
  constexpr std::string_view kScheme = "http://";
  const auto address = url.starts_with(kScheme) ? split_address(url.substr(kScheme.size())) : std::nullopt;
  if (!address || address->port == 0) {
    return invalid_input(fmt::format("{}: expected the {}'s address, http://HOST:PORT", url, what));
  }
  return std::make_unique<HttpClient>(url, what, *address, token, patience);
}

}  // namespace tesser::control
