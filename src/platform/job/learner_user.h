// As whom learners of a job run, and how the server and the guardian, who may be root, touch what learners may write:
// with the learners' rights alone (docs/platform.md, Tenants). A link that a learner has laid leads nowhere then where
// the learner could not go, and files of others that it has put among its own cannot be read.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "platform/job/volume.h"

namespace tesser::platform {

// Of learners that run as a user of their own.
inline constexpr mode_t kUmaskOfLearners = 0027;

struct LearnerUser {
  uid_t user = 0;
  gid_t group = 0;

  bool operator==(const LearnerUser&) const = default;
};

// Whom the part of the volume belongs to that learners write (a volume of before there was such a part: whom all of it
// belongs to). This process's own user when there is no volume.
LearnerUser learner_user_of(const Volume& volume);

// Gives the volume, as it was made, to who works with it: the server keeps what learners must not see or change, they
// get the rest, and nobody else may enter. Only root can; others need not call it.
Result<void> give_to_learners(const Volume& volume, const LearnerUser& user);

// As long as it lives this thread, and what it starts, opens, makes and removes files with the rights of that user and
// no more; everything else, such as signals and sockets, stays. Nothing changes unless this process is root and the
// user another. Aborts where the system refuses, which it does root nothing of this. Nests.
class ActingAs {
 public:
  explicit ActingAs(const LearnerUser& user);
  explicit ActingAs(const Volume& volume) : ActingAs(::geteuid() == 0 ? learner_user_of(volume) : LearnerUser{}) {}
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;
  ~ActingAs();

 private:
  bool is_other_ = false;
  uid_t user_before_ = 0;
  gid_t group_before_ = 0;
  std::vector<gid_t> groups_before_;
};

// For the child of a fork(), before it runs the learner's program: it becomes the user for good, without groups,
// capabilities, or a way to gain rights (no_new_privs). Safe among threads. False with errno when the system refuses.
bool become(const LearnerUser& user);

}  // namespace tesser::platform
