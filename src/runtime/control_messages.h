// What a run's coordinator and workers tell each other (docs/runtime.md, runs of several workers). Workers ask, the
// coordinator answers: "/task" what to do, "/program" its programs, "/join" where the others are, "/report" what
// happened.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/checkpoint_manifest.h"
#include "runtime/data.h"

namespace tesser::runtime {

// A shard that a worker writes at each checkpoint: its parts of these state values.
struct ShardTask {
  std::string file;
  std::vector<std::string> values;
};

// The coordinator's answer to /task. Paths are absolute and the same on every machine.
struct WorkerTask {
  int workers = 1;      // of each replica; worker number w of the run is worker w % workers of replica w / workers
  int replicas = 1;     // several meet in a hub, those workers of all replicas that have the same part in one job
  std::string hub;      // http://HOST:PORT
  std::string hub_job;  // beginning of the jobs' names
  std::string hub_token;
  std::string hub_nonce;
  double clip_norm = 0;                  // of the gradient of all parts, which the hub clips; 0: none
  int clip_parts = 1;                    // workers of a replica that have parameters
  int clip_part = 0;                     // which of those this one is
  std::vector<std::string> clip_values;  // parameters whose part counts here; of equal parts one worker's does
  std::string program;                   // NAME.tesser
  // What the coordinator's copies of program and data say of themselves, as machines may have copies of their own.
  std::string program_checksum;
  std::int64_t state_bytes = 0;  // of state.safetensors; 0: there is none
  std::string data_fingerprint;
  std::string data;
  std::vector<BatchValue> batch;  // whole
  std::string resume;             // step directory of a checkpoint whose checksums are verified; empty: the beginning
  std::int64_t step = 0;          // steps done
  DataPosition next;
  std::int64_t seed = 0;
  bool shuffle = true;
  std::int64_t first_step = 0;
  std::int64_t until_step = 0;
  std::string checkpoint;       // directory; empty: none are written
  std::string checkpoint_mark;  // a file in it, by which a worker knows that it sees the coordinator's
  std::int64_t every = 1;
  std::string evaluation_data;               // for the forward program, after each epoch and at the end; empty: none
  std::vector<BatchValue> evaluation_batch;  // whole
  std::vector<ShardTask> shards;
  int threads = 1;  // 0: the processors that the worker may use, divided by `sharing`
  int sharing = 1;  // workers of this run on its machine
  bool check_nan = false;
  bool profile = false;
  bool network = false;           // never through shared memory
  std::int64_t traced_steps = 0;  // the last so many steps are written to `trace`
  std::int64_t trace_begin = 0;   // microseconds since 1970 from which the trace counts
  std::string trace;              // file of this worker
};

// The answer to /program: the worker's part of the step and, for evaluation, of the forward program (else empty), in
// the format of program.json.
struct WorkerPrograms {
  std::string step;
  std::string forward;
};

// To /join, which is asked again and again until the answer has an address for every worker.
struct Joining {
  int worker = 0;
  std::string host;
  std::int64_t process = 0;
  std::string address;  // of its transport device
};

// One step as a worker saw it.
struct WorkerStep {
  std::int64_t step = 0;  // steps done, this one included
  double loss = 0;
  std::vector<double> metrics;
  double seconds = 0;
  double waiting_seconds = 0;   // for other workers
  double transfer_seconds = 0;  // in calls that copy or post
  std::int64_t sent_bytes = 0;
};

// Shards that a worker has written.
struct WrittenShards {
  std::int64_t step = 0;
  double seconds = 0;
  std::vector<ShardDescription> shards;
};

// Results of the forward program, the same for all workers.
struct WorkerEvaluation {
  std::int64_t step = 0;  // steps done before
  std::vector<std::string> names;
  std::vector<double> results;
  std::int64_t batches = 0;
  std::int64_t samples = 0;
  std::int64_t left_out = 0;
  double seconds = 0;
};

// Bytes of a worker's tensor storage, receive buffers included.
struct WorkerMemory {
  std::int64_t predicted_bytes = 0;
  std::int64_t measured_bytes = 0;  // 0 before its first step
  std::int64_t scratch_bytes = 0;
  std::int64_t unplanned_allocations = 0;
  std::int64_t unplanned_bytes = 0;
  std::int64_t copied_gradient_bytes = 0;
  std::int64_t resident_bytes = 0;  // of the process, at most
};

struct WorkerFailure {
  std::string message;
  int exit_code = 1;
  std::vector<std::int64_t> lost_peers;  // workers whose channel has failed: the failure may be theirs
};

struct OperatorTotal {
  std::string op;
  std::int64_t calls = 0;
  double seconds = 0;
  std::int64_t scratch_bytes = 0;
};

// To /report, twice a second at least.
struct WorkerReport {
  int worker = 0;
  std::vector<std::string> paths;             // once, when channels are made: how each peer is reached
  std::optional<WorkerMemory> memory;         // when it is prepared, and at its end
  std::vector<WorkerStep> steps;              // since the last report that was answered
  std::vector<WrittenShards> written;         // likewise
  std::vector<WorkerEvaluation> evaluations;  // likewise
  std::optional<WorkerFailure> failure;
  bool ended = false;                    // the last report
  std::vector<OperatorTotal> operators;  // at its end, under profile
};

// The coordinator's answer to a report.
struct ReportAnswer {
  std::int64_t until_step = 0;  // the worker may run until so many steps are done
  bool final = false;           // and then ends
  bool abort = false;           // the run is over; the worker ends at once
};

// For people, of a worker by its number in the run: "worker 2"; of one of several replicas "replica 1, worker 0".
std::string worker_name(const WorkerTask& task, int worker);

std::string to_json(const WorkerTask& task);
std::string to_json(const WorkerPrograms& programs);
std::string to_json(const Joining& joining);
std::string to_json(const WorkerReport& report);
std::string to_json(const ReportAnswer& answer);
std::string to_json(const std::vector<std::string>& addresses);

// kInvalidInput naming what is missing.
Result<WorkerTask> read_task(const std::string& text);
Result<WorkerPrograms> read_programs(const std::string& text);
Result<Joining> read_joining(const std::string& text);
Result<WorkerReport> read_report(const std::string& text);
Result<ReportAnswer> read_answer(const std::string& text);
Result<std::vector<std::string>> read_addresses(const std::string& text);
Result<int> read_worker_number(const std::string& text);  // of a request to /task or /program

}  // namespace tesser::runtime
