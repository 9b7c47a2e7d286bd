#include "control/control_http.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <httplib.h>

namespace tesser::control {
namespace {

constexpr int kRefused = 422;
constexpr int kForbidden = 403;
constexpr int kKeepAliveSeconds = 2;  // workers call twice a second
constexpr std::size_t kLargestBody = std::size_t{64} << 20;

struct HostAndPort {
  std::string host;
  int port = 0;
};

// "HOST:PORT" or "[V6]:PORT".
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

class HttpServer : public ControlServer {
 public:
  HttpServer(const std::string& token, int clients, Answer answer) : answer_(std::move(answer)) {
    // A connection that is kept occupies a thread.
    server_.new_task_queue = [clients] { return new httplib::ThreadPool(static_cast<std::size_t>(clients) + 2); };
    server_.set_keep_alive_timeout(kKeepAliveSeconds);
    server_.set_keep_alive_max_count(std::size_t{1} << 30);
    server_.set_payload_max_length(kLargestBody);
    server_.set_tcp_nodelay(true);
    server_.Post("/.*", [this, token](const httplib::Request& request, httplib::Response& response) {
      if (request.get_header_value("Authorization") != "Bearer " + token) {
        response.status = kForbidden;
        response.set_content("this request does not carry the token of the run", "text/plain");
        return;
      }
      const Result<std::string> body = answer_(request.path, request.body);
      response.status = body ? 200 : kRefused;
      response.set_content(body ? *body : body.error().message, body ? "application/json" : "text/plain");
    });
  }
  ~HttpServer() override {
    server_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  Result<void> listen(const std::string& address) {
    const auto parts = split_address(address);
    if (!parts) {
      return invalid_input(fmt::format("{}: expected HOST:PORT to listen at", address));
    }
    port_ = parts->port;
    if (parts->port == 0) {
      port_ = server_.bind_to_any_port(parts->host);
    } else if (!server_.bind_to_port(parts->host, parts->port)) {
      port_ = -1;
    }
    if (port_ <= 0) {
      return invalid_input(fmt::format(
          "{}: the coordinator cannot listen there; give an address of this machine and a port that is free", address));
    }
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return {};
  }

  int port() const override { return port_; }

 private:
  const Answer answer_;
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

class HttpClient : public ControlClient {
 public:
  HttpClient(std::string url, HostAndPort address, const std::string& token, std::chrono::milliseconds patience)
      : url_(std::move(url)), address_(std::move(address)), client_(address_.host, address_.port) {
    client_.set_keep_alive(true);
    client_.set_tcp_nodelay(true);
    client_.set_connection_timeout(patience);
    client_.set_read_timeout(patience);
    client_.set_write_timeout(patience);
    client_.set_default_headers({{"Authorization", "Bearer " + token}});
  }

  Result<std::string> post(const std::string& path, const std::string& body) override {
    const httplib::Result result = client_.Post(path, body, "application/json");
    if (!result && result.error() == httplib::Error::Connection) {
      return not_found(fmt::format("nobody listens at {}, where the coordinator should be", url_));
    }
    if (!result) {
      return failed(
          fmt::format("the coordinator at {} does not answer ({})", url_, httplib::to_string(result.error())));
    }
    if (result->status != 200) {
      return invalid_input(fmt::format("the coordinator at {} refuses: {}", url_, result->body));
    }
    return result->body;
  }

  Result<std::string> own_host() const override {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(address_.host.c_str(), std::to_string(address_.port).c_str(), &hints, &found) != 0) {
      return failed(fmt::format("{}: this machine does not know the host of the coordinator", url_));
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
      return failed(fmt::format("{}: there is no way from this machine to the coordinator", url_));
    }
    return host;
  }

 private:
  const std::string url_;
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

Result<std::unique_ptr<ControlServer>> ControlServer::open(const std::string& address, const std::string& token,
                                                           int clients, Answer answer) {
  auto server = std::make_unique<HttpServer>(token, clients, std::move(answer));
  TESSER_RETURN_IF_ERROR(server->listen(address));
  return server;
}

Result<std::unique_ptr<ControlClient>> ControlClient::open(const std::string& url, const std::string& token,
                                                           std::chrono::milliseconds patience) {
  constexpr std::string_view kScheme = "http://";
  const auto address = url.starts_with(kScheme) ? split_address(url.substr(kScheme.size())) : std::nullopt;
  if (!address || address->port == 0) {
    return invalid_input(fmt::format("{}: expected the coordinator's address, http://HOST:PORT", url));
  }
  return std::make_unique<HttpClient>(url, *address, token, patience);
}

}  // namespace tesser::control
