// Requests of workers to a hub and its answers, as JSON over HTTP (docs/hub.md, control). Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/job_settings.h"
#include "transport/memory_region.h"

namespace tesser::hub {

// POST /v1/jobs/join: the first of a job creates it.
struct JoinRequest {
  std::string job;
  std::string nonce;  // who knows it belongs to the job
  std::int64_t rank = 0;
  std::string host;
  std::int64_t process = 0;
  transport::RegionHandle memory;   // of the worker
  std::int64_t hub = 0;             // which of the job's hubs this one is
  std::vector<std::int64_t> cores;  // that each of the job's hubs has
  std::string home_address;         // hubs after the first: of the first's device for this job
  transport::RegionHandle home;     // likewise: its memory of this job
  std::vector<std::string> urls;    // of the hub of the same place in each rack
  JobSettings settings;
};

struct JoinAnswer {
  std::string address;             // of the device for this job
  transport::RegionHandle memory;  // weights and state
  bool is_return = false;          // the worker was lost, and comes back
  std::int64_t commits = 0;        // steps that it had committed here then
};

// POST /v1/jobs/connected, asked again until `ready`: whether the hub has this worker's memory and queues.
// POST /v1/jobs/start, asked again until `ready`: whether the job runs. The first request of a rank says that it has
// written what it had to.
// POST /v1/jobs/leave, POST /v1/jobs/status.
// POST /v1/jobs/state: this hub gets optimizer state that other racks' hubs hold, for the worker to read.
// POST /v1/jobs/rack-weights: from the first rack's hub: the weights to begin with are there.
struct WorkerRequest {
  std::string job;
  std::string nonce;
  std::int64_t rank = 0;
  bool shares_weights = false;  // to start
  std::int64_t commits = 0;     // to start, of a worker that returns: the most that a hub has seen
};

// POST /v1/jobs/rack: from a hub of a rack with a smaller number, which then connects.
struct RackRequest {
  std::string job;
  std::string nonce;
  std::int64_t rack = 0;
  transport::RegionHandle memory;  // weights and state
  transport::RegionHandle inbox;   // for sums
  std::int64_t cores = 0;
};

struct RackAnswer {
  bool ready = false;  // else the job is not known yet
  std::string address;
  transport::RegionHandle memory;
  transport::RegionHandle inbox;
};

struct ConnectedAnswer {
  bool ready = false;
  bool has_inbox = false;
  transport::RegionHandle inbox;  // for this worker's gradients, unless its memory is mapped
};

struct StartAnswer {
  bool ready = false;
  std::int64_t step = 0;
  std::string waiting_for;  // for people: "ranks 1, 3"
};

struct JobStatus {
  std::string state;   // "gathering", "running", "failed", "ended"
  std::string reason;  // of the failure
};

std::string to_json(const JoinRequest& request);
std::string to_json(const JoinAnswer& answer);
std::string to_json(const WorkerRequest& request);
std::string to_json(const RackRequest& request);
std::string to_json(const RackAnswer& answer);
std::string to_json(const ConnectedAnswer& answer);
std::string to_json(const StartAnswer& answer);
std::string to_json(const JobStatus& status);

// kInvalidInput naming what is missing.
Result<JoinRequest> read_join_request(const std::string& text);
Result<JoinAnswer> read_join_answer(const std::string& text);
Result<WorkerRequest> read_worker_request(const std::string& text);
Result<RackRequest> read_rack_request(const std::string& text);
Result<RackAnswer> read_rack_answer(const std::string& text);
Result<ConnectedAnswer> read_connected_answer(const std::string& text);
Result<StartAnswer> read_start_answer(const std::string& text);
Result<JobStatus> read_job_status(const std::string& text);

}  // namespace tesser::hub
