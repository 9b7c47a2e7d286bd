// From an uploaded manifest and ZIP to a job on its volume and in the store. Internal to this folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "control/http_server.h"
#include "platform/job/resources.h"
#include "platform/server/archive.h"
#include "platform/server/limits.h"
#include "platform/store/store.h"

namespace tesser::platform {

struct SubmissionPlace {
  std::filesystem::path data;
  Store& store;
  std::vector<Node> nodes;  // empty: not known, so anything may fit
  UnpackLimits limits;
  std::string engine;  // its name
  TenantLimits tenants;
  std::optional<std::pair<int, int>> learner_users = {};  // the range of those that teams' learners run as
  std::vector<std::filesystem::path> host_data = {};      // data stores of type host lie there; empty: anywhere
};

struct Refused {
  int status = 422;
  std::string code;
  std::string message;
};

// The job is stored, and all of its volume on the disk, when this returns; after an error nothing of it is left.
tl::expected<Submitted, Refused> submit(const control::HttpRequest& request, const Caller& caller,
                                        const SubmissionPlace& place);

// 32 random hexadecimal digits.
Result<std::string> new_token();

}  // namespace tesser::platform
