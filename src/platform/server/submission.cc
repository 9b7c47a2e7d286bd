#include "platform/server/submission.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "control/control_http.h"
#include "platform/engine/engine.h"
#include "platform/job/learner_user.h"
#include "platform/job/manifest.h"
#include "platform/job/program_files.h"
#include "platform/job/secrets.h"
#include "platform/job/times.h"
#include "platform/job/volume.h"
#include "platform/scheduler/room.h"
#include "platform/server/new_volume.h"
#include "platform/web/sha256.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostManifestBytes = std::size_t{1} << 20;
constexpr std::size_t kMostKeyBytes = 200;
tl::unexpected<Refused> refused(int status, std::string code, std::string message) {
  return tl::unexpected(Refused{status, std::move(code), std::move(message)});
}

tl::unexpected<Refused> refused(const Error& error) {
  return error.code == ErrorCode::kFailed ? refused(503, "S_STORE", error.message)
                                          : refused(422, "U_CODE", error.message);
}

struct Parts {
  std::string manifest;
  std::string manifest_name = "manifest";
  std::string secrets = "{}";
  fs::path code;  // empty: none
  std::string code_digest;
};

Result<std::string> digest_of(const fs::path& path) {
  TESSER_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  return hexadecimal(sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

tl::expected<Parts, Refused> parts_of(const control::HttpRequest& request) {
  Parts parts;
  bool has_manifest = false;
  for (const control::HttpPart& part : request.parts) {
    std::string text = part.content;
    if (part.name != "code" && !part.file.empty()) {
      auto content = read_file(part.file, kMostManifestBytes);
      if (!content) {
        return refused(413, "U_TOO_LARGE",
                       fmt::format("'{}' may have {} bytes at most", part.name, kMostManifestBytes));
      }
      text = std::move(*content);
    }
    if (part.name == "manifest") {
      has_manifest = true;
      parts.manifest = std::move(text);
      if (!part.file_name.empty()) {
        parts.manifest_name = fs::path(part.file_name).filename().string();
      }
    } else if (part.name == "secrets") {
      parts.secrets = std::move(text);
    } else if (part.name == "code") {
      if (part.file.empty()) {
        return refused(400, "U_CODE", "the part 'code' is a file, with a filename");
      }
      parts.code = part.file;
      auto digest = digest_of(part.file);
      if (!digest) {
        return refused(digest.error());
      }
      parts.code_digest = std::move(*digest);
    } else {
      return refused(400, "U_REQUEST",
                     fmt::format("a submission has no part '{}'; its parts are manifest, code and secrets", part.name));
    }
  }
  if (!has_manifest) {
    return refused(400, "U_REQUEST", "a submission is multipart/form-data with the part 'manifest'");
  }
  return parts;
}

// The team that the job is for.
tl::expected<std::string, Refused> team_of(const Manifest& manifest, const Caller& caller, Tenants& tenants,
                                           std::int64_t now) {
  std::string team = manifest.team;
  if (team.empty() && caller.teams.size() == 1) {
    team = caller.teams.begin()->first;
  } else if (team.empty() && caller.is_administrator) {
    team = kDefaultTeam;
  } else if (team.empty() && caller.teams.empty()) {
    return refused(403, "U_TEAM", fmt::format("user '{}' is in no team; ask an administrator", caller.user));
  } else if (team.empty()) {
    std::string names;
    for (const auto& [name, role] : caller.teams) {
      names += (names.empty() ? "" : ", ") + name;
    }
    return refused(422, "U_TEAM",
                   fmt::format("you are in several teams ({}); name one in the manifest: `team`", names));
  }
  if (!caller.sees(team)) {
    return refused(403, "U_TEAM", fmt::format("you are no member of team '{}'", team));
  }
  if (!caller.may_submit(team)) {
    return refused(403, "U_ROLE", fmt::format("you are a viewer in team '{}', and viewers submit no jobs", team));
  }
  if (caller.is_administrator) {  // who may make teams makes this one by naming it
    if (const auto made = tenants.add_team(team, now, true); !made) {
      return refused(made.error());
    }
  }
  return team;
}

Result<void> write_secret(const fs::path& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    return tl::unexpected(file_error(path, "create", errno));
  }
  const bool whole = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file) == 0;
  const int why = errno;
  ::close(file);
  return whole ? Result<void>() : tl::unexpected(file_error(path, "write", why));
}

// Those that its environment names: keys of data stores are the guardian's alone.
Secrets secrets_of_command(const Manifest& manifest, const Secrets& secrets) {
  Secrets named;
  for (const auto& [variable, value] : manifest.environment) {
    const auto names = secret_references(value);
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
      if (const auto found = secrets.find(name); found != secrets.end()) {
        named.insert(*found);
      }
    }
  }
  return named;
}

// A data store that lies where none may, in words; empty: all lie where they may.
std::string why_not_there(const Manifest& manifest, const std::vector<fs::path>& allowed) {
  for (const DataStore& store : manifest.data_stores) {
    if (store.type != "host" || allowed.empty()) {
      continue;
    }
    std::error_code error;
    const fs::path real = fs::weakly_canonical(store.path, error);
    const auto is_below = [&](const fs::path& directory) {
      const auto [end, at] = std::mismatch(directory.begin(), directory.end(), real.begin(), real.end());
      return end == directory.end();
    };
    if (error || std::none_of(allowed.begin(), allowed.end(), is_below)) {
      std::string names;
      for (const fs::path& each : allowed) {
        names += (names.empty() ? "" : ", ") + each.string();
      }
      return fmt::format("data store '{}': {} is not below {}, where directories of this server's machines may be",
                         store.id, store.path.string(), names);
    }
  }
  return "";
}

Result<void> fill_volume(const fs::path& root, const Submission& submission, const Secrets& secrets,
                         const std::string& token, const fs::path& code, const UnpackLimits& limits,
                         const std::optional<LearnerUser>& user) {
  const Volume volume(root);
  std::error_code error;
  for (const fs::path& each : {volume.code(), volume.guardian(), volume.data(), volume.checkpoints(), volume.results(),
                               volume.state(), volume.attempts(), volume.logs(), volume.all_metrics()}) {
    fs::create_directories(each, error);
    if (error) {
      return tl::unexpected(file_error(each, "create", error.value()));
    }
  }
  if (!code.empty()) {
    TESSER_RETURN_IF_ERROR(unpack_zip(code, volume.code(), limits));
  }
  TESSER_RETURN_IF_ERROR(check_program_files(submission.manifest, volume.code()));
  TESSER_RETURN_IF_ERROR(write_file_atomically(volume.manifest(), submission.text));
  TESSER_RETURN_IF_ERROR(write_file_atomically(volume.job(), to_json(submission.manifest)));
  TESSER_RETURN_IF_ERROR(write_secret(volume.secrets(), to_json(secrets)));
  TESSER_RETURN_IF_ERROR(
      write_secret(volume.learner_secrets(), to_json(secrets_of_command(submission.manifest, secrets))));
  TESSER_RETURN_IF_ERROR(write_secret(volume.token(), token));
  if (user) {
    TESSER_RETURN_IF_ERROR(give_to_learners(volume, *user));
  }
  return sync_directory(root);
}

}  // namespace

Result<std::string> new_token() {
  std::string token = control::make_run_token();
  return token.empty() ? Result<std::string>(failed("the system gives no random numbers")) : token;
}

tl::expected<Submitted, Refused> submit(const control::HttpRequest& request, const Caller& caller,
                                        const SubmissionPlace& place) {
  auto parts = parts_of(request);
  if (!parts) {
    return tl::unexpected(parts.error());
  }
  NewJob job;
  if (const std::string* key = request.header("Idempotency-Key")) {
    if (key->empty() || key->size() > kMostKeyBytes) {
      return refused(400, "U_REQUEST", fmt::format("Idempotency-Key has 1 to {} characters", kMostKeyBytes));
    }
    job.idempotency_key = *key;
  }
  job.user = caller.user;
  job.request_digest = hexadecimal(sha256(fmt::format("{}/{}/{}", hexadecimal(sha256(parts->manifest)),
                                                      hexadecimal(sha256(parts->secrets)), parts->code_digest)));
  if (!job.idempotency_key.empty()) {
    auto earlier = place.store.submitted_with(job.user, job.idempotency_key, job.request_digest);
    if (!earlier) {
      return earlier.error().code == ErrorCode::kInvalidInput ? refused(409, "U_KEY", earlier.error().message)
                                                              : refused(earlier.error());
    }
    if (*earlier && caller.sees((*earlier)->team)) {
      return Submitted{std::move(**earlier), false};
    }
  }
  auto submission = read_submission(parts->manifest, parts->manifest_name);
  if (!submission) {
    return refused(422, "U_MANIFEST", submission.error().message);
  }
  auto secrets = secrets_from_json(parts->secrets);
  if (!secrets) {
    return refused(422, "U_SECRETS", secrets.error().message);
  }
  secrets->insert(submission->secrets.begin(), submission->secrets.end());
  for (const auto& [name, line] : submission->missing) {
    if (!secrets->contains(name)) {
      return refused(422, "U_SECRETS",
                     fmt::format("{}, line {}: no value for ${{{}}}; set {} in your environment", parts->manifest_name,
                                 line, name, name));
    }
  }
  const Manifest& manifest = submission->manifest;
  const auto team = team_of(manifest, caller, place.store.tenants(), now_microseconds());
  if (!team) {
    return tl::unexpected(team.error());
  }
  job.each = taken_of_node(place.engine, manifest.each);
  if (const std::string why = place.nodes.empty() ? "" : why_never(manifest.learners, job.each, place.nodes);
      !why.empty()) {
    return refused(422, "U_SIZE", fmt::format("job '{}' {}", manifest.name, why));
  }
  if (const std::string why = why_not_there(manifest, place.host_data); !why.empty()) {
    return refused(422, "U_DATA", why);
  }
  std::optional<LearnerUser> user;
  if (place.learner_users) {
    const auto [first, last] = *place.learner_users;
    const auto number = place.store.tenants().learner_user(*team, first, last);
    if (!number) {
      return refused(503, "S_USERS", number.error().message);
    }
    user = LearnerUser{static_cast<uid_t>(*number), static_cast<gid_t>(*number)};
  }
  auto volume = NewVolume::make(place.data, [&] { return random_identifier(manifest.name); });
  auto guardian_token = new_token();
  if (!volume || !guardian_token) {
    return refused(!volume ? volume.error() : guardian_token.error());
  }
  job.id = volume->identifier();
  job.name = manifest.name;
  job.description = manifest.description;
  job.team = *team;
  job.priority = manifest.priority;
  job.learners = manifest.learners;
  job.restarts_most = manifest.restarts;
  job.longest = manifest.time_limit.count();
  job.time = now_microseconds();
  if (!caller.is_administrator) {
    job.most_waiting_of_user = place.tenants.waiting_jobs_of_user;
    job.most_waiting_of_team = place.tenants.waiting_jobs_of_team;
  }

  submission->manifest.team = *team;
  if (const auto filled =
          fill_volume(volume->path(), *submission, *secrets, *guardian_token, parts->code, place.limits, user);
      !filled) {
    return refused(filled.error());
  }
  if (const auto moved = volume->move_to_jobs(); !moved) {
    return refused(moved.error());
  }
  auto submitted = place.store.submit(job, *guardian_token);
  if (!submitted) {
    return submitted.error().code == ErrorCode::kInvalidInput ? refused(409, "U_KEY", submitted.error().message)
                                                              : refused(submitted.error());
  }
  if (!submitted->one_too_many.empty()) {
    return refused(429, "U_LIMIT",
                   submitted->one_too_many + "; submit again when some run, or `tesser delete` what is not needed");
  }
  if (submitted->is_new) {
    volume->keep();
  }
  return std::move(*submitted);
}

}  // namespace tesser::platform
