#include "cli/platform_login.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_members.h"
#include "base/json_reader.h"
#include "base/nearest_name.h"

namespace tesser::cli {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<fs::path> login_file() {
  const std::string configuration = variable("XDG_CONFIG_HOME");
  const std::string home = variable("HOME");
  if (configuration.empty() && home.empty()) {
    return not_found("neither HOME nor XDG_CONFIG_HOME is set, so there is no place for a login");
  }
  return (configuration.empty() ? fs::path(home) / ".config" : fs::path(configuration)) / "tesser" / "login.json";
}

std::string without_slash(std::string url) {
  while (url.ends_with('/')) {
    url.pop_back();
  }
  return url;
}

}  // namespace

Result<Login> read_login() {
  Login login{without_slash(variable("TESSER_SERVER")), variable("TESSER_TOKEN"), variable("TESSER_CA_FILE")};
  if (!login.url.empty() && !login.token.empty() && !login.authorities.empty()) {
    return login;
  }
  Login kept;
  if (const auto path = login_file()) {
    Result<std::string> text = read_file(*path, 1 << 16);
    if (text) {
      TESSER_ASSIGN_OR_RETURN(kept, read_json_object<Login>(*text, path->string(), [](JsonReader& reader, Login& to) {
                                to.url = reader.string("server");
                                to.token = reader.string("token");
                                to.authorities = reader.has("ca_file") ? reader.string("ca_file") : "";
                              }));
    } else if (text.error().code != ErrorCode::kNotFound) {
      return tl::unexpected<Error>(std::move(text.error()));
    }
  }
  if (login.url.empty()) {
    login.url = kept.url;
  }
  if (login.token.empty() && login.url == kept.url) {
    login.token = kept.token;
  }
  if (login.authorities.empty() && login.url == kept.url) {
    login.authorities = kept.authorities;
  }
  if (login.url.empty()) {
    return not_found("no server is named; `tesser login http://HOST:PORT` keeps one, TESSER_SERVER names one for once");
  }
  return login;
}

Result<std::string> write_login(const Login& login) {
  TESSER_ASSIGN_OR_RETURN(const fs::path named, login_file());
  TESSER_ASSIGN_OR_RETURN(const fs::path path, output_place(named));  // people keep such files elsewhere, with a link
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  // Made for this user alone before a byte is in it, which AtomicFile does not promise.
  const fs::path beside = fmt::format("{}.partial-{}", path.string(), ::getpid());
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    return tl::unexpected<Error>(file_error(beside, "write", errno));
  }
  JsonMembers members;
  members.add("server", login.url).add("token", login.token);
  if (!login.authorities.empty()) {
    members.add("ca_file", login.authorities);
  }
  const std::string text = members.object() + "\n";
  const bool is_written = ::fchmod(file, 0600) == 0 &&
                          ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                          ::fsync(file) == 0;
  const int reason = errno;
  ::close(file);
  if (!is_written || ::rename(beside.c_str(), path.c_str()) != 0) {
    const int why = is_written ? errno : reason;
    ::unlink(beside.c_str());
    return tl::unexpected<Error>(file_error(path, "write", why));
  }
  return named.string();
}

Result<std::unique_ptr<platform::Client>> open_client() {
  TESSER_ASSIGN_OR_RETURN(const Login login, read_login());
  return platform::Client::open({login.url, login.token, login.authorities});
}

Error with_nearest_job(Error error, platform::Client& client, const std::string& id) {
  if (error.code != ErrorCode::kNotFound || client.is_out_of_reach()) {
    return error;
  }
  const auto page = client.jobs({"", "", 1000, ""});
  if (!page) {
    return error;
  }
  std::vector<std::string> ids;
  for (const platform::JobAnswer& job : page->jobs) {
    if (job.name == id) {
      error.message = fmt::format("there is no job '{}'; its id is '{}'", id, job.id);
      return error;
    }
    ids.push_back(job.id);
  }
  const auto nearest = nearest_name(id, ids);
  error.message = fmt::format("there is no job '{}'{}", id,
                              nearest ? fmt::format("; did you mean '{}'?", *nearest) : "; `tesser list` shows all");
  return error;
}

}  // namespace tesser::cli
