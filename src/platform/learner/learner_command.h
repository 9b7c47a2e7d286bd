// What a learner runs: the command of its job, and the environment it gets (docs/formats/logs.md).
//
// Values; any thread.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/manifest.h"
#include "platform/job/secrets.h"
#include "platform/job/volume.h"
#include "platform/learner/markers.h"

namespace tesser::platform {

struct LearnerPlace {
  Volume volume;
  int attempt = 0;
  int rank = 0;
  Go go;
  std::filesystem::path tesser;  // this program
  std::string run_token;         // of a tesser program's run: shared by all its learners
};

// One after the other; a stage that fails is the last.
struct CommandStage {
  std::string what;  // in messages: "the command"
  std::vector<std::string> words;
  std::vector<std::vector<std::string>> beside;  // run as long as it runs
  bool needs_port = true;
  bool tells_wrong_input = false;  // its exit code 2 means that it will never run so: a program of ours
};

struct LearnerCommand {
  std::vector<CommandStage> stages;
  std::map<std::string, std::string> environment;
  std::filesystem::path directory;
};

// The name of a job is that of its volume's directory.
std::string job_of(const Volume& volume);
// JOB/ATTEMPT/RANK: TESSER_LEARNER of everything that a learner starts.
std::string learner_tag(const Volume& volume, int attempt, int rank);

// kInvalidInput when the job cannot run so.
Result<LearnerCommand> learner_command(const Manifest& manifest, const Secrets& secrets, const LearnerPlace& place);

// Where the system finds a command that is started in a directory with a PATH. kInvalidInput says why there is none.
Result<std::filesystem::path> find_program(const std::string& word, const std::filesystem::path& directory,
                                           std::string_view path);

}  // namespace tesser::platform
