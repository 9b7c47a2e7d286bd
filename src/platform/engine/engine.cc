#include "platform/engine/engine.h"

#include <algorithm>

#include <fmt/format.h>

#include "platform/engine/kubernetes_engine.h"
#include "platform/engine/local_engine.h"
#include "platform/engine/slurm_engine.h"

namespace tesser::platform {

Resources taken_of_node(std::string_view kind, const Resources& each) {
  Resources taken = each;
  if (kind == "slurm") {
    taken.millicpus = std::max<std::int64_t>(1, (each.millicpus + 999) / 1000) * 1000;
  }
  return taken;
}

Result<std::unique_ptr<Engine>> make_engine(const EngineSettings& settings) {
  if (settings.kind == "local") {
    return make_local_engine(settings);
  }
  if (settings.kind == "slurm") {
    return make_slurm_engine(settings);
  }
  if (settings.kind == "kubernetes") {
    return make_kubernetes_engine(settings);
  }
  return invalid_input(fmt::format("there is no engine '{}'; engines are: local, slurm, kubernetes", settings.kind));
}

}  // namespace tesser::platform
