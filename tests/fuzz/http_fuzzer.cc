// Any bytes as what a client sends to the server: an answer with a status, or a connection that is closed; never a
// handler that is called with a body larger than it allows.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "control/http_server.h"

namespace {

constexpr std::size_t kMostBody = 1000;

std::unique_ptr<tesser::control::HttpServer> serve() {
  using namespace tesser::control;
  HttpServerOptions options;
  options.threads = 2;
  options.request_time = std::chrono::milliseconds(200);
  options.admit = [](const HttpRequest& request) {
    HttpAdmission admission;
    admission.most_body_bytes = kMostBody;
    admission.most_part_bytes = kMostBody;
    if (request.path == "/parts") {
      admission.parts_directory = "/dev/shm";
    }
    return admission;
  };
  options.answer = [](const HttpRequest& request) {
    TESSER_CHECK(request.body.size() <= kMostBody, std::to_string(request.body.size()));
    request.argument("cursor");
    request.header("Authorization");
    return HttpResponse();
  };
  return *HttpServer::open("127.0.0.1:0", std::move(options));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto server = serve();
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(server->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  TESSER_CHECK(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0, "no connection");
  [[maybe_unused]] const auto sent = ::send(client, data, size, MSG_NOSIGNAL);
  ::shutdown(client, SHUT_WR);
  std::string answer;
  char piece[4096];
  for (ssize_t got; (got = ::recv(client, piece, sizeof(piece), 0)) > 0;) {
    answer.append(piece, static_cast<std::size_t>(got));
  }
  ::close(client);
  TESSER_CHECK(answer.empty() || answer.starts_with("HTTP/1.1 "), answer.substr(0, 20));
  return 0;
}
