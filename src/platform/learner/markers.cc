#include "platform/learner/markers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_members.h"
#include "base/json_reader.h"

namespace tesser::platform {
namespace {

constexpr std::uint64_t kMostMarkerBytes = std::uint64_t{1} << 20;

template <typename T, typename Read>
Result<T> read_marker(const std::filesystem::path& path, const Read& read) {
  TESSER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMostMarkerBytes));
  Result<T> value = read_json_object<T>(text, path.string(), read);
  if (!value && value.error().message.find(path.string()) == std::string::npos) {
    return invalid_input(fmt::format("{}: {}", path.string(), value.error().message));
  }
  return value;
}

}  // namespace

std::string to_json(const LearnerUp& up) {
  return JsonMembers()
      .add("rank", up.rank)
      .add("node", up.node)
      .add("host", up.host)
      .add("network", up.network)
      .add("pid", up.pid)
      .add("started", up.started)
      .add_text("addresses", json_list(up.addresses))
      .add("port", up.port)
      .add("time", up.time)
      .object();
}

std::string to_json(const Go& go) {
  return JsonMembers()
      .add("learners", go.learners)
      .add("master_address", go.master_address)
      .add("master_port", go.master_port)
      .object();
}

std::string to_json(const Stop& stop) {
  JsonMembers members;
  if (stop.grace) {
    members.add("grace_milliseconds", static_cast<std::int64_t>(stop.grace->count()));
  }
  return members.object();
}

std::string to_json(const LearnerExit& exit) {
  return JsonMembers()
      .add("rank", exit.rank)
      .add("code", exit.code)
      .add("signal", exit.signal)
      .add("class", exit.error_class)
      .add("reason", exit.reason)
      .add("stopped", exit.stopped)
      .add("final", exit.is_final)
      .add("started", exit.started)
      .add("time", exit.time)
      .add("lines", static_cast<std::int64_t>(exit.lines))
      .add("log_complete", exit.log_complete)
      .object();
}

Result<LearnerUp> read_learner_up(const std::filesystem::path& path) {
  return read_marker<LearnerUp>(path, [](JsonReader& reader, LearnerUp& up) {
    up.rank = static_cast<int>(reader.integer("rank", 0));
    up.node = reader.string("node");
    up.host = reader.string("host");
    up.network = reader.string("network");
    up.pid = reader.integer("pid", 1);
    up.started = reader.integer("started", 0);
    up.addresses = reader.strings("addresses");
    up.port = static_cast<int>(reader.integer("port", 0));
    up.time = reader.integer("time", 0);
    if (up.addresses.empty()) {
      reader.fail("'addresses' is empty");
    }
  });
}

Result<Go> read_go(const std::filesystem::path& path) {
  return read_marker<Go>(path, [](JsonReader& reader, Go& go) {
    go.learners = static_cast<int>(reader.integer("learners", 1));
    go.master_address = reader.string("master_address");
    go.master_port = static_cast<int>(reader.integer("master_port", 0));
  });
}

Result<Stop> read_stop(const std::filesystem::path& path) {
  return read_marker<Stop>(path, [](JsonReader& reader, Stop& stop) {
    if (reader.has("grace_milliseconds")) {
      stop.grace = std::chrono::milliseconds(reader.integer("grace_milliseconds", 0));
    }
  });
}

Result<LearnerExit> read_learner_exit(const std::filesystem::path& path) {
  return read_marker<LearnerExit>(path, [](JsonReader& reader, LearnerExit& exit) {
    const auto optional = [&](std::string_view key) {
      const auto number = reader.optional_integer(key);
      return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
    };
    exit.rank = static_cast<int>(reader.integer("rank", 0));
    exit.code = optional("code");
    exit.signal = optional("signal");
    exit.error_class = reader.string("class");
    exit.reason = reader.string("reason");
    exit.stopped = reader.boolean("stopped");
    exit.is_final = reader.has("final") && reader.boolean("final");  // of older programs
    exit.started = reader.optional_integer("started");
    exit.time = reader.integer("time", 0);
    exit.lines = static_cast<std::uint64_t>(reader.integer("lines", 0));
    exit.log_complete = reader.boolean("log_complete");
  });
}

Go meeting_place(const std::vector<LearnerUp>& learners) {
  Go go;
  go.learners = static_cast<int>(learners.size());
  if (!learners.empty()) {
    const bool is_one_network = std::all_of(learners.begin(), learners.end(), [&](const LearnerUp& each) {
      return !each.network.empty() && each.network == learners.front().network;
    });
    go.master_address = is_one_network ? "127.0.0.1" : learners.front().addresses.front();
    go.master_port = learners.front().port;
  }
  return go;
}

Result<bool> write_marker_once(const std::filesystem::path& path, const std::string& contents) {
  if (::access(path.c_str(), F_OK) == 0) {
    return false;
  }
  std::filesystem::path partial = path;
  partial += fmt::format(".partial-{}-{}", ::getpid(), microseconds_since_1970());
  const auto failure = [&](std::string_view verb) {
    const int reason = errno;
    ::unlink(partial.c_str());
    return tl::unexpected<Error>(file_error(path, verb, reason));
  };
  const int file = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) {
    return failure("write");
  }
  const ssize_t written = ::write(file, contents.data(), contents.size());
  if (written != static_cast<ssize_t>(contents.size()) || ::fsync(file) != 0) {
    errno = written >= 0 && written != static_cast<ssize_t>(contents.size()) ? ENOSPC : errno;
    const int reason = errno;
    ::close(file);
    errno = reason;
    return failure("write");
  }
  ::close(file);
  // A link fails where the name is taken, whoever took it; file systems without links get a rename.
  if (::link(partial.c_str(), path.c_str()) != 0) {
    if (errno == EEXIST) {
      ::unlink(partial.c_str());
      return false;
    }
    if ((errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK) ||
        ::rename(partial.c_str(), path.c_str()) != 0) {
      return failure("write");
    }
  }
  ::unlink(partial.c_str());
  TESSER_RETURN_IF_ERROR(sync_directory(path.parent_path()));
  return true;
}

std::int64_t microseconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tesser::platform
