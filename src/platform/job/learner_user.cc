#include "platform/job/learner_user.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/check.h"
#include "base/file.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

// setfsuid() tells no error, but what there was before; this value changes nothing.
constexpr uid_t kNobody = static_cast<uid_t>(-1);

// The system call is of one thread; glibc's function sets all of them.
int set_groups_of_thread(const std::vector<gid_t>& groups) {
  return static_cast<int>(::syscall(SYS_setgroups, groups.size(), groups.data()));
}

// Nothing is followed: who calls this may be root.
Result<void> give(const fs::path& path, uid_t user, gid_t group, mode_t mode) {
  if (::lchown(path.c_str(), user, group) != 0 || ::chmod(path.c_str(), mode) != 0) {
    return tl::unexpected<Error>(file_error(path, "give to the learners' user", errno));
  }
  return {};
}

}  // namespace

LearnerUser learner_user_of(const Volume& volume) {
  struct stat status {};
  if (::lstat(volume.attempts().c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return {status.st_uid, status.st_gid};
  }
  if (::lstat(volume.root().c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return {status.st_uid, status.st_gid};
  }
  return {::geteuid(), ::getegid()};
}

Result<void> give_to_learners(const Volume& volume, const LearnerUser& user) {
  const uid_t us = ::geteuid();
  TESSER_RETURN_IF_ERROR(give(volume.root(), us, user.group, 0750));
  TESSER_RETURN_IF_ERROR(give(volume.guardian(), us, ::getegid(), 0700));
  for (const fs::path& file : {volume.manifest(), volume.job(), volume.learner_secrets()}) {
    TESSER_RETURN_IF_ERROR(give(file, us, user.group, 0640));
  }
  std::error_code error;
  for (fs::recursive_directory_iterator each(volume.code(), error), end; !error && each != end; each.increment(error)) {
    const bool runs = (each->status(error).permissions() & fs::perms::owner_exec) != fs::perms::none;
    TESSER_RETURN_IF_ERROR(give(each->path(), user.user, user.group, runs ? 0750 : 0640));
  }
  if (error) {
    return failed(volume.code().string() + ": cannot be read: " + error.message());
  }
  for (const fs::path& directory : {volume.code(), volume.data(), volume.checkpoints(), volume.results(),
                                    volume.state(), volume.attempts(), volume.logs(), volume.all_metrics()}) {
    TESSER_RETURN_IF_ERROR(give(directory, user.user, user.group, 0750));
  }
  return {};
}

ActingAs::ActingAs(const LearnerUser& user) {
  if (::geteuid() != 0 || user.user == 0) {
    return;
  }
  is_other_ = true;
  groups_before_.resize(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
  groups_before_.resize(static_cast<std::size_t>(
      std::max(0, ::getgroups(static_cast<int>(groups_before_.size()), groups_before_.data()))));
  TESSER_CHECK(set_groups_of_thread({}) == 0, "root may give up its groups");
  group_before_ = static_cast<gid_t>(::setfsgid(user.group));
  user_before_ = static_cast<uid_t>(::setfsuid(user.user));
  TESSER_CHECK(static_cast<uid_t>(::setfsuid(kNobody)) == user.user &&
                   static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))) == user.group,
               "root may open files as another user");
}

ActingAs::~ActingAs() {
  if (!is_other_) {
    return;
  }
  ::setfsuid(user_before_);
  ::setfsgid(group_before_);
  TESSER_CHECK(set_groups_of_thread(groups_before_) == 0, "root may take its groups again");
}

bool become(const LearnerUser& user) {
  if (::geteuid() == 0 && user.user != 0) {
    ::umask(kUmaskOfLearners);
    if (::syscall(SYS_setgroups, 0, nullptr) != 0 ||
        ::syscall(SYS_setresgid, user.group, user.group, user.group) != 0 ||
        ::syscall(SYS_setresuid, user.user, user.user, user.user) != 0) {
      return false;
    }
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
  }
  return true;
}

}  // namespace tesser::platform
