// tesser guardian: guards one job (started by the server, or by Kubernetes).

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/file.h"
#include "cli/commands.h"
#include "platform/guardian/guardian.h"
#include "platform/job/volume.h"

namespace tesser::cli {
namespace {

constexpr const char* kExamples = R"(
A guardian takes one job from its places on nodes to its end. The server starts it; nobody else needs to.

Example:
  tesser guardian --volume DATA/jobs/ID --server http://127.0.0.1:8470 --engine-settings DATA/engine.json)";

struct Options {
  std::filesystem::path volume;
  std::string server;
  std::filesystem::path engine_settings;
  std::filesystem::path authorities;
};

// A line of the guardian's log; threads take turns.
void log_line(const std::string& message) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto now = std::chrono::system_clock::now();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
  const std::string line =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z {} {}\n", fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                  microseconds % 1'000'000, ::getpid(), message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Result<int> guard(const Options& options) {
  platform::GuardianOptions guardian;
  std::error_code error;
  guardian.volume = std::filesystem::canonical(options.volume, error);
  if (error) {
    return not_found(fmt::format("{}: no such directory, expected a job's volume", options.volume.string()));
  }
  guardian.server = options.server;
  guardian.authorities = options.authorities;
  TESSER_ASSIGN_OR_RETURN(const std::string settings, read_file(options.engine_settings));
  TESSER_ASSIGN_OR_RETURN(guardian.engine, platform::engine_settings_from_json(settings));
  guardian.tesser = std::filesystem::read_symlink("/proc/self/exe", error);
  guardian.log = log_line;

  const platform::Volume volume(guardian.volume);
  std::filesystem::create_directories(volume.guardian(), error);
  const int log = ::open(volume.guardian_log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log >= 0) {
    ::dup2(log, STDERR_FILENO);
    ::close(log);
  }
  const Result<void> outcome = platform::guard(guardian);
  if (!outcome) {
    log_line(outcome.error().message);
    return tl::unexpected(outcome.error());
  }
  // A thread may still wait for the engine's system, which is nothing to wait for.
  std::_Exit(0);
}

}  // namespace

void add_guardian(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("guardian", "Guard one job of the platform (the server starts it)");
  const auto options = std::make_shared<Options>();
  command->add_option("--volume", options->volume, "The job's volume: DATA/jobs/ID")->required();
  command->add_option("--server", options->server, "Where the server is: http://HOST:PORT")->required();
  command->add_option("--ca-file", options->authorities, "Whom to trust to be the server, with https://: a PEM file");
  command->add_option("--engine-settings", options->engine_settings, "The engine, as the server has written it")
      ->required();
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return guard(*options); }; });
}

}  // namespace tesser::cli
