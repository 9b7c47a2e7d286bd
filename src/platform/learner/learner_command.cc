#include "platform/learner/learner_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "control/control_http.h"
#include "platform/job/program_files.h"

extern char** environ;

namespace tesser::platform {
namespace {

constexpr std::string_view kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kTag = "TESSER_LEARNER";

// What a command keeps of the learner process's own environment.
bool is_kept(std::string_view name) {
  constexpr std::array kNames{"PATH", "LANG", "TZ", "TMPDIR", "TESSER_PYTHON"};
  constexpr std::array kPrefixes{"LC_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](const char* prefix) { return name.starts_with(prefix); });
}

int whole_processors(const Resources& each) {
  return static_cast<int>(std::max<std::int64_t>(each.millicpus / 1000, 1));
}

std::map<std::string, std::string> platform_environment(const Manifest& manifest, const LearnerPlace& place) {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (is_kept(name) && name.size() < text.size()) {
      environment[std::string(name)] = text.substr(name.size() + 1);
    }
  }
  environment.try_emplace("PATH", kUsualPath);
  std::int64_t accelerators = 0;
  for (const auto& [type, count] : manifest.each.accelerators) {
    accelerators += count;
  }
  const Volume& volume = place.volume;
  const std::string rank = std::to_string(place.rank);
  const std::string learners = std::to_string(place.go.learners);
  const std::string port = std::to_string(place.go.master_port);
  const std::map<std::string, std::string> ours{
      {"DATA_DIR", volume.data()},
      {"MODEL_DIR", volume.code()},
      {"RESULT_DIR", volume.results()},
      {"LOG_DIR", volume.log_files(place.rank)},
      {"CHECKPOINT_DIR", volume.checkpoints()},
      {"JOB_STATE_DIR", volume.state()},
      {"HOME", volume.state()},
      {"LEARNER_ID", rank},
      {"NUM_LEARNERS", learners},
      {"GPU_COUNT", std::to_string(accelerators)},
      {"TRAINING_ID", job_of(volume)},
      {"TESSER_RESTART", std::to_string(place.attempt)},
      {"MASTER_ADDR", place.go.master_address},
      {"MASTER_PORT", port},
      {"RANK", rank},
      {"WORLD_SIZE", learners},
      {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", "1"},
      {"PET_NNODES", learners},
      {"PET_NODE_RANK", rank},
      {"PET_MASTER_ADDR", place.go.master_address},
      {"PET_MASTER_PORT", port},
      {"OMP_NUM_THREADS", std::to_string(whole_processors(manifest.each))},
  };
  for (const auto& [name, value] : ours) {
    environment[name] = value;
  }
  return environment;
}

// A data directory as a manifest names it: in a data store, or else in the code.
// Stages of a training step of tesser, docs/runtime.md: rank 0 leads, and each learner is a worker.
Result<std::vector<CommandStage>> program_stages(const Manifest& manifest, const LearnerPlace& place) {
  const TesserProgram& given = *manifest.program;
  const Volume& volume = place.volume;
  const std::string tesser = place.tesser;
  const int replicas = given.replicas.value_or(1);
  if (place.go.learners % replicas != 0) {
    return invalid_input(fmt::format("{} learners cannot make {} replicas: their number must be a multiple of it",
                                     place.go.learners, replicas));
  }
  const bool is_one = place.go.learners == 1;
  const std::string& address = place.go.master_address;
  const std::string meeting = fmt::format(
      "{}:{}", address.find(':') == std::string::npos ? address : "[" + address + "]", place.go.master_port);
  const std::vector<std::string> worker{
      tesser, "worker", "--coordinator", "http://" + meeting, "--worker", std::to_string(place.rank)};
  if (place.rank > 0) {
    return std::vector<CommandStage>{{"tesser worker", worker, {}}};
  }
  std::vector<CommandStage> stages;
  std::filesystem::path program = volume.code() / given.program;
  if (program.extension() == ".py") {
    const std::filesystem::path captured = volume.state() / program.stem().concat(".tesser");
    if (std::error_code error; !std::filesystem::exists(captured, error)) {
      stages.push_back({fmt::format("tesser capture of {}", given.program),
                        {tesser, "capture", program, "-o", captured},
                        {},
                        false,
                        true});
    }
    program = captured;
  }
  CommandStage train{"tesser train",
                     {tesser, "train", program, "--data", data_of_program(manifest, volume.code(), volume.data())},
                     {},
                     true,
                     true};
  const auto add = [&](const std::vector<std::string>& words) {
    const auto& arguments = given.arguments;
    const auto is_given = [&](const std::string& argument) {
      return argument == words[0] || argument.starts_with(words[0] + "=");
    };
    if (std::none_of(arguments.begin(), arguments.end(), is_given)) {
      train.words.insert(train.words.end(), words.begin(), words.end());
    }
  };
  add({"--checkpoint", volume.checkpoints()});
  add({"--resume"});
  add({"--keep", std::to_string(manifest.keep_checkpoints)});
  add({"--json"});
  if (manifest.checkpoint_every > 0) {
    add({"--every", std::to_string(manifest.checkpoint_every)});
  }
  if (is_one) {
    add({"--threads", std::to_string(whole_processors(manifest.each))});
  } else {
    if (!given.preset.empty()) {
      add({"--preset", given.preset});
    }
    // Workers on one machine share out its processors, of which each learner has only some.
    add({"--threads", std::to_string(whole_processors(manifest.each))});
    train.words.insert(train.words.end(),
                       {"--workers", std::to_string(place.go.learners / replicas), "--external", "--listen", meeting});
    if (replicas > 1) {
      train.words.insert(train.words.end(), {"--replicas", std::to_string(replicas)});
    }
    train.beside.push_back(worker);
  }
  train.words.insert(train.words.end(), given.arguments.begin(), given.arguments.end());
  stages.push_back(std::move(train));
  stages.push_back({"tesser export",
                    {tesser, "export", volume.checkpoints(), "-o", volume.results() / "weights.safetensors"},
                    {},
                    false});
  return stages;
}

}  // namespace

std::string job_of(const Volume& volume) {
  const std::filesystem::path root = volume.root().lexically_normal();
  return (root.has_filename() ? root : root.parent_path()).filename();
}

std::string learner_tag(const Volume& volume, int attempt, int rank) {
  return fmt::format("{}/{}/{}", job_of(volume), attempt, rank);
}

Result<LearnerCommand> learner_command(const Manifest& manifest, const Secrets& secrets, const LearnerPlace& place) {
  LearnerCommand command;
  std::error_code error;
  command.directory =
      std::filesystem::is_directory(place.volume.code(), error) ? place.volume.code() : place.volume.root();
  command.environment = platform_environment(manifest, place);
  if (manifest.program) {
    TESSER_ASSIGN_OR_RETURN(command.stages, program_stages(manifest, place));
    command.environment[control::kRunTokenVariable] = place.run_token;
  } else if (manifest.command.empty() || manifest.command[0].empty()) {
    return invalid_input("the job has no command");
  } else {
    command.stages.push_back({"the command", manifest.command, {}});
  }
  TESSER_ASSIGN_OR_RETURN(const auto own, resolved_environment(manifest, secrets));
  for (const auto& [name, value] : own) {
    command.environment[name] = value;
  }
  command.environment[kTag] = learner_tag(place.volume, place.attempt, place.rank);
  return command;
}

Result<std::filesystem::path> find_program(const std::string& word, const std::filesystem::path& directory,
                                           std::string_view path) {
  const auto is_file = [](const std::filesystem::path& candidate) {
    struct stat status {};
    return ::stat(candidate.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
  };
  const auto not_executable = [](const std::filesystem::path& found) {
    return invalid_input(
        fmt::format("{} is not executable; make it so (chmod +x), or name what runs it first, such as "
                    "python or sh",
                    found.string()));
  };
  if (word.find('/') != std::string::npos) {
    const std::filesystem::path candidate = directory / word;
    if (!is_file(candidate)) {
      return invalid_input(fmt::format("command not found: {} is no file", candidate.string()));
    }
    return ::access(candidate.c_str(), X_OK) == 0 ? Result<std::filesystem::path>(candidate)
                                                  : not_executable(candidate);
  }
  std::filesystem::path without_permission;
  for (std::string_view rest = path;;) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    const std::filesystem::path candidate = directory / std::filesystem::path(folder) / word;
    if (is_file(candidate)) {
      if (::access(candidate.c_str(), X_OK) == 0) {
        return candidate;
      }
      without_permission = candidate;
    }
    if (folder.size() == rest.size()) {
      break;
    }
    rest.remove_prefix(folder.size() + 1);
  }
  if (!without_permission.empty()) {
    return not_executable(without_permission);
  }
  const bool is_in_code = is_file(directory / word);
  return invalid_input(fmt::format("command not found: '{}' is in no directory of PATH ({}){}", word, path,
                                   is_in_code ? fmt::format("; the file in the code directory is ./{}", word) : ""));
}

}  // namespace tesser::platform
