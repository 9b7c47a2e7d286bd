// What the engine `slurm` keeps of one attempt on the job's volume, below attempts/N/slurm, and the words it submits.
//
//   ticket         of the one submission that may start learners. A Slurm job that comes later than its deployment was
//                  given up (the answer of sbatch was lost, its process died) has another ticket and starts nothing
//   begun-TICKET   that Slurm job has begun: it never does so twice, whoever puts it back into the queue
//   hosts          the node of each rank, one a line; none where Slurm chooses
//   batch, epilog  what runs first on the first node, and after each learner
//   batch.log      what batch and srun say
//   started-R      rank R starts; holds its node's name. Written on the node
//   ended-R        its process is gone. Written on the node by Slurm, however it ended
//
// One thread at a time; other processes and nodes write there as well.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "platform/engine/engine.h"

namespace tesser::platform {

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
  Result<void> write(const Placement& chosen) const;
  // Removes what learners have left there, but no logs.
  void clear() const;

  Placement hosts() const;
  SlurmMarks marks() const;
  // Changes with each mark. Asks the file system anew, also where that is another machine's.
  std::size_t count_of_marks() const;
  // The last line that batch and srun have said; empty when none.
  std::string last_words() const;

 private:
  std::filesystem::path directory_;
};

std::string new_slurm_ticket();

struct SlurmRequest {
  std::string partition;             // empty: the default one
  std::int64_t share_of_memory = 0;  // of one processor, for learners that do not say what they need; in MiB
  Placement chosen;                  // of each rank; empty: Slurm chooses
  std::string ticket;
};
// The words of sbatch. kInvalidInput for what can stand in none.
Result<std::vector<std::string>> words_of_sbatch(const Deployment& deployment, const SlurmRequest& request);

}  // namespace tesser::platform
