// The engine `kubernetes`: a learner is a Pod, which the engine binds to its node itself; a guardian is a Job.
#pragma once

#include <memory>

#include "base/result.h"
#include "platform/engine/engine.h"

namespace tesser::platform {

// kInvalidInput when the settings name no image or their kubeconfig cannot be used; the API server is not asked yet.
Result<std::unique_ptr<Engine>> make_kubernetes_engine(const EngineSettings& settings);

}  // namespace tesser::platform
