// The server for requests of every kind, over real connections.

#include "control/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tesser::control {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

std::unique_ptr<HttpServer> open(HttpServerOptions options) {
  if (!options.admit) {
    options.admit = [](const HttpRequest&) {
      HttpAdmission admission;
      admission.most_body_bytes = 1 << 20;
      return admission;
    };
  }
  auto server = HttpServer::open("127.0.0.1:0", std::move(options));
  EXPECT_TRUE(server.has_value());
  return std::move(*server);
}

class Client {
 public:
  explicit Client(const HttpServer& server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { ::close(socket_); }

  void send(const std::string& text) {
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // All that comes until the server hangs up, or until the text ends so.
  std::string receive(const std::string& end = "") {
    std::string all;
    const auto until = Clock::now() + std::chrono::seconds(10);
    while (end.empty() || !all.ends_with(end)) {
      pollfd entry{socket_, POLLIN, 0};
      char buffer[4096];
      if (Clock::now() > until || ::poll(&entry, 1, 10'000) <= 0) {
        return all + "[still open]";
      }
      const ssize_t got = ::recv(socket_, buffer, sizeof(buffer), 0);
      if (got <= 0) {
        return all;
      }
      all.append(buffer, static_cast<std::size_t>(got));
    }
    return all;
  }

 private:
  const int socket_;
};

std::string ask(const HttpServer& server, const std::string& line, const std::string& headers = "",
                const std::string& body = "") {
  Client client(server);
  client.send(line + " HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n" + body);
  return client.receive();
}

HttpResponse text(std::string body) {
  HttpResponse response;
  response.content_type = "text/plain";
  response.body = std::move(body);
  return response;
}

TEST(HttpServerTest, RequestsOfEveryMethodWithTheirQueryAndHeaders) {
  HttpServerOptions options;
  options.answer = [](const HttpRequest& request) {
    HttpResponse response =
        text(request.method + " " + request.path + " " +
             (request.argument("a") != nullptr ? *request.argument("a") : "none") + " " +
             (request.header("idempotency-key") != nullptr ? *request.header("idempotency-key") : "none") + " " +
             request.body);
    response.status = 201;
    response.headers.emplace_back("X-More", "yes");
    return response;
  };
  const auto server = open(options);
  EXPECT_THAT(ask(*server, "GET /x%20y?a=1%262&b", "IDEMPOTENCY-KEY: k\r\n"), EndsWith("\r\n\r\nGET /x y 1&2 k "));
  EXPECT_THAT(ask(*server, "POST /x?a=1", "Content-Length: 3\r\n", "abc"), EndsWith("POST /x 1 none abc"));
  EXPECT_THAT(ask(*server, "PATCH /x", "Content-Length: 3\r\n", "abc"), EndsWith("PATCH /x none none abc"));
  EXPECT_THAT(ask(*server, "DELETE /x"), EndsWith("DELETE /x none none "));
  EXPECT_THAT(ask(*server, "DELETE /x"), StartsWith("HTTP/1.1 201"));
  EXPECT_THAT(ask(*server, "DELETE /x"), HasSubstr("X-More: yes\r\n"));
  EXPECT_THAT(ask(*server, "OPTIONS /x"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask(*server, "HEAD /x"), EndsWith("\r\n\r\n"));
}

TEST(HttpServerTest, RefusalsAreInTheServersWords) {
  HttpServerOptions options;
  options.answer = [](const HttpRequest&) { return text("answer"); };
  options.refuse = [](int status, const std::string& text) {
    HttpResponse response;
    response.body = "{\"status\": " + std::to_string(status) + ", \"text\": \"" + text + "\"}";
    return response;
  };
  const auto server = open(options);
  for (const std::string& answer :
       {ask(*server, "OPTIONS /x"), ask(*server, "POST /x"), ask(*server, "POST /x", "Content-Length: 9999999\r\n"),
        ask(*server, "GET /a%0ab"), ask(*server, "GET /" + std::string(20'000, 'x'))}) {
    EXPECT_THAT(answer, HasSubstr("Content-Type: application/json"));
    EXPECT_THAT(answer, HasSubstr("{\"status\": 4"));
  }
}

std::string multipart(const std::string& part) { return "--B\r\n" + part; }

TEST(HttpServerTest, UploadsLieInFilesWhichAreGoneAfterTheAnswer) {
  char directory[] = "/tmp/tesser-http-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  HttpServerOptions options;
  options.admit = [&](const HttpRequest&) {
    HttpAdmission admission;
    admission.most_body_bytes = 64 << 20;
    admission.parts_directory = directory;
    admission.most_part_bytes = 100;
    return admission;
  };
  options.answer = [&](const HttpRequest& request) {
    std::string words;
    for (const HttpPart& part : request.parts) {
      std::string content = part.content;
      if (!part.file.empty()) {
        EXPECT_EQ(part.file.parent_path(), directory);
        std::ifstream file(part.file);
        content.assign(std::istreambuf_iterator<char>(file), {});
      }
      words +=
          part.name + "/" + part.file_name + "/" + std::to_string(content.size()) + "/" + content.substr(0, 5) + ";";
    }
    return text(words);
  };
  const auto server = open(options);
  const auto upload = [&](const std::string& body, const std::string& type = "multipart/form-data; boundary=B") {
    return ask(*server, "POST /x",
               "Content-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n", body);
  };
  const std::string large(3 << 20, 'z');
  const std::string manifest = multipart("Content-Disposition: form-data; name=\"manifest\"\r\n\r\nname: a\r\n");
  const std::string code = multipart(
      "Content-Disposition: form-data; name=\"code\"; filename=\"../../c.zip\"\r\nContent-Type: "
      "application/zip\r\n\r\n" +
      large + "\r\n");
  EXPECT_THAT(upload(manifest + code + "--B--\r\n"), EndsWith("manifest//7/name:;code/../../c.zip/3145728/zzzzz;"));
  EXPECT_THAT(upload(multipart("Content-Disposition: form-data; name=\"m\"\r\n\r\n" + std::string(101, 'x') + "\r\n") +
                     "--B--\r\n"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(upload("no form at all"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(upload(manifest), StartsWith("HTTP/1.1 400"));  // without an end
  EXPECT_THAT(upload(manifest + "--B--\r\n", "multipart/form-data"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(upload("plain", "text/plain"), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  std::filesystem::remove_all(directory);
  EXPECT_THAT(upload(manifest + code + "--B--\r\n"), StartsWith("HTTP/1.1 503"));  // nowhere to put it
}

TEST(HttpServerTest, AnswersThatAreMadeAsTheyAreSent) {
  HttpServerOptions options;
  options.request_time = std::chrono::milliseconds(300);
  options.slowest_bytes_per_second = 1 << 20;
  options.answer = [](const HttpRequest& request) {
    HttpResponse response = text("");
    const bool breaks = request.path == "/broken";
    response.stream = [breaks](const HttpWrite& write) {
      for (int i = 0; i < 6; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        if (!write(std::string(1 << 20, static_cast<char>('0' + i)))) {
          return false;
        }
      }
      return !breaks;
    };
    return response;
  };
  const auto server = open(options);
  const std::string whole = ask(*server, "GET /whole");  // takes twice the time of a small one
  EXPECT_THAT(whole, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '5') / (1 << 20), 1);
  EXPECT_THAT(whole, EndsWith("0\r\n\r\n"));
  EXPECT_EQ(ask(*server, "GET /broken").ends_with("0\r\n\r\n"), false);
}

// More clients than threads wait, and others still get their answers at once.
TEST(HttpServerTest, ThoseThatWaitTakeNoPlacesOfOthers) {
  std::atomic<bool> over = false;
  std::atomic<int> wait = 0;
  HttpServerOptions options;
  options.threads = 2;
  options.waiting = 6;
  options.answer = [&](const HttpRequest& request) {
    if (request.path == "/wait") {
      const auto place = request.begin_to_wait();
      if (!place) {
        return text("at once");
      }
      ++wait;
      while (!over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      return text("waited");
    }
    return text("quick");
  };
  const auto server = open(options);
  std::vector<std::unique_ptr<Client>> waiting;
  const auto begin = Clock::now();
  while (wait < 6 && Clock::now() < begin + std::chrono::seconds(10)) {
    if (waiting.size() < 6) {
      waiting.push_back(std::make_unique<Client>(*server));
      waiting.back()->send("GET /wait HTTP/1.1\r\nConnection: close\r\n\r\n");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(wait, 6);
  EXPECT_THAT(ask(*server, "GET /wait"), EndsWith("at once"));
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(ask(*server, "GET /quick"), EndsWith("quick"));
  }
  over = true;
  for (const auto& client : waiting) {
    EXPECT_THAT(client->receive(), EndsWith("waited"));
  }
}

TEST(HttpServerTest, IdleConnectionsTakeNoThreadAndAreClosedInTheEnd) {
  HttpServerOptions options;
  options.threads = 2;
  options.connections = 50;
  options.idle_time = std::chrono::milliseconds(1500);
  options.answer = [](const HttpRequest&) { return text("yes"); };
  const auto server = open(options);
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 49; ++i) {
    idle.push_back(std::make_unique<Client>(*server));
    idle.back()->send("GET /x HTTP/1.1\r\n\r\n");
    EXPECT_THAT(idle.back()->receive("yes"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(ask(*server, "GET /x"), StartsWith("HTTP/1.1 200"));
  idle.front()->send("GET /x HTTP/1.1\r\n\r\n");  // again, on the same connection
  EXPECT_THAT(idle.front()->receive("yes"), StartsWith("HTTP/1.1 200"));
  std::vector<std::unique_ptr<Client>> more;
  for (int i = 0; i < 2; ++i) {
    more.push_back(std::make_unique<Client>(*server));
  }
  EXPECT_THAT(more.back()->receive(), StartsWith("HTTP/1.1 503"));
  for (const auto& client : idle) {
    EXPECT_EQ(client->receive(), "");
  }
  EXPECT_THAT(ask(*server, "GET /x"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace tesser::control
