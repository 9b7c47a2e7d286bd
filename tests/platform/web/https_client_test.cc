#include "platform/web/https_client.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json_reader.h"
#include "platform/web/sha256.h"

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

std::chrono::milliseconds since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
}

// tests/platform/web/https_server.py in a process of its own, which ends with its standard input.
class Server {
 public:
  Server() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tesser-https-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    int to_child[2], from_child[2];
    if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) {
      return;
    }
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(to_child[0], 0);
      ::dup2(from_child[1], 1);
      ::execlp("python3", "python3", TESSER_SOURCE_DIR "/tests/platform/web/https_server.py", folder_.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    input_ = to_child[1];
    FILE* output = ::fdopen(from_child[0], "r");
    if (::fscanf(output, "%d %d %d", &tls, &mutual, &plain) != 3) {
      tls = 0;
    }
    ::fclose(output);
  }
  ~Server() {
    ::close(input_);
    ::waitpid(process_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }

  std::string pem(const std::string& name) const { return *read_file(folder_ / name); }
  std::filesystem::path folder() const { return folder_; }

  int tls = 0;
  int mutual = 0;
  int plain = 0;

 private:
  std::filesystem::path folder_;
  pid_t process_ = -1;
  int input_ = -1;
};

class HttpsClientTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new Server; }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(server_->tls, 0) << "https_server.py did not start"; }

  static HttpsOptions trusting() {
    HttpsOptions options;
    options.authorities = server_->pem("ca.pem");
    options.what = "the tests' server";
    return options;
  }
  static std::unique_ptr<HttpsClient> client(HttpsOptions options = trusting()) {
    return std::move(*HttpsClient::open(std::move(options)));
  }
  static HttpsRequest get(const std::string& path, int port = server_->tls) {
    HttpsRequest request;
    request.url =
        (port == server_->plain ? "http" : "https") + std::string("://localhost:") + std::to_string(port) + path;
    return request;
  }
  static Json echo(HttpsClient& client, const HttpsRequest& request) {
    const Result<HttpsAnswer> answer = client.send(request);
    EXPECT_TRUE(answer) << (answer ? "" : answer.error().message);
    EXPECT_EQ(answer ? answer->status : 0, 200);
    return answer ? *parse_json(answer->body) : Json();
  }

  static Server* server_;
};
Server* HttpsClientTest::server_ = nullptr;

TEST_F(HttpsClientTest, SendsMethodHeadersAndBody) {
  const auto open = client();
  for (const std::string method : {"GET", "POST", "PUT", "PATCH", "DELETE"}) {
    HttpsRequest request = get("/echo?a=b");
    request.method = method;
    request.headers = {{"X-Word", "some words"}, {"Content-Type", "application/json"}};
    request.body = method == "GET" ? "" : "{\"method\": \"" + method + "\"}";
    const Json seen = echo(*open, request);
    EXPECT_EQ(*seen.find("method")->string(), method);
    EXPECT_EQ(*seen.find("target")->string(), "/echo?a=b");
    EXPECT_EQ(*seen.find("headers")->find("x-word")->string(), "some words");
    EXPECT_EQ(*seen.find("headers")->find("content-type")->string(), "application/json");
    EXPECT_EQ(*seen.find("body")->string(), hexadecimal(sha256(request.body)));
  }
  const Result<HttpsAnswer> head = open->send([] {
    HttpsRequest request = get("/large");
    request.method = "HEAD";
    return request;
  }());
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(*head->header("content-length"), "8388608");
  EXPECT_EQ(head->body, "");
}

TEST_F(HttpsClientTest, AnswersOfAnyStatusAreAnswers) {
  const auto open = client();
  const Result<HttpsAnswer> refused = open->send(get("/refused"));
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_EQ(refused->status, 409);
  EXPECT_EQ(refused->body, "in the way");
  const Result<HttpsAnswer> moved = open->send(get("/moved"));
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->status, 302);
  EXPECT_EQ(*moved->header("location"), "/echo");
}

TEST_F(HttpsClientTest, UsesItsConnectionAgain) {
  const auto open = client();
  const std::int64_t first = *echo(*open, get("/echo")).find("connections")->integer();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(*echo(*open, get("/echo")).find("connections")->integer(), first);
  }
}

TEST_F(HttpsClientTest, SendsBodiesThatComeInPieces) {
  const auto open = client();
  std::string content;
  for (int i = 0; i < 3'000'000; ++i) {
    content += static_cast<char>(i * 7 + i / 251);
  }
  HttpsRequest request = get("/echo");
  request.method = "PUT";
  request.upload_bytes = content.size();
  std::size_t at = 0;
  request.upload = [&](std::span<char> room) -> Result<std::size_t> {
    const std::size_t bytes = std::min({room.size(), content.size() - at, std::size_t{12345}});
    std::copy_n(content.data() + at, bytes, room.data());
    at += bytes;
    return bytes;
  };
  const Json seen = echo(*open, request);
  EXPECT_EQ(*seen.find("bytes")->integer(), static_cast<std::int64_t>(content.size()));
  EXPECT_EQ(*seen.find("body")->string(), hexadecimal(sha256(content)));

  at = 0;
  request.upload_bytes += 1;  // more than there is
  const Result<HttpsAnswer> answer = open->send(request);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("ended after 3000000 of 3000001 bytes"));
}

TEST_F(HttpsClientTest, GivesAnswersInPieces) {
  const auto open = client();
  Sha256 hash;
  std::size_t bytes = 0;
  HttpsRequest request = get("/large");
  request.receive = [&](std::string_view piece) -> Result<bool> {
    hash.update(piece);
    bytes += piece.size();
    return true;
  };
  const Result<HttpsAnswer> answer = open->send(request);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(bytes, std::size_t{8} << 20);
  const Result<HttpsAnswer> whole = open->send(get("/large"));
  EXPECT_EQ(hash.digest(), sha256(whole->body));

  request.url = get("/refused").url;  // a refusal's words are kept
  EXPECT_EQ(open->send(request)->body, "in the way");
}

TEST_F(HttpsClientTest, AnEndlessAnswerEndsWhenItsReaderHasEnough) {
  const auto open = client();
  std::string text;
  HttpsRequest request = get("/ticks");
  request.receive = [&](std::string_view piece) -> Result<bool> {
    text += piece;
    return std::count(text.begin(), text.end(), '\n') < 3;
  };
  const auto start = std::chrono::steady_clock::now();
  const Result<HttpsAnswer> answer = open->send(request);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_TRUE(text.starts_with("tick 0\ntick 1\ntick 2\n"));
  EXPECT_LT(since(start), milliseconds(2000));

  request.receive = [](std::string_view) -> Result<bool> { return invalid_input("not what was expected"); };
  const Result<HttpsAnswer> refused = open->send(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(refused.error().message, HasSubstr("not what was expected"));
}

TEST_F(HttpsClientTest, ARequestEndsWhenItsSenderHasEnough) {
  const auto open = client();
  for (const char* path : {"/silent", "/ticks"}) {
    HttpsRequest request = get(path);
    const auto start = std::chrono::steady_clock::now();
    request.look = milliseconds(20);
    request.receive = [](std::string_view) -> Result<bool> { return true; };
    int looks = 0;
    request.goes_on = [&] {
      ++looks;
      return since(start) < milliseconds(300);
    };
    const Result<HttpsAnswer> answer = open->send(request);
    ASSERT_TRUE(answer) << path << ": " << answer.error().message;
    EXPECT_GE(since(start), milliseconds(300));
    EXPECT_LT(since(start), milliseconds(2000));
    EXPECT_GE(looks, 5) << path;
  }
  EXPECT_TRUE(open->send(get("/echo")));
}

TEST_F(HttpsClientTest, LimitsHold) {
  const auto open = client();
  HttpsRequest request = get("/silent");
  request.limits.whole = milliseconds(200);
  auto start = std::chrono::steady_clock::now();
  Result<HttpsAnswer> answer = open->send(request);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kFailed);
  EXPECT_LT(since(start), milliseconds(2000));

  request.limits.whole = milliseconds(0);
  request.limits.idle = milliseconds(200);
  start = std::chrono::steady_clock::now();
  answer = open->send(request);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("no byte for 200 ms"));
  EXPECT_LT(since(start), milliseconds(2000));

  // Bytes that come keep an answer alive.
  request = get("/ticks");
  request.limits.idle = milliseconds(1500);
  start = std::chrono::steady_clock::now();
  request.receive = [&](std::string_view) -> Result<bool> { return since(start) < milliseconds(2000); };
  answer = open->send(request);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_GE(since(start), milliseconds(2000));

  request = get("/large");
  request.most_body_bytes = 1 << 20;
  answer = open->send(request);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("more than 1048576 bytes"));
}

TEST_F(HttpsClientTest, AnotherThreadCancels) {
  const auto open = client();
  const auto start = std::chrono::steady_clock::now();
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(100));
    open->cancel();
  });
  const Result<HttpsAnswer> answer = open->send(get("/silent"));
  const milliseconds taken = since(start);
  other.join();
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("was cancelled"));
  EXPECT_LT(taken, milliseconds(2000));
  ASSERT_FALSE(open->send(get("/silent")));  // until it is taken back
  open->reset();
  EXPECT_TRUE(open->send(get("/echo")));
}

TEST_F(HttpsClientTest, TrustsWhomItIsToldToTrust) {
  const Result<HttpsAnswer> unknown = client({})->send(get("/echo"));
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kFailed);
  EXPECT_THAT(unknown.error().message, HasSubstr("certificate"));
  HttpsOptions options;
  options.verify = false;
  EXPECT_TRUE(client(options)->send(get("/echo")));
  options = {};
  options.authorities_file = server_->folder() / "ca.pem";
  EXPECT_TRUE(client(options)->send(get("/echo")));
  options.authorities_file = "/nowhere/ca.pem";
  const Result<std::unique_ptr<HttpsClient>> missing = HttpsClient::open(options);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("/nowhere/ca.pem"));

  // The certificate is for localhost and 127.0.0.1 only.
  HttpsRequest other_name = get("/echo");
  other_name.url = "https://127.0.0.2:" + std::to_string(server_->tls) + "/echo";
  EXPECT_FALSE(client()->send(other_name));
}

TEST_F(HttpsClientTest, ShowsItsCertificate) {
  EXPECT_FALSE(client()->send(get("/echo", server_->mutual)));
  HttpsOptions options = trusting();
  options.client_certificate = server_->pem("client.pem");
  EXPECT_FALSE(HttpsClient::open(options));
  options.client_key = server_->pem("client.key");
  const Json seen = echo(*client(options), get("/echo", server_->mutual));
  EXPECT_EQ(*seen.find("peer")->string(), "client");

  options.client_key = "no key at all";
  const Result<HttpsAnswer> answer = client(options)->send(get("/echo", server_->mutual));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kInvalidInput);
}

TEST_F(HttpsClientTest, SaysWhatWentWrong) {
  const auto open = client();
  HttpsRequest request;
  request.url = "https://localhost:1/";
  request.headers = {{"Authorization", "Bearer secret"}};
  Result<HttpsAnswer> answer = open->send(request);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(answer.error().message, HasSubstr("the tests' server at https://localhost:1: "));
  EXPECT_THAT(answer.error().message, Not(HasSubstr("secret")));

  request.url = "file:///etc/passwd";
  answer = open->send(request);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kInvalidInput);

  request = get("/echo");
  request.headers = {{"X-Word", "one\r\nX-Other: two"}};
  answer = open->send(request);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kInvalidInput);

  answer = open->send(get("/broken"));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kFailed);
}

TEST_F(HttpsClientTest, SignsWhatItSends) {
  const auto open = client();
  HttpsRequest request = get("/echo?b=2&a=1", server_->plain);
  request.method = "PUT";
  request.body = "content";
  request.sign = AwsCredentials{"key", "secret", "", "us-east-1", "s3"};
  const Json seen = echo(*open, request);
  const Json& headers = *seen.find("headers");
  EXPECT_EQ(*headers.find("x-amz-content-sha256")->string(), hexadecimal(sha256("content")));
  EXPECT_THAT(*headers.find("authorization")->string(), HasSubstr("Credential=key/"));
  EXPECT_EQ(*headers.find("host")->string(), "localhost:" + std::to_string(server_->plain));
}

}  // namespace
}  // namespace tesser::platform
