// The client against a real HTTP server whose answers a test gives.
#include "platform/client/client.h"

#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/http_server.h"

namespace tesser::platform {
namespace {

using control::HttpAdmission;
using control::HttpRequest;
using control::HttpResponse;
using testing::HasSubstr;

constexpr const char* kJob = R"({"id":"a-1","state":"QUEUED"})";

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    control::HttpServerOptions options;
    options.admit = [this](const HttpRequest& request) {
      HttpAdmission admission;
      admission.most_body_bytes = 1 << 22;
      if (request.method == "POST") {
        admission.parts_directory = testing::TempDir();
      }
      return admission;
    };
    options.answer = [this](const HttpRequest& request) {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      for (control::HttpPart& part : requests_.back().parts) {
        if (!part.file.empty()) {
          std::ifstream file(part.file, std::ios::binary);
          part.content.assign(std::istreambuf_iterator<char>(file), {});
        }
      }
      HttpResponse response;
      response.status = status_;
      response.body = body_;
      return response;
    };
    auto server = control::HttpServer::open("127.0.0.1:0", options);
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
    ClientOptions settings;
    settings.url = "http://127.0.0.1:" + std::to_string(server_->port()) + "/";
    settings.token = "secret-token";
    settings.submit_time = std::chrono::seconds(1);
    auto client = Client::open(std::move(settings));
    ASSERT_TRUE(client.has_value()) << client.error().message;
    client_ = std::move(*client);
  }

  void answer(int status, const std::string& body) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    body_ = body;
  }

  std::mutex mutex_;
  int status_ = 200;
  std::string body_ = kJob;
  std::vector<HttpRequest> requests_;
  std::unique_ptr<control::HttpServer> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, ASubmissionCarriesItsPartsAndKey) {
  const std::filesystem::path zip = std::filesystem::path(testing::TempDir()) / "client_test.zip";
  const std::string content(300'000, '\x01');
  std::ofstream(zip, std::ios::binary) << content;
  answer(201, kJob);
  const auto job = client_->submit({"name: a\n", {{"KEY", "v\"alue"}}, zip, "key-1"});
  std::filesystem::remove(zip);
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(job->id, "a-1");
  const HttpRequest& request = requests_.at(0);
  EXPECT_EQ(*request.header("Idempotency-Key"), "key-1");
  EXPECT_EQ(*request.header("Authorization"), "Bearer secret-token");
  ASSERT_EQ(request.parts.size(), 3U);
  EXPECT_EQ(request.parts[0].name, "manifest");
  EXPECT_EQ(request.parts[0].content, "name: a\n");
  EXPECT_EQ(request.parts[1].name, "secrets");
  EXPECT_EQ(secrets_from_json(request.parts[1].content).value(), (Secrets{{"KEY", "v\"alue"}}));
  EXPECT_EQ(request.parts[2].name, "code");
  EXPECT_EQ(request.parts[2].content, content);
}

TEST_F(ClientTest, ASubmissionIsTriedAgainWithTheSameKeyWhileTheServerCannot) {
  answer(503, R"({"error":{"code":"S1","message":"the store is locked"}})");
  const auto job = client_->submit({"name: a\n", {}, {}, ""});
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().message, "the store is locked");
  ASSERT_GT(requests_.size(), 2U);
  const std::string key = *requests_[0].header("Idempotency-Key");
  EXPECT_EQ(key.size(), 32U);
  for (const HttpRequest& request : requests_) {
    EXPECT_EQ(*request.header("Idempotency-Key"), key);
  }
}

TEST_F(ClientTest, RequestsAreThoseOfTheContract) {
  EXPECT_TRUE(client_->halt("a-1").has_value());
  EXPECT_TRUE(client_->resume("a-1", 4).has_value());
  EXPECT_TRUE(client_->resume("a-1", std::nullopt).has_value());
  EXPECT_TRUE(client_->remove("a/1").has_value());
  answer(200, R"({"lines":[],"cursor":"c","ended":true})");
  FollowQuery query;
  query.learner = 1;
  query.cursor = "0:1:2,1:2:3";
  query.wait = std::chrono::seconds(3);
  EXPECT_TRUE(client_->logs("a-1", query).has_value());
  ASSERT_EQ(requests_.size(), 5U);
  EXPECT_EQ(requests_[0].method, "PATCH");
  EXPECT_EQ(requests_[0].path, "/v1/jobs/a-1");
  EXPECT_EQ(requests_[0].body, R"({"wanted":"halt"})");
  EXPECT_EQ(requests_[1].body, R"({"wanted":"run","learners":4})");
  EXPECT_EQ(requests_[2].body, R"({"wanted":"run"})");
  EXPECT_EQ(requests_[3].method, "DELETE");
  EXPECT_EQ(requests_[3].path, "/v1/jobs/a/1");
  EXPECT_EQ(requests_[4].path, "/v1/jobs/a-1/logs");
  EXPECT_EQ(*requests_[4].argument("learner"), "1");
  EXPECT_EQ(*requests_[4].argument("cursor"), "0:1:2,1:2:3");
  EXPECT_EQ(*requests_[4].argument("wait"), "3");
}

TEST_F(ClientTest, RefusalsSayWhatToDo) {
  answer(401, R"({"error":{"code":"U1","message":"who are you?"}})");
  auto job = client_->job("a-1");
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().code, ErrorCode::kInvalidInput);
  EXPECT_THAT(job.error().message, HasSubstr("does not know this token"));
  EXPECT_THAT(job.error().message, testing::Not(HasSubstr("secret-token")));
  answer(404, R"({"error":{"code":"U2","message":"no job a-1"}})");
  job = client_->job("a-1");
  EXPECT_EQ(job.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(client_->is_out_of_reach());
  answer(409, R"({"error":{"code":"U3","message":"is COMPLETED"}})");
  EXPECT_EQ(client_->halt("a-1").error().message, "is COMPLETED");
  answer(404, "<html>");
  EXPECT_THAT(client_->job("a-1").error().message, HasSubstr("status 404; is it a server of tesser's platform?"));
}

TEST_F(ClientTest, NobodyThereIsToldWithWhatToDo) {
  server_.reset();
  const auto job = client_->job("a-1");
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(client_->is_out_of_reach());
  EXPECT_THAT(job.error().message, HasSubstr("start one with `tesser server`"));
}

TEST_F(ClientTest, ADownloadComesPieceByPiece) {
  const std::string content(3'000'000, 'x');
  answer(200, content);
  std::string got;
  int pieces = 0;
  const auto outcome = client_->download("a-1", Download::kResults, [&](std::string_view piece) -> Result<void> {
    got += piece;
    ++pieces;
    return {};
  });
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  EXPECT_EQ(got, content);
  EXPECT_GT(pieces, 1);
  const auto stopped = client_->download("a-1", Download::kResults,
                                         [](std::string_view) -> Result<void> { return failed("disk full"); });
  EXPECT_EQ(stopped.error().message, "disk full");
}

TEST(ClientUrl, WhatIsNoServerIsRefused) {
  for (const char* url : {"", "localhost:7800", "ftp://host", "http://", "http://host/path"}) {
    ClientOptions options;
    options.url = url;
    EXPECT_FALSE(Client::open(std::move(options)).has_value()) << url;
  }
}

}  // namespace
}  // namespace tesser::platform
