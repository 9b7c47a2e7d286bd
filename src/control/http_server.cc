#include "control/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <httplib.h>

#include "base/file.h"
#include "control/address.h"
#include "control/connection.h"
#include "control/idle_connections.h"
#include "control/request_threads.h"
#include "control/tls.h"

namespace tesser::control {
namespace {

constexpr int kWaitingConnections = 1024;
constexpr std::size_t kMostHeadBytes = std::size_t{64} << 10;
constexpr std::size_t kMostParts = 16;

constexpr const char* kTooSlow =
    "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 25\r\n\r\n"
    "the request came too slow";
constexpr const char* kTooMuch =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    "Content-Length: 25\r\n\r\nthe headers are too large";
constexpr const char* kTooMany =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: text/plain\r\n"
    "Content-Length: 30\r\n\r\ntoo many connections; try again";

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

class TaskQueue final : public httplib::TaskQueue {
 public:
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));  // void, or of newer versions bool

  explicit TaskQueue(RequestThreads& threads) : threads_(threads) {}

  Taken enqueue(std::function<void()> task) override {
    threads_.add(std::move(task));
    return Taken(true);
  }
  void shutdown() override { threads_.stop(); }

 private:
  RequestThreads& threads_;
};

// A request on its way through cpp-httplib.
struct Exchange {
  HttpRequest request;
  HttpAdmission admission;
};
thread_local Exchange* exchange = nullptr;  // of this thread

HttpRequest head_of(const httplib::Request& request, const Connection& connection, RequestThreads& threads) {
  HttpRequest head;
  head.address = connection.address();
  head.method = request.method == "HEAD" ? "GET" : request.method;
  head.path = request.path;
  head.query.assign(request.params.begin(), request.params.end());
  head.headers.assign(request.headers.begin(), request.headers.end());
  head.threads = &threads;
  return head;
}

// Bytes of the body; nothing when the header is no number.
std::optional<std::size_t> body_bytes(const httplib::Request& request) {
  const std::string text = request.get_header_value("Content-Length");
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(bytes) : std::nullopt;
}

// Files of parts, until the handler has moved them away.
class PartFiles {
 public:
  explicit PartFiles(std::vector<HttpPart>& parts) : parts_(parts) {}
  PartFiles(const PartFiles&) = delete;
  PartFiles& operator=(const PartFiles&) = delete;
  ~PartFiles() {
    end_file();
    for (const HttpPart& part : parts_) {
      if (!part.file.empty()) {
        ::unlink(part.file.c_str());
      }
    }
  }

  Result<void> begin_file(const std::filesystem::path& directory) {
    std::string name = directory / "upload-XXXXXX";
    file_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (file_ < 0) {
      return tl::unexpected(file_error(name, "create", errno));
    }
    parts_.back().file = name;
    return {};
  }
  bool has_file() const { return file_ >= 0; }
  Result<void> append(const char* data, std::size_t bytes) {
    while (bytes > 0) {
      const ssize_t written = ::write(file_, data, bytes);
      if (written < 0 && errno != EINTR) {
        return tl::unexpected(file_error(parts_.back().file, "write", errno));
      }
      data += std::max<ssize_t>(written, 0);
      bytes -= static_cast<std::size_t>(std::max<ssize_t>(written, 0));
    }
    return {};
  }
  void end_file() {
    if (file_ >= 0) {
      ::close(std::exchange(file_, -1));
    }
  }

 private:
  std::vector<HttpPart>& parts_;
  int file_ = -1;
};

class CppHttpServer final : public HttpServer, private httplib::Server {
 public:
  explicit CppHttpServer(HttpServerOptions options)
      : options_(std::move(options)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        threads_(options_.threads, options_.waiting) {
    new_task_queue = [this] { return new TaskQueue(threads_); };
    set_keep_alive_max_count(std::size_t{1} << 30);
    set_tcp_nodelay(true);
    set_payload_max_length(std::numeric_limits<std::size_t>::max());  // begin_body() sees to it
    set_pre_routing_handler([this](const httplib::Request&, httplib::Response& response) {
      if (!exchange->admission.refusal) {
        return HandlerResponse::Unhandled;
      }
      send(std::move(*exchange->admission.refusal), response);
      return HandlerResponse::Handled;
    });
    set_error_handler(HandlerWithResponse([this](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty() || response.content_provider_) {
        return HandlerResponse::Unhandled;
      }
      const HttpResponse refusal = refusal_of(response.status, response.status == 414   ? "the address is too long"
                                                               : response.status == 404 ? "there is nothing here"
                                                                                        : "this is no proper request");
      note(refusal);
      response.set_content(refusal.body, refusal.content_type);
      return HandlerResponse::Handled;
    }));
    const HandlerWithContentReader with_body = [this](const httplib::Request& request, httplib::Response& response,
                                                      const httplib::ContentReader& reader) {
      PartFiles files(exchange->request.parts);
      std::optional<HttpResponse> refusal;
      {
        const auto place = exchange->request.begin_to_wait();  // for the client
        refusal = read_body(request, reader, files);
      }
      files.end_file();
      send(refusal ? *refusal : options_.answer(exchange->request), response);
    };
    Get("/.*", [this](const httplib::Request&, httplib::Response& response) {
      send(options_.answer(exchange->request), response);
    });
    Post("/.*", with_body);
    Put("/.*", with_body);
    Patch("/.*", with_body);
    Delete("/.*", with_body);
  }
  ~CppHttpServer() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_, &one, sizeof(one));
    stop();
    if (thread_.joinable()) {
      thread_.join();
    }
    threads_.stop();
    idle_.reset();
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
    if (!options_.certificate.empty()) {
      TESSER_ASSIGN_OR_RETURN(tls_, TlsIdentity::open(options_.certificate, options_.key));
    }
    TESSER_ASSIGN_OR_RETURN(idle_, IdleConnections::open(
                                       stop_, {options_.idle_time, options_.request_time},
                                       [this](auto connection) { serve_soon(std::move(connection)); },
                                       [this](auto connection) { refuse_at_once(*connection, 408, kTooSlow); }));
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
  bool is_certified_for(const std::string& host) const override { return tls_ == nullptr || tls_->is_for(host); }

 private:
  HttpResponse refusal_of(int status, const std::string& text) const {
    HttpResponse response;
    if (options_.refuse) {
      response = options_.refuse(status, text);
    } else {
      response.content_type = "text/plain";
      response.body = text;
    }
    response.status = status;
    return response;
  }

  // Tells who wants to know, as it is sent.
  void note(const HttpResponse& answer) const {
    if (options_.answered) {
      options_.answered(exchange->request, answer);
    }
  }

  void send(HttpResponse made, httplib::Response& response) {
    note(made);
    response.status = made.status;
    for (const auto& [name, value] : made.headers) {
      response.set_header(name, value);
    }
    if (!made.stream) {
      response.set_content(made.body, made.content_type);
      return;
    }
    response.set_chunked_content_provider(
        made.content_type, [this, stream = std::move(made.stream)](std::size_t, httplib::DataSink& sink) {
          const auto place = exchange->request.begin_to_wait();  // it may last, and is mostly the client's time
          const bool all =
              stream([&](std::string_view piece) { return piece.empty() || sink.write(piece.data(), piece.size()); });
          if (all) {
            sink.done();
          }
          return all;
        });
  }

  // Of a request whose headers have come, before any of its body is read.
  std::optional<HttpResponse> why_not(const httplib::Request& request) {
    const std::string& method = exchange->request.method;
    if (method != "GET" && method != "POST" && method != "PATCH" && method != "PUT" && method != "DELETE") {
      return refusal_of(405, fmt::format("the {} answers no {}", options_.what, method));
    }
    exchange->admission = options_.admit(exchange->request);
    exchange->request.admitted = exchange->admission.held;
    if (exchange->admission.refusal) {
      return std::move(exchange->admission.refusal);
    }
    const bool needs_body = method != "GET" && method != "DELETE";
    if (request.has_header("Transfer-Encoding") || (needs_body && !request.has_header("Content-Length"))) {
      return refusal_of(411, "a request says how long its body is (Content-Length)");
    }
    if (request.has_header("Content-Encoding")) {
      return refusal_of(415, "the body of a request is not compressed");
    }
    if (request.get_header_value_count("Content-Length") > 1 ||
        (request.has_header("Content-Length") && !body_bytes(request))) {
      return refusal_of(400, "Content-Length is no number of bytes");
    }
    const std::size_t most = method == "GET" ? 0 : exchange->admission.most_body_bytes;
    if (body_bytes(request).value_or(0) > most) {
      return refusal_of(413, fmt::format("the body of this request may have {} bytes at most", most));
    }
    return std::nullopt;
  }

  // Into the exchange's request; what is wrong, if anything.
  std::optional<HttpResponse> read_body(const httplib::Request& request, const httplib::ContentReader& reader,
                                        PartFiles& files) const {
    if (!request.is_multipart_form_data()) {
      std::string& body = exchange->request.body;
      const bool whole = reader([&](const char* data, std::size_t bytes) {
        body.append(data, bytes);
        return true;
      });
      return whole ? std::nullopt : std::optional(refusal_of(400, "the body is shorter than it was said to be"));
    }
    std::vector<HttpPart>& parts = exchange->request.parts;
    std::optional<HttpResponse> wrong;
    const bool whole = reader(
        [&](const httplib::MultipartFormData& part) {
          files.end_file();
          if (parts.size() == kMostParts) {
            wrong = refusal_of(413, fmt::format("a form may have {} parts at most", kMostParts));
            return false;
          }
          parts.push_back({part.name, part.filename, "", ""});
          if (!part.filename.empty()) {
            if (const auto begun = files.begin_file(exchange->admission.parts_directory); !begun) {
              wrong = refusal_of(503, begun.error().message);
              return false;
            }
          }
          return true;
        },
        [&](const char* data, std::size_t bytes) {
          if (parts.empty()) {
            return false;
          }
          if (files.has_file()) {
            if (const auto written = files.append(data, bytes); !written) {
              wrong = refusal_of(503, written.error().message);
              return false;
            }
            return true;
          }
          if (parts.back().content.size() + bytes > exchange->admission.most_part_bytes) {
            wrong = refusal_of(413, fmt::format("'{}' may have {} bytes at most", parts.back().name,
                                                exchange->admission.most_part_bytes));
            return false;
          }
          parts.back().content.append(data, bytes);
          return true;
        });
    if (!whole && !wrong) {
      wrong = refusal_of(400, "the body is no multipart/form-data with the boundary that its Content-Type names");
    }
    return wrong;
  }

  // cpp-httplib's place for another way to serve a connection, which TLS uses in its own servers.
  bool process_and_close_socket(socket_t socket) override {
    std::unique_ptr<TlsSession> session;
    if (tls_ != nullptr && (session = tls_->accept(socket)) == nullptr) {
      ::close(socket);
      return true;
    }
    auto connection = std::make_unique<Connection>(socket, stop_, open_, std::move(session));
    if (open_ > options_.connections || !connection->count_in(addresses_, options_.connections_of_one)) {
      refuse_at_once(*connection, 503, kTooMany);
    } else {
      serve(std::move(connection));
    }
    return true;
  }

  // A refusal of what is no request yet.
  void refuse_at_once(Connection& connection, int status, const char* text) const {
    note_refusal(connection, status);
    connection.hang_up_at_once(text);
  }

  void note_refusal(const Connection& connection, int status) const {
    if (options_.answered) {
      HttpRequest request;
      request.address = connection.address();
      HttpResponse answer;
      answer.status = status;
      options_.answered(request, answer);
    }
  }

  void serve_soon(std::unique_ptr<Connection> connection) {
    const auto box = std::make_shared<std::unique_ptr<Connection>>(std::move(connection));  // a task can be copied
    threads_.add([this, box] { serve(std::move(*box)); });
  }

  // Answers what has come, then lets the connection rest.
  void serve(std::unique_ptr<Connection> connection) {
    while (true) {
      const Connection::Input input = connection->take_input(kMostHeadBytes);
      if (input == Connection::Input::kGone) {
        return;
      }
      if (input != Connection::Input::kWhole) {
        idle_->add(std::move(connection));
        return;
      }
      if (connection->trouble() != Connection::Trouble::kNone || !answer_one(*connection)) {
        break;
      }
    }
    switch (connection->trouble()) {
      case Connection::Trouble::kNone:
        connection->hang_up();
        break;
      case Connection::Trouble::kTooSlow:
        note_refusal(*connection, 408);
        connection->hang_up(kTooSlow);
        break;
      case Connection::Trouble::kTooMuch:
        note_refusal(*connection, 431);
        connection->hang_up(kTooMuch);
        break;
      case Connection::Trouble::kGone:
        break;
    }
  }

  // Whether the connection may be used further.
  bool answer_one(Connection& connection) {
    Stream stream(connection);
    connection.begin_request(options_.request_time, kMostHeadBytes, options_.slowest_bytes_per_second);
    Exchange here;
    exchange = &here;
    bool has_headers = false;
    bool is_last = false;
    const auto take_headers = [&](httplib::Request& request) {
      has_headers = true;
      request.ranges.clear();
      here.request = head_of(request, connection, threads_);
      here.admission.refusal = why_not(request);
      if (here.admission.refusal) {
        is_last = true;  // its body is not read
        request.headers.erase("Connection");
        request.headers.emplace("Connection", "close");
        request.headers.erase("Expect");
        return;
      }
      if (here.admission.parts_directory.empty()) {
        request.headers.erase("Content-Type");  // of a form, which would be taken apart
      }
      if (!request.has_header("Content-Length")) {
        request.headers.emplace("Content-Length", "0");  // else read to the end of the connection
      }
      connection.begin_body(body_bytes(request).value_or(0));
    };
    bool is_closed = false;
    const bool goes_on = process(&CppHttpServer::process_request, stream, is_closed, take_headers);
    exchange = nullptr;
    return goes_on && has_headers && !is_last && !is_closed && connection.left() == 0 &&
           connection.trouble() == Connection::Trouble::kNone;
  }

  // cpp-httplib's process_request(), which asks the stream for addresses or, in newer versions, is told them. They end
  // in headers that nobody reads.
  using TakeHeaders = std::function<void(httplib::Request&)>;
  using Process = bool (httplib::Server::*)(httplib::Stream&, bool, bool&, const TakeHeaders&);
  using ProcessWithAddresses = bool (httplib::Server::*)(httplib::Stream&, const std::string&, int, const std::string&,
                                                         int, bool, bool&, const TakeHeaders&);
  bool process(Process process, Stream& stream, bool& is_closed, const TakeHeaders& take_headers) {
    return (this->*process)(stream, false, is_closed, take_headers);
  }
  bool process(ProcessWithAddresses process, Stream& stream, bool& is_closed, const TakeHeaders& take_headers) {
    return (this->*process)(stream, "", 0, "", 0, false, is_closed, take_headers);
  }

  const HttpServerOptions options_;
  const int stop_;                    // readable once the server ends
  std::unique_ptr<TlsIdentity> tls_;  // none: plain connections
  std::atomic<int> open_{0};
  AddressCounts addresses_;
  RequestThreads threads_;
  std::unique_ptr<IdleConnections> idle_;
  int port_ = 0;
  std::thread thread_;
};

bool is_same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    return small(x) == small(y);
  });
}

}  // namespace

WaitingPlace::~WaitingPlace() {
  if (threads_ != nullptr) {
    threads_->end_waiting();
  }
}

const std::string* HttpRequest::header(std::string_view name) const {
  const auto found =
      std::find_if(headers.begin(), headers.end(), [&](const auto& each) { return is_same_name(each.first, name); });
  return found == headers.end() ? nullptr : &found->second;
}

const std::string* HttpRequest::argument(std::string_view name) const {
  const auto found = std::find_if(query.begin(), query.end(), [&](const auto& each) { return each.first == name; });
  return found == query.end() ? nullptr : &found->second;
}

std::optional<WaitingPlace> HttpRequest::begin_to_wait() const {
  return threads != nullptr && threads->begin_to_wait() ? std::optional<WaitingPlace>(std::in_place, *threads)
                                                        : std::nullopt;
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const std::string& address, HttpServerOptions options) {
  auto server = std::make_unique<CppHttpServer>(std::move(options));
  TESSER_RETURN_IF_ERROR(server->listen(address));
  return server;
}

}  // namespace tesser::control
