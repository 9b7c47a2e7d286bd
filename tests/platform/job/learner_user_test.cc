// Acting as learners' user. What needs root is shown where the tests run as root.

#include "platform/job/learner_user.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "base/file.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

constexpr LearnerUser kTeam{1'900'700'000, 1'900'700'000};

Volume made_volume(const fs::path& root) {
  const Volume volume(root);
  for (const fs::path& each :
       {volume.code() / "inner", volume.guardian(), volume.data(), volume.checkpoints(), volume.results(),
        volume.state(), volume.attempts(), volume.logs(), volume.all_metrics()}) {
    fs::create_directories(each);
  }
  for (const fs::path& each : {volume.manifest(), volume.job(), volume.secrets(), volume.learner_secrets(),
                               volume.token(), volume.code() / "inner" / "file"}) {
    std::ofstream(each) << "text";
  }
  fs::permissions(volume.token(), fs::perms::owner_read);
  fs::permissions(volume.secrets(), fs::perms::owner_read);
  return volume;
}

TEST(LearnerUserTest, IsWhomTheirPartOfTheVolumeBelongsTo) {
  const TemporaryDirectory directory;
  EXPECT_EQ(learner_user_of(Volume(directory / "absent")), (LearnerUser{::geteuid(), ::getegid()}));
  const Volume volume = made_volume(directory / "volume");
  EXPECT_EQ(learner_user_of(volume).user, ::geteuid());
  {
    const ActingAs same(volume);  // changes nothing
    EXPECT_TRUE(read_file(volume.token()));
  }
  if (::geteuid() != 0) {
    GTEST_SKIP() << "the rest needs root";
  }
  ASSERT_TRUE(give_to_learners(volume, kTeam));
  EXPECT_EQ(learner_user_of(volume), kTeam);
}

TEST(LearnerUserTest, TheirRightsAreTheThreadsAsLongAsItActs) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root";
  }
  const TemporaryDirectory directory;
  const Volume volume = made_volume(directory / "volume");
  ASSERT_TRUE(give_to_learners(volume, kTeam));
  fs::permissions(directory.path(), fs::perms::others_exec, fs::perm_options::add);
  {
    const ActingAs learner(volume);
    for (const fs::path& each : {volume.token(), volume.secrets(), volume.guardian() / "journal.jsonl"}) {
      EXPECT_FALSE(read_file(each)) << each;
    }
    EXPECT_TRUE(read_file(volume.job()));
    EXPECT_TRUE(read_file(volume.learner_secrets()));
    EXPECT_TRUE(read_file(volume.code() / "inner" / "file"));
    EXPECT_FALSE(write_file_atomically(volume.job(), "other"));
    EXPECT_TRUE(write_file_atomically(volume.results() / "mine", "x"));
    fs::create_symlink(volume.token(), volume.results() / "link");
    EXPECT_FALSE(read_file(volume.results() / "link"));
    std::thread([&] {  // one that it started acts alike
      EXPECT_FALSE(read_file(volume.token()));
    })
        .join();
    {
      const ActingAs again(volume);
      EXPECT_FALSE(read_file(volume.token()));
    }
    EXPECT_FALSE(read_file(volume.token()));
    EXPECT_EQ(::geteuid(), 0U);  // it may still signal and start others
  }
  EXPECT_TRUE(read_file(volume.token()));
  struct stat status {};
  ASSERT_EQ(::stat((volume.results() / "mine").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, kTeam.user);
  EXPECT_EQ(status.st_gid, kTeam.group);
}

TEST(LearnerUserTest, WhoBecameOneStaysOne) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root";
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_one = become(kTeam) && ::getuid() == kTeam.user && ::getgid() == kTeam.group &&
                        ::getgroups(0, nullptr) == 0 && ::setuid(0) != 0 && ::setgid(0) != 0 &&
                        ::open("/etc/shadow", O_RDONLY) < 0 && ::umask(0) == 0027;
    ::_exit(is_one ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tesser::platform
