// The guardian of one job (docs/platform.md): takes it from its places to its end, whatever dies on the way.
//
// All that it decides stands in its journal before it is done, and what to do next follows from the journal alone. So
// it may be killed at any moment: its successor reads the journal and goes on.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "platform/engine/engine.h"

namespace tesser::platform {

struct GuardianOptions {
  std::filesystem::path volume;       // DATA/jobs/ID: the directory's name is the job's
  std::string server;                 // "http://HOST:PORT"
  std::filesystem::path authorities;  // whom to trust to be the server, with https://; empty: the system's
  EngineSettings engine;
  std::filesystem::path tesser;  // the program, which learners run
  std::function<void(const std::string&)> log;
};

// Returns when the job is final, halted, or has given its places back, and the server knows. Blocks until then. Error:
// this process cannot guard the job (another one does, the volume is damaged, the server wants no guardian).
Result<void> guard(const GuardianOptions& options);

}  // namespace tesser::platform
