// `tesser submit`: gives a job to the platform.
#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/amount_text.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/job_follow.h"
#include "cli/output.h"
#include "cli/platform_login.h"
#include "platform/client/code_archive.h"
#include "platform/job/manifest.h"
#include "platform/job/program_files.h"

namespace tesser::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExamples = R"(
Examples:
  tesser submit job.yaml                 a job that needs no files
  tesser submit job.yaml .               with this directory as its code
  tesser submit job.yaml . --follow      and watch it to its end; the exit code is the job's outcome
  tesser submit job.yaml . --check       only say whether the server would take it

docs/formats/manifest.md says what a manifest holds. `${NAME}` in it is taken from your environment, and kept as a
secret. A .tesserignore in the directory names what is left out, as a .gitignore does.)";

struct Options {
  fs::path manifest;
  std::optional<fs::path> directory;
  std::string key;
  bool follow = false;
  bool check = false;
  bool json = false;
};

// A directory of our own that goes when this does.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> make() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "tesser-submit-XXXXXX").string();
    if (error || ::mkdtemp(name.data()) == nullptr) {
      return failed(fmt::format("{}: no temporary directory can be made there; TMPDIR names another place", name));
    }
    return TemporaryDirectory(name);
  }
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory() {
    std::error_code error;
    if (!path_.empty()) {
      fs::remove_all(path_, error);
    }
  }
  const fs::path& path() const { return path_; }

 private:
  explicit TemporaryDirectory(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// Takes the values of the names that the manifest does not have itself.
Result<void> take_from_environment(platform::Submission& submission, const std::string& where) {
  for (const auto& [name, line] : submission.missing) {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) {
      return invalid_input(fmt::format("{0}, line {1}: ${{{2}}} is not set in your environment; `export {2}=...` first",
                                       where, line, name));
    }
    submission.secrets.emplace(name, value);
  }
  return {};
}

Result<int> follow(platform::Client& client, const platform::JobAnswer& job, bool json) {
  leave_on_interrupt(job.id);
  FollowOptions options;
  options.json = json;
  options.show_states = true;
  options.learners = job.learners_wanted;
  for (;;) {
    TESSER_RETURN_IF_ERROR(print_logs(client, job.id, options));
    const auto now = persistently(client, [&] { return client.job(job.id); });
    if (!now) {
      return tl::unexpected<Error>(now.error());
    }
    if (is_at_rest(*now)) {
      return outcome_of(*now);
    }
  }
}

Result<int> submit(const Options& options) {
  const std::string where = options.manifest.string();
  TESSER_ASSIGN_OR_RETURN(const std::string yaml, read_file(options.manifest, 1 << 21));
  TESSER_ASSIGN_OR_RETURN(platform::Submission submission, platform::read_submission(yaml, where));
  TESSER_RETURN_IF_ERROR(take_from_environment(submission, where));
  TESSER_ASSIGN_OR_RETURN(const TemporaryDirectory temporary, TemporaryDirectory::make());
  if (const auto there = platform::check_program_files(submission.manifest, options.directory.value_or("")); !there) {
    return invalid_input(fmt::format("{}: {}", where, there.error().message));
  }
  platform::NewSubmission request{submission.text, submission.secrets, {}, options.key};
  if (options.directory) {
    request.code = temporary.path() / "code.zip";
    TESSER_ASSIGN_OR_RETURN(const platform::ArchiveSummary packed,
                            platform::pack_directory(*options.directory, request.code));
    if (!options.json) {
      print_message("{}: {} files, {} ({} packed)\n", options.directory->string(), packed.files,
                    bytes_text(static_cast<std::int64_t>(packed.bytes)),
                    bytes_text(static_cast<std::int64_t>(packed.zip_bytes)));
    }
  }
  if (options.check) {
    print_output("{}\n", options.json ? platform::to_json(submission.manifest) : where + ": is right");
    return 0;
  }
  TESSER_ASSIGN_OR_RETURN(const auto client, open_client());
  TESSER_ASSIGN_OR_RETURN(const platform::JobAnswer job, client->submit(request));
  print_output("{}\n", options.json ? job.json : job.id);
  TESSER_RETURN_IF_ERROR(flush_output());
  return options.follow ? follow(*client, job, options.json) : Result<int>(0);
}

}  // namespace

void add_submit(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("submit", "Give a job to the platform; prints its id");
  const auto options = std::make_shared<Options>();
  command->add_option("manifest", options->manifest, "What the job is: a YAML file")->required();
  command->add_option("directory", options->directory, "Directory that the command runs in");
  command->add_option("--key", options->key, "Submitting again with the same key gives the same job");
  auto* check = command->add_flag("--check", options->check, "Check manifest and directory alone");
  command->add_flag("--follow,-f", options->follow, "Follow states and log to the end")->excludes(check);
  command->add_flag("--json", options->json, "Write JSON");
  command->footer(kExamples);
  command->callback([options, &action] { action = [options] { return submit(*options); }; });
}

}  // namespace tesser::cli
