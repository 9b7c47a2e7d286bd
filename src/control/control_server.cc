#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <httplib.h>

#include "control/address.h"
#include "control/connection.h"
#include "control/control_http.h"

namespace tesser::control {
namespace {

constexpr std::chrono::seconds kKeepAlive{2};  // workers call twice a second
constexpr int kWaitingConnections = 1024;
constexpr std::size_t kMostHeadBytes = std::size_t{64} << 10;

constexpr const char* kTooSlow =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 25\r\n\r\n"
    "the request came too slow";
constexpr const char* kTooMuch =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    "Content-Length: 25\r\n\r\nthe headers are too large";

struct Refusal {
  int status = 0;
  std::string text;
};

// What cpp-httplib reads a connection by.
class Stream final : public httplib::Stream {
 public:
  explicit Stream(Connection& connection) : connection_(connection) {}

  bool is_readable() const override { return connection_.is_ready(POLLIN, Connection::Clock::now()); }
  bool is_writable() const override { return connection_.is_ready(POLLOUT, Connection::Clock::now()); }
  ssize_t read(char* to, size_t most) override { return connection_.read(to, most); }
  ssize_t write(const char* from, size_t bytes) override { return connection_.write(from, bytes); }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return connection_.socket(); }

 private:
  Connection& connection_;
};

class HttpServer final : public ControlServer, private httplib::Server {
 public:
  HttpServer(const std::string& token, int clients, Answer answer, ControlServerOptions options)
      : authorization_(token.empty() ? "" : "Bearer " + token),
        answer_(std::move(answer)),
        options_(std::move(options)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    // A connection that is kept occupies a thread.
    new_task_queue = [clients] { return new httplib::ThreadPool(static_cast<std::size_t>(clients) + 2); };
    set_keep_alive_timeout(kKeepAlive.count());
    set_keep_alive_max_count(std::size_t{1} << 30);
    set_tcp_nodelay(true);
    set_payload_max_length(options_.most_body_bytes);
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      const auto refusal = refusal_of(request);
      if (!refusal) {
        return HandlerResponse::Unhandled;
      }
      response.status = refusal->status;
      response.set_content(refusal->text, "text/plain");
      return HandlerResponse::Handled;
    });
    Post("/.*", [this](const httplib::Request& request, httplib::Response& response) {
      respond(answer_, request, response, true);
    });
    Get("/.*", [this](const httplib::Request& request, httplib::Response& response) {
      respond(options_.get, request, response, request.path.starts_with("/v1/"));
    });
  }
  ~HttpServer() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_, &one, sizeof(one));
    stop();
    if (thread_.joinable()) {
      thread_.join();
    }
    ::close(stop_);
  }

  Result<void> listen(const std::string& address) {
    const auto parts = split_address(address);
    if (!parts) {
      return invalid_input(fmt::format("{}: expected HOST:PORT to listen at", address));
    }
    if (stop_ < 0) {
      return failed(
          fmt::format("the {} gets no event descriptor: {}; raise ulimit -n", options_.what, std::strerror(errno)));
    }
    port_ = parts->port;
    if (parts->port == 0) {
      port_ = bind_to_any_port(parts->host);
    } else if (!bind_to_port(parts->host, parts->port)) {
      port_ = -1;
    }
    if (port_ <= 0) {
      return invalid_input(
          fmt::format("{}: the {} cannot listen there; give an address of this machine and a port that is free",
                      address, options_.what));
    }
    // cpp-httplib lets 5 connections wait; a sixth of workers that start together would try again after a second.
    ::listen(svr_sock_, kWaitingConnections);
    thread_ = std::thread([this] { listen_after_bind(); });
    while (!is_running()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return {};
  }

  int port() const override { return port_; }

 private:
  static void respond(const Answer& answer, const httplib::Request& request, httplib::Response& response, bool json) {
    const Result<std::string> body = answer(request.path, request.body);
    response.status = body ? 200 : body.error().code == ErrorCode::kNotFound ? 404 : 422;
    response.set_content(body ? *body : body.error().message, body && json ? "application/json" : "text/plain");
  }

  // Bytes of the body; nothing when the header is no number.
  static std::optional<std::size_t> body_bytes(const httplib::Request& request) {
    const std::string text = request.get_header_value("Content-Length");
    std::size_t bytes = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(bytes) : std::nullopt;
  }

  // Of a request whose headers have come, before any of its body is read.
  std::optional<Refusal> refusal_of(const httplib::Request& request) const {
    const bool open = authorization_.empty() || (options_.needs_token && !options_.needs_token(request.path));
    if (!open && !is_same_secret(request.get_header_value("Authorization"), authorization_)) {
      return Refusal{403, fmt::format("this request does not carry the token that the {} expects", options_.what)};
    }
    const bool gets = request.method == "GET" || request.method == "HEAD";
    if ((gets && !options_.get) || (!gets && request.method != "POST")) {
      return Refusal{405, fmt::format("the {} answers no {}", options_.what, request.method)};
    }
    if (request.has_header("Transfer-Encoding") || (!gets && !request.has_header("Content-Length"))) {
      return Refusal{411, "a request says how long its body is (Content-Length)"};
    }
    if (request.has_header("Content-Encoding")) {
      return Refusal{415, "the body of a request is not compressed"};
    }
    if (request.get_header_value_count("Content-Length") > 1 ||
        (request.has_header("Content-Length") && !body_bytes(request))) {
      return Refusal{400, "Content-Length is no number of bytes"};
    }
    const std::size_t most = gets ? 0 : options_.most_body_bytes;
    if (body_bytes(request).value_or(0) > most) {
      return Refusal{413, fmt::format("the body of this request may have {} bytes at most", most)};
    }
    return std::nullopt;
  }

  // cpp-httplib's place for another way to serve a connection, which TLS uses in its own servers.
  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, stop_);
    Stream stream(connection);
    bool goes_on = true;
    while (goes_on && connection.wait(kKeepAlive)) {
      connection.begin_request(options_.request_time, kMostHeadBytes);
      bool has_headers = false;
      bool is_last = false;
      const auto take_headers = [&](httplib::Request& request) {
        has_headers = true;
        request.ranges.clear();
        request.headers.erase("Content-Type");  // of a form, which would be taken apart
        if (refusal_of(request)) {
          is_last = true;  // its body is not read
          request.headers.erase("Connection");
          request.headers.emplace("Connection", "close");
          request.headers.erase("Expect");
        } else {
          connection.begin_body(body_bytes(request).value_or(0));
        }
      };
      bool is_closed = false;
      goes_on = process_request(stream, false, is_closed, take_headers) && has_headers && !is_last && !is_closed &&
                connection.left() == 0 && connection.trouble() == Connection::Trouble::kNone;
    }
    switch (connection.trouble()) {
      case Connection::Trouble::kNone:
        if (!goes_on) {  // else nobody is waiting for anything
          connection.hang_up();
        }
        break;
      case Connection::Trouble::kTooSlow:
        connection.hang_up(kTooSlow);
        break;
      case Connection::Trouble::kTooMuch:
        connection.hang_up(kTooMuch);
        break;
      case Connection::Trouble::kGone:
        break;
    }
    return goes_on;
  }

  const std::string authorization_;  // empty: none is needed
  const Answer answer_;
  const ControlServerOptions options_;
  const int stop_;  // readable once the server ends
  int port_ = 0;
  std::thread thread_;
};

}  // namespace

bool is_same_secret(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned char>(given[i] ^ other);
  }
  return difference == 0;
}

Result<std::unique_ptr<ControlServer>> ControlServer::open(const std::string& address, const std::string& token,
                                                           int clients, Answer answer, ControlServerOptions options) {
  auto server = std::make_unique<HttpServer>(token, clients, std::move(answer), std::move(options));
  TESSER_RETURN_IF_ERROR(server->listen(address));
  return server;
}

}  // namespace tesser::control
