// Requests over HTTP, over real connections.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/control_http.h"

namespace tesser::control {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kPatience{1000};

std::string url(const ControlServer& server) { return "http://127.0.0.1:" + std::to_string(server.port()); }

std::unique_ptr<ControlServer> open(ControlServer::Answer answer, ControlServerOptions options = {}) {
  auto server = ControlServer::open("127.0.0.1:0", "secret", 4, std::move(answer), std::move(options));
  EXPECT_TRUE(server.has_value());
  return std::move(*server);
}

TEST(ControlTest, AnswersAndRefusals) {
  const auto server = open([](const std::string& path, const std::string& body) -> Result<std::string> {
    return path == "/echo" ? Result<std::string>(body) : invalid_input("no such thing as " + path);
  });
  auto client = ControlClient::open(url(*server), "secret", kPatience);
  ASSERT_TRUE(client.has_value());
  const std::string large(1 << 20, 'x');
  EXPECT_EQ((*client)->post("/echo", large).value(), large);
  EXPECT_THAT((*client)->post("/other", "").error().message, HasSubstr("no such thing as /other"));
  EXPECT_EQ((*client)->post("/other", "").error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ((*client)->own_host().value(), "127.0.0.1");
  auto stranger = ControlClient::open(url(*server), "guess", kPatience);
  EXPECT_THAT((*stranger)->post("/echo", "x").error().message, HasSubstr("does not carry the token"));
}

// A client that is played by hand.
class RawClient {
 public:
  explicit RawClient(const ControlServer& server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { ::close(socket_); }

  bool send(const std::string& text) {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  void end_sending() { ::shutdown(socket_, SHUT_WR); }
  // All that comes until the server hangs up, or for this time.
  std::string receive(std::chrono::milliseconds time = std::chrono::seconds(5)) {
    std::string all;
    const auto end = Clock::now() + time;
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      pollfd entry{socket_, POLLIN, 0};
      char buffer[4096];
      if (left <= 0 || ::poll(&entry, 1, static_cast<int>(left)) <= 0) {
        return all + "[still open]";
      }
      const ssize_t got = ::recv(socket_, buffer, sizeof(buffer), 0);
      if (got <= 0) {
        return all;
      }
      all.append(buffer, static_cast<std::size_t>(got));
    }
  }
  std::string ask(const std::string& text) {
    send(text);
    return receive();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const int socket_;
};

std::string post(const std::string& path, const std::string& headers, const std::string& body = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

constexpr const char* kToken = "Authorization: Bearer secret\r\n";

std::string status_of(const std::string& answer) { return answer.substr(0, std::min<std::size_t>(12, answer.size())); }

TEST(ControlTest, AnswersGetAndAsksForTheTokenWhereItIsNeeded) {
  ControlServerOptions options;
  options.what = "hub";
  options.get = [](const std::string& path, const std::string& body) -> Result<std::string> {
    EXPECT_EQ(body, "");
    if (path == "/metrics" || path == "/v1/jobs") {
      return path == "/metrics" ? "steps 7\n" : "[]";
    }
    return not_found("a hub has no " + path);
  };
  options.needs_token = [](const std::string& path) { return path != "/metrics"; };
  const auto server =
      open([](const std::string&, const std::string& body) -> Result<std::string> { return body; }, options);
  const std::string end = "Connection: close\r\n\r\n";
  const std::string metrics = RawClient(*server).ask("GET /metrics HTTP/1.1\r\n" + end);
  EXPECT_EQ(status_of(metrics), "HTTP/1.1 200");
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain"));
  EXPECT_THAT(metrics, ::testing::EndsWith("\r\n\r\nsteps 7\n"));
  const std::string jobs = RawClient(*server).ask("GET /v1/jobs HTTP/1.1\r\n" + (kToken + end));
  EXPECT_EQ(status_of(jobs), "HTTP/1.1 200");
  EXPECT_THAT(jobs, HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(status_of(RawClient(*server).ask("GET /v1/jobs HTTP/1.1\r\n" + end)), "HTTP/1.1 403");
  EXPECT_EQ(status_of(RawClient(*server).ask("GET /none HTTP/1.1\r\n" + (kToken + end))), "HTTP/1.1 404");
  EXPECT_EQ(status_of(RawClient(*server).ask("HEAD /metrics HTTP/1.1\r\n" + end)), "HTTP/1.1 200");
  EXPECT_EQ(status_of(RawClient(*server).ask("PUT /metrics HTTP/1.1\r\nContent-Length: 0\r\n" + end)), "HTTP/1.1 405");
  auto client = *ControlClient::open(url(*server), "secret", kPatience, "hub");
  EXPECT_EQ(client->get("/v1/jobs").value(), "[]");
  EXPECT_EQ(client->post("/v1/jobs", "x").value(), "x");
  EXPECT_THAT(client->get("/other").error().message, HasSubstr("the hub at http"));
  EXPECT_THAT(client->get("/other").error().message, HasSubstr("a hub has no /other"));
  auto stranger = *ControlClient::open(url(*server), "", kPatience, "hub");
  EXPECT_EQ(stranger->get("/metrics").value(), "steps 7\n");
  EXPECT_FALSE(stranger->get("/v1/jobs"));
}

TEST(ControlTest, WithoutMoreAServerAnswersPostAloneAndOnlyWithTheToken) {
  std::atomic<int> answers = 0;
  const auto server = open([&](const std::string&, const std::string&) -> Result<std::string> {
    ++answers;
    return std::string("ok");
  });
  for (const char* token : {"", "Authorization: Bearer secre\r\n", "Authorization: Bearer secret2\r\n",
                            "Authorization: secret\r\n", "Authorization: \r\n", "Authorization: Bearer \r\n",
                            "Authorization: Basic secret\r\n", "authorization: bearer secret\r\n"}) {
    const std::string answer = RawClient(*server).ask(post("/x", token + std::string("Content-Length: 1\r\n"), "x"));
    EXPECT_EQ(status_of(answer), "HTTP/1.1 403") << token;
    EXPECT_EQ(answer.find("secret"), std::string::npos);
  }
  EXPECT_EQ(status_of(RawClient(*server).ask("GET /x HTTP/1.1\r\n" + std::string(kToken) + "\r\n")), "HTTP/1.1 405");
  EXPECT_EQ(answers, 0);
  EXPECT_EQ(status_of(RawClient(*server).ask(
                post("/x", "Connection: close\r\nContent-Length: 1\r\n" + std::string(kToken), "x"))),
            "HTTP/1.1 200");
  EXPECT_EQ(answers, 1);
  const auto open_server = ControlServer::open(
      "127.0.0.1:0", "", 4, [](const std::string&, const std::string& body) { return Result<std::string>(body); });
  EXPECT_EQ((*ControlClient::open(url(**open_server), "", kPatience))->post("/x", "y").value(), "y");
}

TEST(ControlTest, BodiesThatAreTooLargeOrOfUnknownSizeAreRefusedUnread) {
  ControlServerOptions options;
  options.most_body_bytes = 1000;
  std::atomic<int> answers = 0;
  const auto server = open(
      [&](const std::string&, const std::string& body) -> Result<std::string> {
        ++answers;
        return std::to_string(body.size());
      },
      options);
  const auto ask = [&](const std::string& headers, const std::string& body) {
    return RawClient(*server).ask(post("/x", kToken + headers, body));
  };
  EXPECT_EQ(status_of(ask("Content-Length: 1001\r\n", std::string(1001, 'x'))), "HTTP/1.1 413");
  EXPECT_EQ(status_of(ask("Content-Length: 99999999999\r\n", "")), "HTTP/1.1 413");
  EXPECT_EQ(status_of(ask("Content-Length: 99999999999999999999999\r\n", "")), "HTTP/1.1 400");
  EXPECT_EQ(status_of(ask("Content-Length: -1\r\n", "")), "HTTP/1.1 400");
  EXPECT_EQ(status_of(ask("Content-Length: 5x\r\n", "12345")), "HTTP/1.1 400");
  EXPECT_EQ(status_of(ask("Content-Length: 5\r\nContent-Length: 6\r\n", "123456")), "HTTP/1.1 400");
  EXPECT_EQ(status_of(ask("", "12345")), "HTTP/1.1 411");
  EXPECT_EQ(status_of(ask("Transfer-Encoding: chunked\r\n", "5\r\n12345\r\n0\r\n\r\n")), "HTTP/1.1 411");
  EXPECT_EQ(status_of(ask("Content-Encoding: gzip\r\nContent-Length: 5\r\n", "12345")), "HTTP/1.1 415");
  EXPECT_EQ(answers, 0);
  // What a client sends is no further than its end: here two requests at once, and a body cut short.
  const std::string first = post("/x", std::string(kToken) + "Content-Length: 1000\r\n", std::string(1000, 'x'));
  const std::string second = post("/x", std::string(kToken) + "Connection: close\r\nContent-Length: 2\r\n", "xy");
  const std::string both = RawClient(*server).ask(first + second);
  EXPECT_THAT(both, HasSubstr("1000HTTP/1.1 200"));
  EXPECT_EQ(answers, 2);
  RawClient cut(*server);
  cut.send(post("/x", std::string(kToken) + "Content-Length: 10\r\n", "12345"));
  cut.end_sending();
  EXPECT_EQ(cut.receive().find("200"), std::string::npos);
  EXPECT_EQ(answers, 2);
  // A form is a body like any other.
  EXPECT_THAT(
      ask("Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\nContent-Length: 3\r\n", "a=b"),
      ::testing::EndsWith("3"));
}

TEST(ControlTest, WhatIsNoRequestIsHungUpOn) {
  const auto server = open([](const std::string&, const std::string&) -> Result<std::string> { return std::string(); });
  EXPECT_EQ(status_of(RawClient(*server).ask("nonsense\r\n\r\n")), "HTTP/1.1 400");
  EXPECT_EQ(status_of(RawClient(*server).ask("POST /" + std::string(20'000, 'x') + " HTTP/1.1\r\n\r\n")),
            "HTTP/1.1 414");
  std::string many = "POST /x HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) {
    many += "Name" + std::to_string(i) + ": value\r\n";
  }
  EXPECT_EQ(status_of(RawClient(*server).ask(many)), "HTTP/1.1 431");
}

// More of them than the server has threads, and others still get their answers.
TEST(ControlTest, SlowClientsAreHungUpOn) {
  ControlServerOptions options;
  options.request_time = std::chrono::milliseconds(300);
  const std::string large(64 << 20, 'x');
  const auto server = open(
      [&](const std::string& path, const std::string& body) -> Result<std::string> {
        if (path == "/slow") {  // an answer may take its time
          std::this_thread::sleep_for(std::chrono::milliseconds(500));
        }
        return path == "/large" ? large : body;
      },
      options);
  const auto begin = std::chrono::steady_clock::now();
  const std::string head = post("/x", std::string(kToken) + "Content-Length: 1000\r\n");
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 12; ++i) {
    slow.push_back(std::make_unique<RawClient>(*server));
  }
  std::atomic<bool> over = false;
  std::thread drip([&] {  // a byte now and then: of the request line, of a header, of the body
    std::size_t sent = 0;
    for (const auto& client : slow) {
      client->send(head.substr(0, sent += head.size() / 11));
    }
    while (!over) {
      for (const auto& client : slow) {
        client->send("x");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  RawClient deaf(*server);  // does not read its answer
  deaf.send(post("/large", std::string(kToken) + "Content-Length: 0\r\n"));
  auto client = *ControlClient::open(url(*server), "secret", std::chrono::seconds(10));
  EXPECT_EQ(client->post("/slow", "on time").value(), "on time");
  for (const auto& each : slow) {
    EXPECT_EQ(status_of(each->receive()), "HTTP/1.1 408");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  over = true;
  drip.join();
}

TEST(ControlTest, TheEndOfTheServerDoesNotWaitForClients) {
  ControlServerOptions options;
  options.request_time = std::chrono::seconds(60);
  auto server = open([](const std::string&, const std::string& body) -> Result<std::string> { return body; }, options);
  auto idle = *ControlClient::open(url(*server), "secret", kPatience);
  EXPECT_EQ(idle->post("/x", "kept").value(), "kept");
  RawClient slow(*server);
  slow.send("POST /x HTTP/1.1\r\nHo");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(ControlTest, NobodyThere) {
  auto client = ControlClient::open("http://127.0.0.1:9", "secret", kPatience);
  ASSERT_TRUE(client.has_value());
  EXPECT_EQ((*client)->post("/x", "").error().code, ErrorCode::kNotFound);
  for (const char* wrong : {"127.0.0.1:80", "http://", "http://host", "http://host:", "http://host:0", "http://:1",
                            "http://host:123456", "https://host:1"}) {
    EXPECT_FALSE(ControlClient::open(wrong, "secret", kPatience).has_value()) << wrong;
  }
  EXPECT_FALSE(ControlServer::open("nowhere", "secret", 1, nullptr).has_value());
  EXPECT_NE(make_run_token(), make_run_token());
  EXPECT_EQ(make_run_token().size(), 32U);
}

}  // namespace
}  // namespace tesser::control
