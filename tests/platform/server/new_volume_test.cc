#include "platform/server/new_volume.h"

#include <deque>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

class NewVolumeTest : public testing::Test {
 protected:
  NewVolumeTest() {
    fs::create_directories(data_ / "incoming");
    fs::create_directories(data_ / "jobs");
  }
  Result<NewVolume> make(std::deque<std::string> identifiers) const {
    return NewVolume::make(data_, [&]() -> Result<std::string> {
      if (identifiers.empty()) {
        return failed("no more ids");
      }
      std::string next = identifiers.front();
      identifiers.pop_front();
      return next;
    });
  }
  const TemporaryDirectory directory_;
  const fs::path data_ = directory_.path();
};

TEST_F(NewVolumeTest, AnIdThatAJobOrAnotherSubmissionHasIsNotTaken) {
  fs::create_directories(data_ / "jobs" / "a" / "code");
  auto first = make({"b"});
  ASSERT_TRUE(first);
  auto second = make({"a", "b", "c"});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->identifier(), "c");
  EXPECT_FALSE(fs::exists(data_ / "incoming" / "a"));
  EXPECT_TRUE(fs::exists(data_ / "jobs" / "a" / "code"));
  EXPECT_TRUE(fs::exists(first->path()));
}

TEST_F(NewVolumeTest, StaysWhenItIsKeptAndGoesElsewise) {
  for (const bool keeps : {true, false}) {
    auto volume = make({"a"});
    ASSERT_TRUE(volume);
    {
      NewVolume moved = std::move(*volume);
      fs::create_directories(moved.path() / "code");
      ASSERT_TRUE(moved.move_to_jobs());
      EXPECT_EQ(moved.path(), data_ / "jobs" / "a");
      if (keeps) {
        moved.keep();
      }
    }
    EXPECT_TRUE(fs::is_empty(data_ / "incoming"));
    EXPECT_EQ(fs::exists(data_ / "jobs" / "a" / "code"), keeps);
    fs::remove_all(data_ / "jobs" / "a");
  }
}

TEST_F(NewVolumeTest, SaysWhatRefuses) {
  EXPECT_EQ(make({}).error().message, "no more ids");
  fs::remove(data_ / "incoming");
  EXPECT_THAT(make({"a"}).error().message, testing::HasSubstr((data_ / "incoming" / "a").string()));
}

TEST(Identifier, IsOfTheNameAndLettersThatAreNotMistaken) {
  const auto identifier = random_identifier("mnist");
  ASSERT_TRUE(identifier);
  EXPECT_TRUE(looks_like_identifier(*identifier)) << *identifier;
  EXPECT_TRUE(identifier->starts_with("mnist-"));
  EXPECT_FALSE(looks_like_identifier("mnist"));
  EXPECT_FALSE(looks_like_identifier("mnist-lO0111"));
}

}  // namespace
}  // namespace tesser::platform
