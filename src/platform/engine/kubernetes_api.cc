#include "platform/engine/kubernetes_api.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/web/url.h"

namespace tesser::platform {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kRetry{100};
constexpr int kPage = 500;

milliseconds left(ApiDeadline until) {
  return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(until - Clock::now()));
}

// What passes by itself: too many requests, a server that starts or has lost its store.
bool is_passing(int status) { return status == 429 || status >= 500; }

Json parsed(const std::string& text) {
  Result<Json> json = parse_json(text);
  return json ? std::move(*json) : Json(text);
}

}  // namespace

std::string ApiAnswer::message() const {
  if (const std::string words = string_at(body, {"message"}); !words.empty()) {
    return words;
  }
  return body.string() != nullptr && !body.string()->empty() ? body.string()->substr(0, 300)
                                                             : fmt::format("status {}", status);
}

Result<std::unique_ptr<KubernetesApi>> KubernetesApi::open(KubernetesAccess access) {
  TESSER_ASSIGN_OR_RETURN(auto client, HttpsClient::open(access.https));
  return std::unique_ptr<KubernetesApi>(new KubernetesApi(std::move(access), std::move(client)));
}

Result<HttpsRequest> KubernetesApi::prepared(const std::string& method, const std::string& path,
                                             ApiDeadline until) const {
  HttpsRequest request;
  request.method = method;
  request.url = access_.server + path;
  std::string token = access_.token;
  if (!access_.token_file.empty()) {
    TESSER_ASSIGN_OR_RETURN(token, read_file(access_.token_file, std::uint64_t{1} << 20));
    token.erase(token.find_last_not_of(" \r\n\t") + 1);
  }
  if (!token.empty()) {
    request.headers.emplace_back("Authorization", "Bearer " + token);
  }
  request.headers.emplace_back("Accept", "application/json");
  request.headers.emplace_back("User-Agent", "tesser");
  request.limits = {left(until), left(until), milliseconds(0)};
  return request;
}

Result<ApiAnswer> KubernetesApi::request(const std::string& method, const std::string& path, const std::string& body,
                                         ApiDeadline until) {
  while (true) {
    TESSER_ASSIGN_OR_RETURN(HttpsRequest request, prepared(method, path, until));
    if (!body.empty()) {
      request.body = body;
      request.headers.emplace_back("Content-Type", "application/json");
    }
    Result<HttpsAnswer> answer = client_->send(request);
    // What this engine asks for may be asked twice: what is made is named, what is there already or gone is an answer.
    const bool is_refused = !answer && answer.error().code == ErrorCode::kInvalidInput;
    const bool passes = answer ? is_passing(answer->status) : !is_refused;
    if (passes && Clock::now() + kRetry < until) {
      std::this_thread::sleep_for(kRetry);
      continue;
    }
    if (!answer) {
      return is_refused ? Result<ApiAnswer>(tl::unexpected<Error>(answer.error())) : failed(answer.error().message);
    }
    ApiAnswer result{answer->status, parsed(answer->body)};
    if (passes) {
      return failed(
          fmt::format("Kubernetes' API server at {} cannot answer now: {}", access_.server, result.message()));
    }
    return result;
  }
}

Result<KubernetesApi::Objects> KubernetesApi::list(const std::string& path, const std::string& selector,
                                                   ApiDeadline until) {
  Objects objects;
  std::string next;
  while (true) {
    std::string page = fmt::format("{}?limit={}", path, kPage);
    page += selector.empty() ? "" : "&" + selector;
    page += next.empty() ? "" : "&continue=" + url_encoded(next);
    TESSER_ASSIGN_OR_RETURN(ApiAnswer answer, request("GET", page, "", until));
    if (answer.status == 410 && !next.empty()) {  // the list has changed too much since its first page
      objects = {};
      next.clear();
      continue;
    }
    if (!answer.is_success()) {
      return refusal("listing " + path, answer);
    }
    const Json* items = answer.body.find("items");
    if (items == nullptr || items->array() == nullptr) {
      return failed(fmt::format("Kubernetes' API server at {} answers GET {} with no list", access_.server, path));
    }
    objects.items.insert(objects.items.end(), items->array()->begin(), items->array()->end());
    objects.version = string_at(answer.body, {"metadata", "resourceVersion"});
    next = string_at(answer.body, {"metadata", "continue"});
    if (next.empty()) {
      return objects;
    }
  }
}

Result<bool> KubernetesApi::watch(const std::string& path, const std::string& selector, std::string& version,
                                  ApiDeadline until, const See& see, const std::function<bool()>& goes_on) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(left(until)).count();
  std::string target = fmt::format("{}?watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}", path,
                                   seconds, url_encoded(version));
  target += selector.empty() ? "" : "&" + selector;
  TESSER_ASSIGN_OR_RETURN(HttpsRequest request, prepared("GET", target, until));
  bool had_enough = false;
  if (goes_on) {
    request.goes_on = [&] {
      had_enough = !goes_on();
      return !had_enough;
    };
  }
  std::string text;  // what is not yet a whole line
  bool is_too_old = false;
  request.receive = [&](std::string_view piece) -> Result<bool> {
    text += piece;
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      TESSER_ASSIGN_OR_RETURN(const Json event, parse_json(std::string_view(text).substr(0, end)));
      text.erase(0, end + 1);
      const std::string kind = string_at(event, {"type"});
      const Json* object = event.find("object");
      if (kind == "ERROR" || object == nullptr) {
        const Json* code = json_at(event, {"object", "code"});
        is_too_old = code != nullptr && code->integer() != nullptr && *code->integer() == 410;
        return is_too_old ? Result<bool>(false)
                          : failed("a watch ends with: " + string_at(event, {"object", "message"}));
      }
      if (const std::string at = string_at(*object, {"metadata", "resourceVersion"}); !at.empty()) {
        version = at;
      }
      if (kind != "BOOKMARK" && !see(kind, *object)) {
        return false;
      }
    }
    return true;
  };
  const Result<HttpsAnswer> answer = client_->send(request);
  if (had_enough) {
    return true;
  }
  if (!answer) {
    // The end of the time is how a quiet watch ends.
    return Clock::now() + milliseconds(5) >= until ? Result<bool>(true) : failed(answer.error().message);
  }
  if (answer->status == 410 || is_too_old) {
    return false;
  }
  if (!answer->is_success()) {
    return refusal("watching " + path, {answer->status, parsed(answer->body)});
  }
  return true;
}

const Json* json_at(const Json& json, std::initializer_list<std::string_view> keys) {
  const Json* found = &json;
  for (const std::string_view key : keys) {
    found = found != nullptr ? found->find(key) : nullptr;
  }
  return found;
}

std::string string_at(const Json& json, std::initializer_list<std::string_view> keys) {
  const Json* found = json_at(json, keys);
  return found != nullptr && found->string() != nullptr ? *found->string() : "";
}

tl::unexpected<Error> refusal(const std::string& what, const ApiAnswer& answer) {
  const std::string message = fmt::format("Kubernetes' API server refuses {}: {}", what, answer.message());
  if (answer.status == 400 || answer.status == 422) {
    return invalid_input(message);
  }
  if (answer.status == 401 || answer.status == 403) {
    return failed(message + "\nWhat to do: grant what docs/platform.md, On Kubernetes, lists");
  }
  return failed(message);
}

}  // namespace tesser::platform
