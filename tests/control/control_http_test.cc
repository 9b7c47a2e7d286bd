// Requests over HTTP, over real connections.

#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/control_http.h"

namespace tesser::control {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kPatience{1000};

std::string url(const ControlServer& server) { return "http://127.0.0.1:" + std::to_string(server.port()); }

std::unique_ptr<ControlServer> open(ControlServer::Answer answer) {
  auto server = ControlServer::open("127.0.0.1:0", "secret", 4, std::move(answer));
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
