// Buckets on a real S3 server (moto's), behind a proxy that breaks connections when told to.
#include "platform/data/s3.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// The server's process, and lines to and from it.
class S3Server {
 public:
  S3Server() {
    int to[2];
    int from[2];
    if (::pipe(to) != 0 || ::pipe(from) != 0) {
      return;
    }
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(to[0], STDIN_FILENO);
      ::dup2(from[1], STDOUT_FILENO);
      for (const int descriptor : {to[0], to[1], from[0], from[1]}) {
        ::close(descriptor);
      }
      ::execlp(TESSER_TEST_PYTHON, TESSER_TEST_PYTHON, TESSER_SOURCE_DIR "/tests/platform/data/s3_server.py", nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
    url_ = line();
  }
  ~S3Server() {
    std::fclose(to_);  // ends it
    std::fclose(from_);
    ::waitpid(process_, nullptr, 0);
  }

  const std::string& url() const { return url_; }
  // From now on requests must be signed by these keys, until trust().
  Secrets authorize() {
    std::fprintf(to_, "authorize\n");
    std::fflush(to_);
    Secrets keys{{"A", line()}};
    keys["B"] = line();
    EXPECT_EQ(line(), "done");
    return keys;
  }
  void trust() { tell("trust"); }
  void tell(const std::string& words) {
    std::fprintf(to_, "%s\n", words.c_str());
    std::fflush(to_);
    EXPECT_EQ(line(), "done");
  }
  // The requests since the last call: "GET /bucket/key bytes=5-".
  std::vector<std::string> requests() {
    std::fprintf(to_, "log\n");
    std::fflush(to_);
    std::vector<std::string> lines(std::stoul(line()));
    for (std::string& each : lines) {
      each = line();
    }
    EXPECT_EQ(line(), "done");
    return lines;
  }

 private:
  std::string line() {
    char text[4096] = "";
    if (std::fgets(text, sizeof(text), from_) == nullptr) {
      return "the server has ended";
    }
    text[std::strlen(text) - 1] = '\0';
    return text;
  }

  pid_t process_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string url_;
};

class S3Test : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new S3Server;
    ASSERT_THAT(server_->url(), testing::StartsWith("http://")) << "pip install of tools/requirements.txt brings moto";
  }
  static void TearDownTestSuite() { delete server_; }

  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("s3_test-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    store_.id = "data";
    store_.type = "s3";
    store_.endpoint = server_->url();
    // A bucket of its own for each test.
    store_.bucket = std::string("bucket-") + std::to_string(++buckets_);
    store_.access_key = "A";
    store_.secret_key = "B";
    server_->tell("bucket " + store_.bucket);
    options_.first_pause = std::chrono::milliseconds(5);
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& key, char letter, int bytes) {
    server_->tell("put " + store_.bucket + "/" + key + " " + letter + " " + std::to_string(bytes));
  }
  Result<TransferSummary> fetch() { return fetch_from_s3(store_, secrets_, root_ / "data", stop_, options_); }

  static S3Server* server_;
  static int buckets_;
  fs::path root_;
  DataStore store_;
  Secrets secrets_ = {{"A", "AKIDEXAMPLE"}, {"B", "wJalrXUtnFEMI"}};
  std::atomic<bool> stop_{false};
  TransferOptions options_;
};

S3Server* S3Test::server_ = nullptr;
int S3Test::buckets_ = 0;

TEST_F(S3Test, AllPagesComeAndAppearAtOnce) {
  store_.prefix = "train/";
  for (int i = 0; i < 7; ++i) {
    put("train/part%20" + std::to_string(i) + "/x.bin", static_cast<char>('a' + i), 1000 + i);
  }
  put("train/empty", 'x', 0);
  put("other/y", 'y', 10);
  options_.page = 3;
  const auto summary = fetch();
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(summary->files, 8);
  EXPECT_EQ(summary->bytes, 7021);
  EXPECT_EQ(read_file(root_ / "data" / "part 3" / "x.bin").value(), std::string(1003, 'd'));
  EXPECT_EQ(read_file(root_ / "data" / "empty").value(), "");
  EXPECT_FALSE(fs::exists(root_ / "data" / "y"));
  EXPECT_FALSE(fs::exists(root_ / "data.partial"));
  (void)server_->requests();
  EXPECT_TRUE(fetch().has_value());
  EXPECT_TRUE(server_->requests().empty());
}

TEST_F(S3Test, ABrokenTransferGoesOnWhereItStopped) {
  put("large", 'x', 3'000'000);
  (void)server_->requests();
  server_->tell("cut 1000000");
  const auto summary = fetch();
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(read_file(root_ / "data" / "large").value(), std::string(3'000'000, 'x'));
  EXPECT_EQ(summary->bytes, 3'000'000);
  const auto requests = server_->requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_THAT(requests[2], HasSubstr("bytes=1000000-"));
}

TEST_F(S3Test, ALaterCallTakesWhatAnEarlierOneLeft) {
  put("a", 'a', 1'000'000);
  put("b", 'b', 2'000'000);
  options_.tries = 1;
  server_->tell("cut 400000");
  ASSERT_FALSE(fetch().has_value());
  EXPECT_FALSE(fs::exists(root_ / "data"));
  const auto summary = fetch();
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(summary->resumed, 400'000);
  EXPECT_EQ(summary->bytes, 2'600'000);
  EXPECT_EQ(read_file(root_ / "data" / "a").value(), std::string(1'000'000, 'a'));
}

TEST_F(S3Test, APartThatIsWrongIsFetchedAgain) {
  put("a", 'a', 1'000'000);
  options_.tries = 1;
  server_->tell("cut 400000");
  ASSERT_FALSE(fetch().has_value());
  for (const auto& part : fs::directory_iterator(root_ / "data.partial" / "parts")) {
    std::ofstream(part.path(), std::ios::binary) << std::string(400'000, 'z');  // of the right length
  }
  const auto summary = fetch();
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(read_file(root_ / "data" / "a").value(), std::string(1'000'000, 'a'));
}

TEST_F(S3Test, AServerInTroubleIsAskedAgain) {
  put("a", 'a', 10);
  server_->tell("fail 3");
  EXPECT_TRUE(fetch().has_value());
  fs::remove_all(root_ / "data");
  options_.tries = 2;
  server_->tell("fail 2");
  const auto summary = fetch();
  ASSERT_FALSE(summary.has_value());
  EXPECT_EQ(summary.error().code, ErrorCode::kFailed);
  EXPECT_THAT(summary.error().message, HasSubstr("SlowDown"));
}

TEST_F(S3Test, ResultsAreStoredAlsoInParts) {
  options_.part_bytes = 5 << 20;
  fs::create_directories(root_ / "results" / "deep");
  std::ofstream(root_ / "results" / "small & odd.txt") << "hello";
  std::string large(6'000'000, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) {
    large[i] = static_cast<char>(i * 7919 >> 9);
  }
  std::ofstream(root_ / "results" / "deep" / "large.bin", std::ios::binary) << large;
  std::ofstream(root_ / "results" / "empty");
  const auto stored = store_to_s3(store_, secrets_, "runs/1", root_ / "results", stop_, options_);
  ASSERT_TRUE(stored.has_value()) << stored.error().message;
  EXPECT_EQ(stored->files, 3);
  EXPECT_EQ(stored->bytes, 6'000'005);
  store_.prefix = "runs/1/";
  const auto fetched = fetch();
  ASSERT_TRUE(fetched.has_value()) << fetched.error().message;
  EXPECT_EQ(fetched->files, 3);
  EXPECT_EQ(read_file(root_ / "data" / "deep" / "large.bin").value(), large);
  EXPECT_EQ(read_file(root_ / "data" / "small & odd.txt").value(), "hello");
}

TEST_F(S3Test, WhatIsMissingIsTold) {
  const auto empty = fetch();
  EXPECT_EQ(empty.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(empty.error().message, HasSubstr("no object's name begins with ''"));
  store_.bucket = "no-such-bucket";
  const auto none = fetch();
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message,
              HasSubstr("data store 'data' (bucket no-such-bucket): there is no such bucket at http"));
  secrets_.clear();
  EXPECT_THAT(fetch().error().message, HasSubstr("the secret 'A' was not given"));
  secrets_ = {{"A", "a"}, {"B", "b"}};
  store_.endpoint = "http://127.0.0.1:1";
  options_.tries = 2;
  const auto away = fetch();
  EXPECT_EQ(away.error().code, ErrorCode::kFailed);
  EXPECT_THAT(away.error().message, HasSubstr("(2 tries)"));
}

// The server computes every signature itself here.
TEST_F(S3Test, KeysOpenABucketAndWrongOnesAreTold) {
  put("a/%C3%BC+~%20b", 'a', 1000);
  secrets_ = server_->authorize();
  const auto fetched = fetch();
  EXPECT_TRUE(fetched) << fetched.error().message;
  fs::create_directories(root_ / "results");
  std::ofstream(root_ / "results" / "weights") << "w";
  const auto stored = store_to_s3(store_, secrets_, "runs/1", root_ / "results", stop_, options_);
  EXPECT_TRUE(stored) << stored.error().message;
  fs::remove_all(root_ / "data");
  for (const char* wrong : {"A", "B"}) {
    Secrets others = secrets_;
    others[wrong] = "wrong";
    for (const auto& outcome : {fetch_from_s3(store_, others, root_ / "data", stop_, options_),
                                store_to_s3(store_, others, "runs/2", root_ / "results", stop_, options_)}) {
      ASSERT_FALSE(outcome) << wrong;
      EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidInput) << outcome.error().message;
      EXPECT_THAT(outcome.error().message, HasSubstr("data store 'data' (bucket " + store_.bucket + ")"));
      EXPECT_THAT(outcome.error().message, HasSubstr("are refused"));
      EXPECT_THAT(outcome.error().message, Not(HasSubstr(secrets_["B"])));
    }
  }
  server_->trust();
}

TEST_F(S3Test, NamesThatAreNoPathsAreRefused) {
  for (const char* key : {"x/../../y", "x//y", "./z"}) {
    store_.bucket = std::string("bucket-") + std::to_string(++buckets_);
    server_->tell("bucket " + store_.bucket);
    std::string encoded;
    for (const char* c = key; *c != '\0'; ++c) {
      encoded += *c == '.' ? "%2E" : std::string(1, *c);
    }
    put(encoded, 'x', 1);
    const auto summary = fetch();
    ASSERT_FALSE(summary.has_value()) << key;
    EXPECT_EQ(summary.error().code, ErrorCode::kInvalidInput) << summary.error().message;
    EXPECT_FALSE(fs::exists(root_ / "data"));
  }
}

TEST_F(S3Test, AFullDiskIsTold) {
  if (!fs::exists("/dev/full")) {
    GTEST_SKIP() << "this system has no /dev/full";
  }
  put("a", 'a', 1000);
  options_.tries = 1;
  server_->tell("cut 10");
  ASSERT_FALSE(fetch().has_value());
  fs::path part;
  for (const auto& each : fs::directory_iterator(root_ / "data.partial" / "parts")) {
    part = each.path();
  }
  fs::remove(part);
  fs::create_symlink("/dev/full", part);
  const auto summary = fetch();
  ASSERT_FALSE(summary.has_value());
  EXPECT_THAT(summary.error().message, HasSubstr("No space left on device"));
}

TEST_F(S3Test, ItStopsWhenToldTo) {
  put("a", 'a', 1000);
  stop_ = true;
  const auto summary = fetch();
  ASSERT_FALSE(summary.has_value());
  EXPECT_THAT(summary.error().message, HasSubstr("told to stop"));
  EXPECT_FALSE(fs::exists(root_ / "data"));
}

}  // namespace
}  // namespace tesser::platform
