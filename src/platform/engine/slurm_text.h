// What Slurm's commands print, read. Slurm's own words may change from version to version; what stands here is the same
// from 22.05 to 24.11.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/job/resources.h"

namespace tesser::platform {

// The label of everything that is ours: job name and comment of a Slurm job.
struct SlurmLabel {
  int attempt = 0;
  int learners = 0;
  std::string ticket;  // of one submission; 16 hexadecimal digits
};

std::string slurm_job_name(std::string_view job);  // "tesser-JOB"
std::string to_comment(const SlurmLabel& label);   // "tesser attempt=2 learners=4 ticket=0123456789abcdef"
std::optional<SlurmLabel> label_from_comment(std::string_view comment);

// One Slurm job.
struct SlurmJob {
  std::string id;         // digits
  std::string state;      // "PENDING", "RUNNING", "NODE_FAIL" ...
  std::string reason;     // as Slurm has it: "Resources"
  std::int64_t user = 0;  // whose it is
  SlurmLabel label;       // as it was submitted
  int node_count = 0;     // nodes that it has; one that failed is taken from it
  std::string nodes;      // of these, in Slurm's short form: "node[1-2]"
  std::string directory;  // its work directory: the volume
  int steps = 1;          // attempts that have run in it one after the other; the last one is label.attempt
};

// The argument of squeue that makes it print what slurm_jobs_from_squeue() reads. Comments and directories are what
// users say, line ends included: `mark`, which nobody can know before, stands at the begin and end of each line.
std::string squeue_format(std::string_view mark);
// Lines without the mark and a label of ours are left out.
std::vector<SlurmJob> slurm_jobs_from_squeue(std::string_view text, std::string_view mark);

// Whether a job in this state can still start or run something.
bool is_waiting_in_slurm(std::string_view state);  // PENDING and the like
bool is_running_in_slurm(std::string_view state);  // RUNNING and the like, COMPLETING
// In words, with Slurm's own word: "waits until enough nodes are free (Slurm: Resources)".
std::string waiting_in_words(std::string_view reason);
// "Slurm has ended the job: its time limit is reached (TIMEOUT)".
std::string end_in_words(std::string_view state, std::string_view reason);

// Nodes of `scontrol --oneliner show nodes` that belong to a partition, with why they are not ready. What Slurm keeps
// for itself (specialized cores and memory) is taken off.
std::vector<Node> nodes_from_scontrol(std::string_view text, std::string_view partition);

// Name and state of each node there, whatever its partition.
std::vector<std::pair<std::string, std::string>> node_states_from_scontrol(std::string_view text);

struct SlurmPartition {
  std::string name;
  bool is_default = false;
  std::string state;  // "UP"
};
// Of `scontrol --oneliner show partitions`.
std::vector<SlurmPartition> partitions_from_scontrol(std::string_view text);

// Why a node with this state ("IDLE+DRAIN", "DOWN*+NOT_RESPONDING") takes no learners; empty: it takes some.
std::string why_not_ready(std::string_view state);
// Whether what ran on a node with this state is gone, or out of reach for good.
bool is_lost(std::string_view state);

// Tasks of which srun says that they ended badly ("srun: error: node1: tasks 0,2-3: Killed").
std::set<int> tasks_that_ended_badly(std::string_view srun_errors);

// Whether sbatch's words say that it will never take this submission, as opposed to not now.
bool is_refusal(std::string_view errors);
// The first line that says what is wrong, without the program's name before it.
std::string first_error(std::string_view errors);

}  // namespace tesser::platform
