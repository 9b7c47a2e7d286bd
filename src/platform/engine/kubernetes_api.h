// Requests to Kubernetes' API server: its paths, its answers, its watches. What is asked for is the engine's business.
//
// One thread at a time. Every call ends by its deadline. Errors: kFailed when the server is not reached, or answers
// what it cannot mean for long (429, 5xx), until the deadline; a refusal is an ApiAnswer with its status.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "platform/engine/kubernetes_access.h"
#include "platform/web/https_client.h"

namespace tesser::platform {

using ApiDeadline = std::chrono::steady_clock::time_point;

struct ApiAnswer {
  int status = 0;
  Json body;

  bool is_success() const { return status >= 200 && status < 300; }
  // The server's words, for messages.
  std::string message() const;
};

class KubernetesApi {
 public:
  static Result<std::unique_ptr<KubernetesApi>> open(KubernetesAccess access);

  // `path` begins with "/api"; `body` is JSON or empty.
  Result<ApiAnswer> request(const std::string& method, const std::string& path, const std::string& body,
                            ApiDeadline until);
  // All objects of a collection, in as many requests as it takes; a refusal is an error.
  struct Objects {
    Json::Array items;
    std::string version;  // what a watch goes on from
  };
  Result<Objects> list(const std::string& path, const std::string& selector, ApiDeadline until);

  // Follows what happens to a collection after `version`, and moves it on. `see` gets the kind of each change ("ADDED",
  // "MODIFIED", "DELETED") and the object, and says whether to go on; so does `goes_on`, where given, every 50 ms.
  // Returns when one of them had enough or the time is over; false when `version` is too old (410): list anew.
  using See = std::function<bool(const std::string& kind, const Json& object)>;
  Result<bool> watch(const std::string& path, const std::string& selector, std::string& version, ApiDeadline until,
                     const See& see, const std::function<bool()>& goes_on = nullptr);

 private:
  KubernetesApi(KubernetesAccess access, std::unique_ptr<HttpsClient> client)
      : access_(std::move(access)), client_(std::move(client)) {}
  Result<HttpsRequest> prepared(const std::string& method, const std::string& path, ApiDeadline until) const;

  KubernetesAccess access_;
  std::unique_ptr<HttpsClient> client_;
};

// The member of a member..., or nullptr.
const Json* json_at(const Json& json, std::initializer_list<std::string_view> keys);
// The string there, or an empty one.
std::string string_at(const Json& json, std::initializer_list<std::string_view> keys);

// An error in the engines' terms for an answer that is none: kInvalidInput when the server will never take it (400,
// 422), kFailed otherwise. `what` is what was tried.
tl::unexpected<Error> refusal(const std::string& what, const ApiAnswer& answer);

}  // namespace tesser::platform
