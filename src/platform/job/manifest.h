// What users write to submit a job (docs/formats/manifest.md), read and checked.
//
// Values; any thread. Errors are kInvalidInput and name the line: "job.yaml, line 7: 'memmory' is no key of a
// manifest; did you mean 'memory'?". No message has a value in it that may be secret.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "platform/job/resources.h"
#include "platform/job/secrets.h"

namespace tesser::platform {

struct DataStore {
  std::string id;
  std::string type;  // "host" or "s3"
  // host
  std::filesystem::path path;  // a directory that all nodes see
  // s3
  std::string endpoint;  // "https://HOST[:PORT]"; empty: AWS
  std::string region = "us-east-1";
  std::string bucket;
  std::string prefix;
  // Names in the job's secrets, never their values; both or none, for a bucket that anybody may read.
  std::string access_key;
  std::string secret_key;

  bool operator==(const DataStore&) const = default;
};

struct MetricExtractor {
  std::string type;            // "regex", "json", "tensorboard", "tesser"
  std::string pattern;         // regex: groups named (?<step>...) and (?<NAME>...)
  std::filesystem::path path;  // json, tensorboard: below RESULT_DIR or LOG_DIR; empty: the log itself

  bool operator==(const MetricExtractor&) const = default;
};

// A training step of tesser, as opposed to any command.
struct TesserProgram {
  std::string program;                 // NAME.tesser, or a step file NAME.py, in the code directory
  std::string data;                    // a directory there, or "STORE" or "STORE/PATH" of a data store
  std::optional<int> workers;          // absent: the platform picks
  std::optional<int> replicas;         // absent: 1, or as the planner chooses
  std::string preset;                  // of the plan; empty: default
  std::vector<std::string> arguments;  // further ones of `tesser train`, as "--epochs", "3"

  bool operator==(const TesserProgram&) const = default;
};

struct Manifest {
  std::string name;
  std::string description;
  std::string team;                  // empty: the user's own
  std::vector<std::string> command;  // empty with `program`; a shell line is {"sh", "-c", LINE}
  std::optional<TesserProgram> program;
  int learners = 1;                                // of a program: workers times replicas, where they are given
  Resources each;                                  // of a learner
  int priority = 50;                               // 0 to 100
  std::map<std::string, std::string> environment;  // `${NAME}` stands for a secret: platform/job/secrets.h
  std::vector<DataStore> data_stores;
  std::string results;  // "STORE" or "STORE/PATH" that results are copied to; empty: kept here
  int restarts = 3;
  std::chrono::seconds time_limit{0};     // of PROCESSING, over all attempts; 0: none
  std::chrono::seconds start_limit{600};  // from DEPLOYING to PROCESSING
  std::chrono::seconds grace{30};         // from SIGTERM to SIGKILL
  int keep_checkpoints = 3;
  std::int64_t checkpoint_every = 0;               // steps of a program between checkpoints; 0: as the platform likes
  std::int64_t log_bytes = std::int64_t{1} << 30;  // a learner's log keeps so many; older lines go
  std::vector<MetricExtractor> metrics;

  bool operator==(const Manifest&) const = default;
};

// A manifest as it is submitted, with what is secret taken out of it.
struct Submission {
  Manifest manifest;
  std::string text;  // as given, but for each value marked as secret, which is "${NAME}" now; reads as `manifest`
  Secrets secrets;   // those values
  std::map<std::string, int> missing;  // names used and not among `secrets`, with the line of their first use
};

// `where` names the text in messages.
Result<Submission> read_submission(std::string_view yaml, const std::string& where);
Result<Manifest> read_manifest(std::string_view yaml, const std::string& where);
// With every default filled in: job.json.
std::string to_json(const Manifest& manifest);
Result<Manifest> manifest_from_json(std::string_view json);

}  // namespace tesser::platform
