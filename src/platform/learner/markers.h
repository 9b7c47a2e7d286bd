// What a learner and its guardian tell each other through files (docs/formats/logs.md, markers).
//
// Values; any thread. Reading a marker that is not there is kNotFound; one that cannot be read as such is
// kInvalidInput.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tesser::platform {

// learner-R.json: a learner's process is up.
struct LearnerUp {
  int rank = 0;
  std::string node;
  std::string host;
  std::string network;       // equal for learners that reach each other by 127.0.0.1
  std::int64_t pid = 0;      // in its own name space
  std::int64_t started = 0;  // clock ticks since the machine's start, as in /proc/PID/stat: tells apart equal pids
  std::vector<std::string> addresses;  // by which other machines may reach it, best first; never empty
  int port = 0;                        // free there, kept for the command
  std::int64_t time = 0;               // microseconds since 1970
};

// go.json: learners start their commands.
struct Go {
  int learners = 0;
  std::string master_address;  // of rank 0
  int master_port = 0;
};

// stop: the command is to end.
struct Stop {
  std::optional<std::chrono::milliseconds> grace;  // from SIGTERM to SIGKILL, where it is another than the manifest's
};

// exit-R.json: the command has ended, its log is complete, none of its processes is left.
struct LearnerExit {
  int rank = 0;
  std::optional<int> code;
  std::optional<int> signal;
  std::string error_class;  // "": ended with code 0; "U": the user's; "S": the system's
  std::string reason;       // for people; empty for code 0
  bool stopped = false;     // it was told to end before it did
  bool is_final = false;    // it would end the same way if it began again: a wrong program, command or input
  std::optional<std::int64_t> started;  // microseconds since 1970; none: the command was never started
  std::int64_t time = 0;                // microseconds since 1970
  std::uint64_t lines = 0;              // sequence number of the last line
  bool log_complete = true;

  bool succeeded() const { return error_class.empty() && code == 0; }
};

std::string to_json(const LearnerUp& up);
std::string to_json(const Go& go);
std::string to_json(const Stop& stop);
std::string to_json(const LearnerExit& exit);
Result<LearnerUp> read_learner_up(const std::filesystem::path& path);
Result<Go> read_go(const std::filesystem::path& path);
Result<Stop> read_stop(const std::filesystem::path& path);
Result<LearnerExit> read_learner_exit(const std::filesystem::path& path);

// Where the learners of an attempt meet, from all their markers in the order of ranks: 127.0.0.1 when they share one
// network name space, else the best address of rank 0.
Go meeting_place(const std::vector<LearnerUp>& learners);

// Writes a marker so that it appears complete, durable and once: false when there is one already, which stays.
Result<bool> write_marker_once(const std::filesystem::path& path, const std::string& contents);

std::int64_t microseconds_since_1970();

}  // namespace tesser::platform
