// What the engine `slurm` keeps of one attempt on the job's volume, below attempts/N/slurm, and the words it submits.
//
//   ticket         of the one Slurm job that may start learners. A Slurm job that comes later than its deployment was
//                  given up (the answer of sbatch was lost, its process died) has another ticket and starts nothing
//   begun-TICKET   that Slurm job has begun: it never does so twice, whoever puts it back into the queue
//   hosts          the node of each rank, one a line; none where Slurm chooses
//   size           what was asked of Slurm; an attempt of equal size can follow in the same Slurm job
//   batch          what runs first, on the first node
//   words          arguments of srun, for batch
//   over           nothing of the learners is left, and batch waits a moment for another attempt
//   next           the number of the attempt that follows in the same Slurm job; a directory: none does any more
//   batch.log      what batch and srun say
//   started-R      rank R starts; holds its node's name. Written on the node
//   ended-R        its process is gone, however it ended. Written on the node
//
// One thread at a time; other processes and nodes write there as well.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "platform/engine/engine.h"
#include "platform/job/learner_user.h"

namespace tesser::platform {

struct SlurmWords;

struct SlurmMarks {
  std::map<int, std::string> started;  // by rank: the node's name
  std::set<int> ended;
};

class SlurmAttempt {
 public:
  SlurmAttempt(const std::filesystem::path& volume, int attempt);

  const std::filesystem::path& directory() const { return directory_; }

  std::string ticket() const;  // empty: there is none
  bool has_begun(const std::string& ticket) const;
  Result<void> write_ticket(const std::string& ticket) const;
  void remove_ticket() const;

  // All that a Slurm job with the ticket needs. `chosen`: the node of each rank; empty where Slurm chooses.
  Result<void> write(const Placement& chosen, const SlurmWords& words) const;
  // Removes what learners have left there, but no logs.
  void clear() const;

  Placement hosts() const;
  SlurmMarks marks() const;
  std::string size() const;
  bool is_over() const;
  std::optional<int> next() const;
  // Whether the attempt follows this one; false when its Slurm job waits no more.
  Result<bool> write_next(int attempt) const;
  // Changes with each mark, and with each word of batch's and srun's. Asks the file system anew, also where that is
  // another machine's.
  std::size_t signs() const;
  // The last line that batch and srun have said; empty when none.
  std::string last_words() const;
  // Of which srun says that they ended badly, as far as its last MiB of words goes. Whatever killed one may have killed
  // what would mark its end.
  std::set<int> ended_badly() const;

 private:
  std::filesystem::path directory_;
  LearnerUser user_;  // as whom all of it is read and written: learners may write there
};

std::string new_slurm_ticket();

// What is submitted, in parts.
struct SlurmWords {
  std::vector<std::string> sbatch;  // all of that command
  std::vector<std::string> srun;    // without the program's name
  std::string size;                 // equal where one Slurm job can run both
};

struct SlurmRequest {
  std::string partition;             // empty: the default one
  std::int64_t share_of_memory = 0;  // of one processor, for learners that do not say what they need; in MiB
  Placement chosen;                  // of each rank; empty: Slurm chooses
  std::string ticket;
  LearnerUser user;  // whose Slurm's job it is, where that is another than this process's
};
// kInvalidInput for what can stand in no command.
Result<SlurmWords> slurm_words(const Deployment& deployment, const SlurmRequest& request);

}  // namespace tesser::platform
