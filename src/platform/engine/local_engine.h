// Learners as processes of this machine, on pretend nodes.
//
// Each learner leads a session of its own and outlives whoever started it. What an engine remembers lies in the state
// directory, so that any process sees the same:
//
//   jobs/JOB/ATTEMPT/deployment.json   before anything of it starts
//   jobs/JOB/ATTEMPT/learner-R.json    the process of rank R; the process itself writes it before it becomes the
//                                      learner, and only if nobody has: so a learner starts once or never
//   jobs/JOB/removed-...               an attempt that somebody has begun to remove; whoever comes next ends that
//   nodes/NAME                         this node is not ready, for the reason in the file; its learners are lost. For
//                                      tests and for people who want to take a node out
//
// Processes are known by their identifier with start time, by their cgroup where one can be made, and by
// TESSER_LEARNER=JOB/ATTEMPT/RANK in their environment, which descendants inherit: remove() ends all of them.
#pragma once

#include <memory>

#include "base/result.h"
#include "platform/engine/engine.h"

namespace tesser::platform {

// kInvalidInput when the state directory cannot be made or nodes are named twice.
Result<std::unique_ptr<Engine>> make_local_engine(const EngineSettings& settings);

}  // namespace tesser::platform
