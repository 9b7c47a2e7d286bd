#include "platform/server/server.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "control/http_server.h"
#include "platform/job/learner_user.h"
#include "platform/job/times.h"
#include "platform/server/api.h"
#include "platform/server/audit.h"
#include "platform/server/dispatcher.h"
#include "platform/server/job_bells.h"
#include "platform/server/submission.h"
#include "platform/store/store.h"

namespace tesser::platform {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdministrator = "admin";  // who runs this server
// Beyond what people, services, subordinate users and containers get (systemd.io/UIDS-GIDS).
constexpr int kFirstLearnerUser = 1'900'000'000;
constexpr int kLastLearnerUser = 1'900'999'999;
constexpr int kWorkingThreads = 16;
constexpr int kWaitingThreads = 2'048;  // guardians that wait for news, and people who follow logs
constexpr int kConnections = 16'384;
constexpr int kConnectionsOfOne = 4'096;  // of one address
constexpr std::size_t kSlowestBytesPerSecond = 64 << 10;

Result<void> make_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? tl::unexpected(file_error(path, "create", error.value())) : Result<void>();
}

// The lock of the data directory, as long as this lives.
class DataLock {
 public:
  DataLock() = default;
  DataLock(const DataLock&) = delete;
  DataLock& operator=(const DataLock&) = delete;
  ~DataLock() {
    if (file_ >= 0) {
      ::close(file_);
    }
  }

  Result<void> take(const fs::path& data) {
    const fs::path path = data / "lock";
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_ < 0) {
      return tl::unexpected(file_error(path, "open", errno));
    }
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      return errno == EWOULDBLOCK
                 ? Result<void>(invalid_input(fmt::format(
                       "{}: another tesser server has this directory; end it, or give another --data", data.string())))
                 : Result<void>(tl::unexpected(file_error(path, "lock", errno)));
    }
    return {};
  }

 private:
  int file_ = -1;
};

Result<void> write_private(const fs::path& path, std::string_view text) {
  const mode_t before = ::umask(0077);
  const auto written = write_file_atomically(path, text);
  ::umask(before);
  return written;
}

// Whether a user may pass through the directory and run the program, where one is named; what it may not, and what to
// do.
Result<void> check_reach(int user, const fs::path& directory, const fs::path& program) {
  struct Need {
    fs::path path;
    int how;
  };
  std::vector<Need> needs;
  const auto add_way_to = [&](const fs::path& path) {
    fs::path way;
    for (const fs::path& part : path.parent_path()) {
      way /= part;
      needs.push_back({way, X_OK});
    }
  };
  add_way_to(directory / "x");
  if (!program.empty()) {
    add_way_to(program);
    std::error_code error;
    const fs::path real = fs::canonical(program, error);
    if (!error) {
      add_way_to(real);
    }
    needs.push_back({error ? program : real, R_OK | X_OK});
  }
  const pid_t child = ::fork();
  if (child < 0) {
    return failed(fmt::format("no process can be started: {}", std::strerror(errno)));
  }
  if (child == 0) {
    const LearnerUser learner{static_cast<uid_t>(user), static_cast<gid_t>(user)};
    if (!become(learner)) {
      ::_exit(255);
    }
    for (std::size_t i = 0; i < needs.size() && i < 254; ++i) {
      if (::access(needs[i].path.c_str(), needs[i].how) != 0) {
        ::_exit(static_cast<int>(i) + 1);
      }
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
  if (code == 0) {
    return {};
  }
  if (code == 255) {
    return failed(
        "this root may become no other user (it lacks capabilities); give --learner-users same, by which "
        "learners run as the server");
  }
  const Need& need = needs[static_cast<std::size_t>(code) - 1];
  return invalid_input(fmt::format(
      "{}: learners run as users from {} on, who may not {} this; {}, or give --learner-users same, by which learners "
      "run as root",
      need.path.string(), user, need.how == X_OK ? "enter" : "run",
      need.how == X_OK ? fmt::format("`chmod o+x {}`, put tesser and the data elsewhere", need.path.string())
                       : fmt::format("`chmod o+rx {}`", need.path.string())));
}

// Slurm runs jobs only of users and groups that its machines know.
Result<void> check_known(const LearnerUsers& users) {
  for (const int user : {users.first, users.last}) {
    const bool is_known = ::getpwuid(static_cast<uid_t>(user)) != nullptr;
    if (!is_known || ::getgrgid(static_cast<gid_t>(user)) == nullptr) {
      return invalid_input(fmt::format(
          "--learner-users {}-{}: this machine knows no {} {}, and Slurm runs jobs of known ones only; add users and "
          "groups of these numbers here and on all nodes (`getent {} {}`), or name others",
          users.first, users.last, is_known ? "group" : "user", user, is_known ? "group" : "passwd", user));
    }
  }
  return {};
}

class PlatformServer final : public Server {
 public:
  explicit PlatformServer(ServerOptions options) : options_(std::move(options)) {}
  ~PlatformServer() override {
    bells_.end();  // nobody waits any more
    http_.reset();
    dispatcher_.reset();
  }

  Result<void> start() {
    TESSER_RETURN_IF_ERROR(prepare_data());
    TESSER_RETURN_IF_ERROR(choose_learner_users());
    TESSER_RETURN_IF_ERROR(choose_host_data());
    TESSER_ASSIGN_OR_RETURN(audit_, Audit::open(options_.data / "audit.log"));
    TESSER_ASSIGN_OR_RETURN(store_, Store::open(options_.data / "store.sqlite"));
    TESSER_RETURN_IF_ERROR(prepare_token());
    TESSER_RETURN_IF_ERROR(remove_strays());
    if (options_.engine.state_directory.empty()) {
      options_.engine.state_directory = options_.data / "engine";
    }
    TESSER_RETURN_IF_ERROR(make_directory(options_.engine.state_directory));
    std::error_code ignored;
    fs::permissions(options_.engine.state_directory, fs::perms::owner_all, ignored);
    options_.engine.volumes = options_.data / "jobs";
    const fs::path settings = options_.data / "engine.json";
    TESSER_RETURN_IF_ERROR(write_private(settings, to_json(options_.engine)));
    TESSER_ASSIGN_OR_RETURN(auto engine, make_engine(options_.engine));
    const std::string engine_name = engine->name();
    TESSER_RETURN_IF_ERROR(listen());
    DispatcherOptions dispatcher;
    dispatcher.data = options_.data;
    dispatcher.url = url_;
    dispatcher.engine_settings = settings;
    dispatcher.authorities = authorities_;
    dispatcher.system_places = options_.engine.system_places;
    dispatcher.placement = options_.placement;
    dispatcher.tesser = options_.tesser;
    dispatcher.lease_time = options_.lease_time;
    dispatcher.log = options_.log;
    dispatcher_ = std::make_unique<Dispatcher>(std::move(dispatcher), *store_, bells_, std::move(engine));
    ApiOptions api;
    api.data = options_.data;
    api.version = options_.version;
    api.engine = engine_name;
    api.limits = options_.limits;
    api.learner_users = learner_users_;
    api.host_data = options_.host_data;
    made_api_ = std::make_unique<Api>(std::move(api), *store_, *dispatcher_, bells_, *audit_);
    api_ = made_api_.get();
    return {};
  }

  std::string url() const override { return url_; }
  fs::path admin_token_file() const override { return options_.data / "admin.token"; }

 private:
  Result<void> prepare_data() {
    const mode_t before = ::umask(0022);
    std::error_code error;
    Result<void> made = make_directory(options_.data);
    if (made) {
      options_.data = fs::canonical(options_.data, error);
      made = lock_.take(options_.data);
    }
    if (made) {  // what a server left that died while it took a job in, or removed one
      fs::remove_all(options_.data / "incoming", error);
      fs::remove_all(options_.data / "trash", error);
    }
    for (const char* name : {"jobs", "incoming", "trash"}) {
      if (made) {
        made = make_directory(options_.data / name);
      }
    }
    ::umask(before);
    if (made) {  // what is the server's own business; a team's users pass through jobs/ to their volumes
      const auto own = fs::perms::owner_all;
      fs::permissions(options_.data / "incoming", own, error);
      fs::permissions(options_.data / "trash", own, error);
      fs::permissions(options_.data / "jobs", own | fs::perms::group_exec | fs::perms::others_exec, error);
      const fs::path store = options_.data / "store.sqlite";  // what SQLite makes beside it gets the same rights
      const int file = ::open(store.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (file < 0 || ::fchmod(file, 0600) != 0) {
        made = tl::unexpected(file_error(store, "open", errno));
      }
      if (file >= 0) {
        ::close(file);
      }
    }
    return made;
  }

  Result<void> choose_learner_users() {
    LearnerUsers users = options_.learner_users;
    if (::geteuid() != 0 && users.first != 0) {
      return invalid_input(
          "--learner-users: only root can start learners as other users; run the server as root, or "
          "without it");
    }
    if (::geteuid() != 0 || users.same) {
      options_.log(fmt::format(
          "learners run as this server's user ({}): every job may read and change what this user "
          "may, other teams' jobs and this server's data too{}",
          ::geteuid(), ::geteuid() == 0 ? "" : "; run by root, the server gives each team a user of its own"));
      return {};
    }
    if (users.first == 0 && options_.engine.kind != "local") {
      return invalid_input(fmt::format(
          "the engine '{}' needs to know as whom learners run on its nodes: give --learner-users "
          "FIRST-LAST, numbers of users that no person has{}, or --learner-users same, by which they run as "
          "root",
          options_.engine.kind, options_.engine.kind == "slurm" ? " and that Slurm's nodes know (getent passwd)" : ""));
    }
    if (users.first == 0) {
      users.first = kFirstLearnerUser;
      users.last = kLastLearnerUser;
    }
    if (options_.engine.kind == "slurm") {
      TESSER_RETURN_IF_ERROR(check_known(users));
    }
    learner_users_ = {users.first, users.last};
    const fs::path probe = options_.data / "jobs";
    if (options_.engine.kind != "local") {
      // Its nodes have programs of their own; the data is read here, too, with the rights of its team.
      return check_reach(users.first, probe, "");
    }
    TESSER_RETURN_IF_ERROR(check_reach(users.first, probe, options_.tesser));
    const auto captures =
        options_.python.has_parent_path() ? check_reach(users.first, probe, options_.python) : Result<void>();
    if (!captures) {
      options_.log(
          fmt::format("jobs whose program is a step file will fail, for learners cannot run {} (TESSER_PYTHON "
                      "names another): {}",
                      options_.python.string(), captures.error().message));
    }
    return {};
  }

  Result<void> choose_host_data() {
    for (fs::path& each : options_.host_data) {
      std::error_code error;
      const fs::path real = fs::canonical(each, error);
      if (error || !fs::is_directory(real, error)) {
        return invalid_input(fmt::format("--host-data {}: is no directory", each.string()));
      }
      each = real;
    }
    return {};
  }

  // The token of the one who runs this server: made at the first start, or when its file was removed.
  Result<void> prepare_token() {
    Tenants& tenants = store_->tenants();
    const std::int64_t now = now_microseconds();
    TESSER_ASSIGN_OR_RETURN(const auto users, tenants.users());
    TESSER_RETURN_IF_ERROR(tenants.add_team(kDefaultTeam, now, true));
    if (std::none_of(users.begin(), users.end(), [](const User& user) { return user.name == kAdministrator; })) {
      TESSER_RETURN_IF_ERROR(tenants.add_user(kAdministrator, true, now));
    }
    TESSER_RETURN_IF_ERROR(tenants.set_member(kDefaultTeam, kAdministrator, TeamRole::kAdministrator));
    const auto text = read_file(admin_token_file(), 1'000);
    std::string token = text ? text->substr(0, text->find('\n')) : "";
    if (!text && text.error().code != ErrorCode::kNotFound) {
      return tl::unexpected(text.error());
    }
    TESSER_ASSIGN_OR_RETURN(const bool is_known, tenants.knows_token(token));
    if (!token.empty() && is_known) {
      TESSER_ASSIGN_OR_RETURN(const auto caller, tenants.caller(token, now));
      if (caller) {
        return {};
      }
      token.clear();  // it was revoked
    }
    if (token.empty()) {
      TESSER_ASSIGN_OR_RETURN(token, new_token());
      TESSER_RETURN_IF_ERROR(write_private(admin_token_file(), token + "\n"));
    }
    TokenRecord record;
    record.user = kAdministrator;
    record.description = admin_token_file().filename();
    record.made_by = kAdministrator;
    record.created = now;
    TESSER_RETURN_IF_ERROR(tenants.add_token(token, std::move(record)));
    return {};
  }

  // Volumes of jobs that were never accepted: their server died before it had stored them. What a guardian has worked
  // on stays, whatever the store says.
  Result<void> remove_strays() {
    std::error_code error;
    for (fs::directory_iterator each(options_.data / "jobs", error), end; !error && each != end;
         each.increment(error)) {
      const auto job = store_->job(each->path().filename());
      if (!job && job.error().code == ErrorCode::kFailed) {
        return tl::unexpected(job.error());
      }
      std::error_code ignored;
      if (!job && !fs::exists(Volume(each->path()).journal(), ignored)) {
        fs::remove_all(each->path(), ignored);
      }
    }
    return {};
  }

  Result<void> listen() {
    control::HttpServerOptions options;
    options.what = "server";
    options.threads = kWorkingThreads;
    options.waiting = kWaitingThreads;
    options.connections = kConnections;
    options.slowest_bytes_per_second = kSlowestBytesPerSecond;
    options.admit = [this](const control::HttpRequest& request) {
      Api* api = api_;
      if (api == nullptr) {
        control::HttpAdmission admission;
        admission.refusal = Api::error(503, "S_STARTING", "the server is starting; try again");
        return admission;
      }
      return api->admit(request);
    };
    options.answer = [this](const control::HttpRequest& request) { return api_.load()->answer(request); };
    options.connections_of_one = kConnectionsOfOne;
    options.certificate = options_.tls_certificate;
    options.key = options_.tls_key;
    options.answered = [this](const control::HttpRequest& request, const control::HttpResponse& answer) {
      if (Api* api = api_; api != nullptr) {
        api->note(request, answer);
      }
    };
    options.refuse = [](int status, const std::string& text) {
      return Api::error(status, status >= 500 ? "S_SERVER" : "U_REQUEST", text);
    };
    std::string host = options_.listen.substr(0, options_.listen.rfind(':'));
    TESSER_RETURN_IF_ERROR(open_http(host, std::move(options)));
    if (host == "0.0.0.0" || host == "[::]") {
      host = host == "[::]" ? "[::1]" : "127.0.0.1";
    }
    const std::string scheme = options_.tls_certificate.empty() ? "http" : "https";
    url_ = options_.advertise.empty() ? fmt::format("{}://{}:{}", scheme, host, http_->port()) : options_.advertise;
    return options_.tls_certificate.empty() ? Result<void>() : prepare_authorities();
  }

  // What guardians trust: the server's own certificate, in a place that they reach.
  Result<void> prepare_authorities() {
    const std::size_t begin = url_.find("://") + 3;
    std::string host = url_.substr(begin, url_.find_last_of(":/") - begin);
    if (host.starts_with('[')) {
      host = host.substr(1, host.size() - 2);
    }
    if (!url_.starts_with("https://") || !http_->is_certified_for(host)) {
      return invalid_input(
          fmt::format("guardians reach this server as {}, for which {} is no certificate; give --advertise "
                      "https://HOST:PORT with a host that it names",
                      url_, options_.tls_certificate.string()));
    }
    authorities_ = options_.data / "tls.pem";
    TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(options_.tls_certificate, 1 << 20));
    return write_file_atomically(authorities_, text);
  }

  // A port that the system chooses is the one of the last time where that is free: guardians that live on know it.
  Result<void> open_http(const std::string& host, control::HttpServerOptions options) {
    const fs::path remembered = options_.data / "port";
    if (options_.listen.ends_with(":0")) {
      if (const auto port = read_file(remembered, 16)) {
        if (auto http = control::HttpServer::open(fmt::format("{}:{}", host, *port), options)) {
          http_ = std::move(*http);
          return {};
        }
      }
    }
    TESSER_ASSIGN_OR_RETURN(http_, control::HttpServer::open(options_.listen, std::move(options)));
    return write_file_atomically(remembered, std::to_string(http_->port()));
  }

  ServerOptions options_;
  std::string url_;
  fs::path authorities_;
  std::optional<std::pair<int, int>> learner_users_;
  DataLock lock_;
  JobBells bells_;
  std::unique_ptr<Audit> audit_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Api> made_api_;
  std::atomic<Api*> api_{nullptr};
  std::unique_ptr<control::HttpServer> http_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::open(ServerOptions options) {
  auto server = std::make_unique<PlatformServer>(std::move(options));
  TESSER_RETURN_IF_ERROR(server->start());
  return server;
}

}  // namespace tesser::platform
