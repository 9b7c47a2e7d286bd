#include "platform/learner/markers.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "base/file.h"
#include "platform/learner/learner_host.h"

namespace tesser::platform {
namespace {

TEST(Markers, ReadWhatTheyWrite) {
  const TemporaryDirectory directory;
  const auto path = [&](const char* name) { return directory.path() / name; };
  LearnerUp up = this_host();
  up.rank = 3;
  up.port = 20'001;
  up.time = 17;
  EXPECT_FALSE(up.addresses.empty());
  EXPECT_FALSE(up.network.empty());
  EXPECT_GT(up.started, 0);
  ASSERT_TRUE(write_file_atomically(path("up"), to_json(up)));
  const auto read = read_learner_up(path("up"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(up));

  ASSERT_TRUE(write_file_atomically(path("go"), to_json(Go{2, "10.0.0.1", 7000})));
  EXPECT_EQ(read_go(path("go"))->master_address, "10.0.0.1");

  ASSERT_TRUE(write_file_atomically(path("stop"), to_json(Stop{std::chrono::milliseconds(300)})));
  EXPECT_EQ(read_stop(path("stop"))->grace, std::chrono::milliseconds(300));
  ASSERT_TRUE(write_file_atomically(path("stop"), to_json(Stop{})));
  EXPECT_EQ(read_stop(path("stop"))->grace, std::nullopt);

  LearnerExit exit;
  exit.rank = 1;
  exit.signal = 9;
  exit.error_class = "S";
  exit.reason = "ended by \"SIGKILL\"";
  exit.started = 5;
  exit.is_final = true;
  exit.lines = 1ULL << 40;
  ASSERT_TRUE(write_file_atomically(path("exit"), to_json(exit)));
  const auto ended = read_learner_exit(path("exit"));
  ASSERT_TRUE(ended) << ended.error().message;
  EXPECT_EQ(to_json(*ended), to_json(exit));
  EXPECT_FALSE(ended->succeeded());
}

TEST(Markers, MissingAndBroken) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "go.json";
  EXPECT_EQ(read_go(path).error().code, ErrorCode::kNotFound);
  for (const char* text :
       {"", "{", "[]", "{\"learners\":0}", "{\"learners\":1,\"master_address\":3,\"master_port\":1}"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(read_go(path).error().code, ErrorCode::kInvalidInput) << text;
    EXPECT_NE(read_go(path).error().message.find("go.json"), std::string::npos) << read_go(path).error().message;
    EXPECT_FALSE(read_learner_exit(path));
    EXPECT_FALSE(read_learner_up(path));
  }
}

TEST(Markers, AreWrittenOnceWhoeverComesFirst) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "exit-0.json";
  std::vector<std::thread> writers;
  std::atomic<int> first{0};
  for (int index = 0; index < 8; ++index) {
    writers.emplace_back([&, index] {
      const auto written = write_marker_once(path, std::to_string(index));
      ASSERT_TRUE(written);
      first += *written ? 1 : 0;
    });
  }
  for (std::thread& each : writers) {
    each.join();
  }
  EXPECT_EQ(first, 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(MeetingPlace, OneNetworkOrSeveral) {
  LearnerUp a;
  a.network = "boot/net:1";
  a.addresses = {"10.0.0.1", "fd00::1"};
  a.port = 21'000;
  LearnerUp b = a;
  b.addresses = {"10.0.0.2"};
  EXPECT_EQ(meeting_place({a, b}).master_address, "127.0.0.1");
  b.network = "boot/net:2";
  const Go go = meeting_place({a, b});
  EXPECT_EQ(go.master_address, "10.0.0.1");
  EXPECT_EQ(go.master_port, 21'000);
  EXPECT_EQ(go.learners, 2);
  a.network = b.network = "";
  EXPECT_EQ(meeting_place({a, b}).master_address, "10.0.0.1");
}

TEST(ReservedPort, IsFreeOnceGivenBack) {
  auto port = ReservedPort::take();
  ASSERT_TRUE(port);
  const int number = port->number();
  EXPECT_GE(number, 20'000);
  auto other = ReservedPort::take();
  EXPECT_NE(other->number(), number);
}

TEST(Secret, IsItsOwnersAlone) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "token";
  ASSERT_TRUE(write_secret(path, "secret"));
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(*read_file(path), "secret");
}

}  // namespace
}  // namespace tesser::platform
