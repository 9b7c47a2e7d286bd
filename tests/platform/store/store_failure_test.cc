// Disks that are full, files that are damaged, and processes that are killed while they write.

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "platform/store/store.h"

namespace tesser::platform {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StoreFailureTest : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return directory_ / "store.sqlite"; }
  std::unique_ptr<Store> open() {
    auto opened = Store::open(file());
    EXPECT_TRUE(opened) << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }
  std::string why_not() {
    const auto opened = Store::open(file());
    EXPECT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kFailed);
    return opened.error().message;
  }

  TemporaryDirectory directory_;
};

NewJob job_named(const std::string& id, std::size_t bytes = 0) {
  NewJob job;
  job.id = id;
  job.description = std::string(bytes, 'x');
  return job;
}

SchedulingStep place(const std::string& id) {
  SchedulingStep step;
  step.job = id;
  step.nodes = {"a"};
  return step;
}

// Every job has its state's history and its token, whatever happened before.
void check_whole(const std::filesystem::path& file) {
  SQLite::Database raw(file.string(), SQLite::OPEN_READONLY);
  EXPECT_EQ(raw.execAndGet("PRAGMA integrity_check").getString(), "ok");
  EXPECT_EQ(
      raw.execAndGet("SELECT count(*) FROM jobs WHERE state != (SELECT state FROM history WHERE job = id ORDER BY "
                     "history.number DESC LIMIT 1)")
          .getInt(),
      0);
  EXPECT_EQ(
      raw.execAndGet("SELECT count(*) FROM jobs WHERE NOT EXISTS (SELECT 1 FROM tokens WHERE job = jobs.id)").getInt(),
      0);
}

TEST_F(StoreFailureTest, FilesThatAreNoStore) {
  std::ofstream(file()) << std::string(4096, 'x');
  EXPECT_THAT(why_not(), AllOf(HasSubstr(file().string()), HasSubstr("damaged or no store")));
  std::filesystem::remove(file());
  { SQLite::Database(file().string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE other (x)"); }
  EXPECT_THAT(why_not(), HasSubstr("another program"));
  std::filesystem::remove(file());
  open();
  { SQLite::Database(file().string(), SQLite::OPEN_READWRITE).exec("PRAGMA user_version = 99"); }
  EXPECT_THAT(why_not(), AllOf(HasSubstr("newer tesser"), HasSubstr("99")));
  EXPECT_FALSE(Store::open(directory_ / "none" / "store.sqlite"));
}

TEST_F(StoreFailureTest, ADamagedFileIsRefused) {
  {
    const auto store = open();
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(store->submit(job_named(std::to_string(i), 500), "t" + std::to_string(i)));
    }
  }
  std::fstream raw(file(), std::ios::in | std::ios::out | std::ios::binary);
  for (int page = 2; page < 12; ++page) {
    raw.seekp(page * 4096);
    raw << std::string(2000, '\x5a');
  }
  raw.close();
  EXPECT_THAT(why_not(), HasSubstr("damaged"));
}

TEST_F(StoreFailureTest, AStoreThatAnotherProgramHasLocked) {
  const auto store = open();
  SQLite::Database other(file().string(), SQLite::OPEN_READWRITE);
  other.exec("BEGIN IMMEDIATE");
  const auto refused = store->submit(job_named("j"), "t");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kFailed);
  EXPECT_THAT(refused.error().message, HasSubstr("locked by another program"));
  EXPECT_TRUE(store->jobs({})->empty());  // reading goes on
  other.exec("ROLLBACK");
  EXPECT_TRUE(store->submit(job_named("j"), "t"));
}

// Writes until nothing more can be written; gives how many jobs were accepted, or -1 when something was wrong.
int fill(Store& store, const std::string& expected) {
  for (int i = 0; i < 10'000; ++i) {
    const auto made = store.submit(job_named(std::to_string(i), 20'000), "t" + std::to_string(i));
    if (!made) {
      const bool says_so = made.error().message.find(expected) != std::string::npos;
      const auto jobs = store.jobs({{}, "", "", 0, 100'000});  // those accepted can be read
      return says_so && jobs && static_cast<int>(jobs->size()) == i && i > 0 ? i : -1;
    }
  }
  return -1;
}

TEST_F(StoreFailureTest, AFileThatMayNotGrow) {
  int result[2];
  ASSERT_EQ(::pipe(result), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{8 << 20, 8 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto store = Store::open(file());
    const int accepted = store ? fill(**store, "cannot be read or written") : -1;
    [[maybe_unused]] const auto written = ::write(result[1], &accepted, sizeof(accepted));
    ::_exit(0);
  }
  int accepted = -1;
  ASSERT_EQ(::read(result[0], &accepted, sizeof(accepted)), static_cast<ssize_t>(sizeof(accepted)));
  ::waitpid(child, nullptr, 0);
  ::close(result[0]);
  ::close(result[1]);
  ASSERT_GT(accepted, 0);
  const auto store = open();
  EXPECT_EQ(static_cast<int>(store->jobs({{}, "", "", 0, 100'000})->size()), accepted);
  check_whole(file());
}

TEST_F(StoreFailureTest, ADiskThatIsFull) {
  if (::mount("tesser-store-test", directory_.path().c_str(), "tmpfs", 0, "size=16m") != 0) {
    GTEST_SKIP() << "only root may mount a small disk";
  }
  {
    std::ofstream(directory_ / "else") << std::string(500'000, 'x');
    const auto store = open();
    const int accepted = fill(*store, "disk");
    EXPECT_GT(accepted, 0);
    // What changes jobs that are there goes through all the same: a job that fills the disk must be stopped.
    std::ofstream(directory_ / "more") << std::string(std::size_t{16} << 20, 'x');
    for (int i = 1; i < accepted; ++i) {
      const std::string id = std::to_string(i);
      const auto placed = store->carry_out({place(id)}, 1);
      ASSERT_TRUE(placed) << placed.error().message;
      const auto lease = store->take_lease(id, "h");
      ASSERT_TRUE(lease) << lease.error().message;
      ASSERT_TRUE(store->want(id, Wanted::kDelete));
      const auto halted = store->report(id, {{JobState::kHalted, "", "deleted", 1, lease->epoch, 2}, 1});
      ASSERT_TRUE(halted) << i << " of " << accepted << ": " << halted.error().message;
    }
    std::filesystem::remove(directory_ / "more");
    std::filesystem::remove(directory_ / "else");  // once there is space again, all goes on
    EXPECT_TRUE(store->remove("0"));
    EXPECT_TRUE(store->submit(job_named("more"), "t"));
  }
  check_whole(file());
  EXPECT_EQ(::umount(directory_.path().c_str()), 0);
}

// Takes jobs through states without an end, and says what is stored.
[[noreturn]] void write_for_ever(const std::filesystem::path& file, int round, int says) {
  auto store = Store::open(file);
  if (!store) {
    ::_exit(1);
  }
  for (int i = 0;; ++i) {
    const std::string id = std::to_string(round) + "-" + std::to_string(i);
    if (!(*store)->submit(job_named(id, 300), "t" + id)) {
      ::_exit(1);
    }
    [[maybe_unused]] auto written = ::write(says, (id + "\n").data(), id.size() + 1);
    const auto left = (*store)->carry_out({place(id)}, 1);
    const auto lease = (*store)->take_lease(id, "h");
    if (!left || !left->empty() || !lease ||
        !(*store)->report(id, {{JobState::kDeploying, "", "", 1, lease->epoch, 2}, 1})) {
      ::_exit(1);
    }
    written = ::write(says, (id + "+\n").data(), id.size() + 2);
  }
}

TEST_F(StoreFailureTest, WhoIsKilledWhileWritingLosesNothingThatWasAcknowledged) {
  std::mt19937 random(20261129);
  std::string acknowledged;
  open();
  for (int round = 0; round < 25; ++round) {
    int says[2];
    ASSERT_EQ(::pipe(says), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      write_for_ever(file(), round, says[1]);
    }
    ::close(says[1]);
    ::usleep(std::uniform_int_distribution(1'000, 40'000)(random));
    ::kill(child, SIGKILL);
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(says[0], buffer, sizeof(buffer))) > 0;) {
      acknowledged.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(says[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  const auto store = open();
  int jobs = 0;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = acknowledged.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string id = acknowledged.substr(begin, end - begin);
    const bool deployed = id.ends_with('+');
    const auto job = store->job(deployed ? id.substr(0, id.size() - 1) : id);
    ASSERT_TRUE(job) << id;
    EXPECT_TRUE(!deployed || job->state == JobState::kDeploying) << id;
    ++jobs;
  }
  EXPECT_GT(jobs, 10);
  check_whole(file());
}

}  // namespace
}  // namespace tesser::platform
