// Learners as tasks of Slurm: one batch job a deployment, in which srun starts the learner of each rank.
//
// What is there is asked of Slurm's controller (squeue, scontrol); which tasks have started and ended, of marks on the
// job's volume (slurm_attempt.h), which Slurm's daemons on the nodes write. Both outlive the controller, and any
// engine. So the controller is asked every 5 s while all is well, and at once when there is a mark. Slurm's commands
// run as this process's user; Slurm jobs are learners' users', and those of others are neither seen nor touched. Of
// this process's environment they get PATH, HOME, USER, LOGNAME, SLURM_CONF and SBATCH_... (accounts, reservations),
// and so do learners.
#pragma once

#include <memory>

#include "base/result.h"
#include "platform/engine/engine.h"

namespace tesser::platform {

// kInvalidInput when Slurm's commands are not there. Does not speak to Slurm.
Result<std::unique_ptr<Engine>> make_slurm_engine(const EngineSettings& settings);

}  // namespace tesser::platform
