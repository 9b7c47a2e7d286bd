#include "platform/client/client.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "platform/web/https_client.h"
#include "platform/web/url.h"

namespace tesser::platform {
namespace {

constexpr std::chrono::milliseconds kFirstPause{250};
constexpr int kTooMany = 429;

std::string random_digits() {
  std::string text;
  unsigned char bytes[16] = {};
  if (::getrandom(bytes, sizeof(bytes), 0) == static_cast<ssize_t>(sizeof(bytes))) {
    for (const unsigned char byte : bytes) {
      text += fmt::format("{:02x}", byte);
    }
  }
  return text;
}

const char* name_of(Download what) {
  return what == Download::kDefinition ? "definition" : what == Download::kResults ? "results" : "checkpoints";
}

// A multipart body of texts and one file, read as it is sent.
class Multipart {
 public:
  explicit Multipart(std::string boundary) : boundary_(std::move(boundary)) {}

  void add(const std::string& name, const std::string& type, const std::string& content) {
    head_ += fmt::format("--{}\r\nContent-Disposition: form-data; name=\"{}\"\r\nContent-Type: {}\r\n\r\n{}\r\n",
                         boundary_, name, type, content);
  }
  Result<void> add_file(const std::string& name, const std::string& type, const std::filesystem::path& path) {
    std::error_code error;
    file_bytes_ = std::filesystem::file_size(path, error);
    path_ = path;
    if (error) {
      return not_found(fmt::format("{}: cannot be read: {}", path.string(), error.message()));
    }
    file_head_ = fmt::format(
        "--{}\r\nContent-Disposition: form-data; name=\"{}\"; filename=\"{}.zip\"\r\nContent-Type: {}\r\n\r\n",
        boundary_, name, name, type);
    return {};
  }

  void write_to(HttpsRequest& request) {
    text_ = head_ + file_head_;
    tail_ = fmt::format("{}--{}--\r\n", path_.empty() ? "" : "\r\n", boundary_);
    request.headers.emplace_back("Content-Type", "multipart/form-data; boundary=" + boundary_);
    request.upload_bytes = text_.size() + file_bytes_ + tail_.size();
    sent_ = 0;
    if (!path_.empty()) {
      file_ = std::ifstream(path_, std::ios::binary);
    }
    request.upload = [this](std::span<char> to) { return give(to); };
  }

 private:
  Result<std::size_t> give(std::span<char> to) {
    const auto from_text = [&](const std::string& text, std::uint64_t begin) {
      const std::size_t offset = sent_ - begin;
      const std::size_t bytes = std::min(to.size(), text.size() - offset);
      std::memcpy(to.data(), text.data() + offset, bytes);
      sent_ += bytes;
      return bytes;
    };
    if (sent_ < text_.size()) {
      return from_text(text_, 0);
    }
    const std::uint64_t file_end = text_.size() + file_bytes_;
    if (sent_ < file_end) {
      const std::size_t bytes = std::min<std::uint64_t>(to.size(), file_end - sent_);
      file_.read(to.data(), static_cast<std::streamsize>(bytes));
      const auto got = static_cast<std::size_t>(file_.gcount());
      if (got == 0) {
        return failed(fmt::format("{}: became shorter while it was sent", path_.string()));
      }
      sent_ += got;
      return got;
    }
    return from_text(tail_, file_end);
  }

  const std::string boundary_;
  std::string head_;
  std::string file_head_;
  std::string text_;
  std::string tail_;
  std::filesystem::path path_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t sent_ = 0;
  std::ifstream file_;
};

class HttpApi : public Client {
 public:
  HttpApi(ClientOptions options, std::unique_ptr<HttpsClient> http)
      : options_(std::move(options)), http_(std::move(http)) {}

  bool is_out_of_reach() const override { return out_of_reach_; }

  Result<JobAnswer> submit(const NewSubmission& submission) override {
    const std::string key = submission.key.empty() ? random_digits() : submission.key;
    Multipart body("tesser-" + random_digits());
    body.add("manifest", "application/yaml", submission.manifest);
    if (!submission.secrets.empty()) {
      body.add("secrets", "application/json", to_json(submission.secrets));
    }
    if (!submission.code.empty()) {
      TESSER_RETURN_IF_ERROR(body.add_file("code", "application/zip", submission.code));
    }
    std::chrono::milliseconds pause = kFirstPause;
    const auto until = std::chrono::steady_clock::now() + options_.submit_time;
    for (;;) {
      HttpsRequest request = request_for("POST", "/v1/jobs");
      request.headers.emplace_back("Idempotency-Key", key);
      request.limits.whole = std::chrono::milliseconds(0);  // a large directory takes its time; silence is bounded
      body.write_to(request);
      const Result<std::string> answer = send(request);
      if (answer) {
        return read_job(*answer);
      }
      if (!out_of_reach_ || std::chrono::steady_clock::now() + pause > until) {
        return tl::unexpected<Error>(answer.error());
      }
      std::this_thread::sleep_for(pause);
      pause *= 2;
    }
  }

  Result<JobsAnswer> jobs(const JobsQuery& query) override {
    TESSER_ASSIGN_OR_RETURN(const std::string answer,
                            get("/v1/jobs" + query_text({{"state", query.state},
                                                         {"team", query.team},
                                                         {"limit", std::to_string(query.limit)},
                                                         {"after", query.after}})));
    return read_jobs(answer);
  }

  Result<JobAnswer> job(const std::string& id) override {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, get(path_of(id)));
    return read_job(answer);
  }

  Result<JobAnswer> halt(const std::string& id) override { return patch(id, R"({"wanted":"halt"})"); }
  Result<JobAnswer> resume(const std::string& id, std::optional<int> learners) override {
    return patch(id, learners ? fmt::format(R"({{"wanted":"run","learners":{}}})", *learners) : R"({"wanted":"run"})");
  }

  Result<void> remove(const std::string& id) override {
    TESSER_RETURN_IF_ERROR(send(request_for("DELETE", path_of(id))));
    return {};
  }

  Result<std::vector<ChangeAnswer>> history(const std::string& id) override {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, get(path_of(id) + "/history"));
    return read_history(answer);
  }

  Result<LinesAnswer> logs(const std::string& id, const FollowQuery& query) override {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, follow(path_of(id) + "/logs", query));
    return read_lines(answer);
  }
  Result<MetricsAnswer> metrics(const std::string& id, const FollowQuery& query) override {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, follow(path_of(id) + "/metrics", query));
    return read_metrics(answer);
  }

  Result<void> download(const std::string& id, Download what,
                        const std::function<Result<void>(std::string_view)>& take) override {
    HttpsRequest request = request_for("GET", fmt::format("{}/{}", path_of(id), name_of(what)));
    request.limits.whole = std::chrono::milliseconds(0);
    Result<void> taken;
    request.receive = [&](std::string_view piece) -> Result<bool> {
      taken = take(piece);
      return taken ? Result<bool>(true) : failed("nobody takes the answer");
    };
    const Result<std::string> answer = send(request);
    TESSER_RETURN_IF_ERROR(taken);  // in its own words, not as the connection's end
    return answer ? Result<void>() : tl::unexpected<Error>(answer.error());
  }

  Result<std::string> get(const std::string& path) override { return send(request_for("GET", path)); }

  Result<std::string> ask(const std::string& method, const std::string& path, const std::string& body) override {
    HttpsRequest request = request_for(method, path);
    if (!body.empty()) {
      request.headers.emplace_back("Content-Type", "application/json");
      request.body = body;
    }
    return send(request);
  }

  Result<std::vector<NodeAnswer>> nodes() override {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, get("/v1/nodes"));
    return read_nodes(answer);
  }
  Result<std::vector<QuotaAnswer>> quota() override {
    TESSER_ASSIGN_OR_RETURN(const std::string answer, get("/v1/quota"));
    return read_quota(answer);
  }

 private:
  static std::string path_of(const std::string& id) { return "/v1/jobs/" + url_encoded(id); }

  static std::string query_text(const std::vector<std::pair<std::string, std::string>>& members) {
    std::string text;
    for (const auto& [key, value] : members) {
      if (!value.empty()) {
        text += fmt::format("{}{}={}", text.empty() ? '?' : '&', key, url_encoded(value));
      }
    }
    return text;
  }

  Result<std::string> follow(const std::string& path, const FollowQuery& query) {
    HttpsRequest request =
        request_for("GET", path + query_text({{"learner", query.learner ? std::to_string(*query.learner) : ""},
                                              {"name", query.name},
                                              {"cursor", query.cursor},
                                              {"limit", std::to_string(query.limit)},
                                              {"wait", std::to_string(query.wait.count())}}));
    request.limits.whole += query.wait;
    request.limits.idle += query.wait;
    return send(request);
  }

  Result<JobAnswer> patch(const std::string& id, const std::string& body) {
    HttpsRequest request = request_for("PATCH", path_of(id));
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = body;
    TESSER_ASSIGN_OR_RETURN(const std::string answer, send(request));
    return read_job(answer);
  }

  HttpsRequest request_for(const std::string& method, const std::string& path) const {
    HttpsRequest request;
    request.method = method;
    request.url = options_.url + path;
    if (!options_.token.empty()) {
      request.headers.emplace_back("Authorization", "Bearer " + options_.token);
    }
    request.limits.connect = std::min<std::chrono::milliseconds>(request.limits.connect, options_.patience);
    request.limits.whole = options_.patience;
    request.limits.idle = options_.patience;
    return request;
  }

  Result<std::string> send(const HttpsRequest& request) {
    const auto until = std::chrono::steady_clock::now() + options_.patience;
    Result<HttpsAnswer> answer = http_->send(request);
    // Who asks too often is told when to ask again. What is uploaded piece by piece was taken from its file.
    for (int wait = 0; answer && !request.upload && (wait = seconds_to_wait(*answer)) > 0 &&
                       std::chrono::steady_clock::now() + std::chrono::seconds(wait) < until;) {
      std::this_thread::sleep_for(std::chrono::seconds(wait));
      answer = http_->send(request);
    }
    out_of_reach_ = !answer;
    if (!answer) {
      if (answer.error().code == ErrorCode::kNotFound) {
        return not_found(
            fmt::format("no server listens at {}; start one with `tesser server`, or name another with "
                        "`tesser login URL` or TESSER_SERVER",
                        options_.url));
      }
      return tl::unexpected<Error>(std::move(answer.error()));
    }
    if (answer->is_success()) {
      return std::move(answer->body);
    }
    return tl::unexpected<Error>(refusal(*answer));
  }

  static int seconds_to_wait(const HttpsAnswer& answer) {
    const std::string* after = answer.status == kTooMany ? answer.header("retry-after") : nullptr;
    return after == nullptr ? 0 : std::atoi(after->c_str());
  }

  // In the server's words, where they are some.
  Error refusal(const HttpsAnswer& answer) {
    std::string message;
    if (const auto json = parse_json(answer.body)) {
      const Json* error = json->find("error");
      const Json* text = error != nullptr ? error->find("message") : nullptr;
      message = text != nullptr && text->string() != nullptr ? *text->string() : "";
    }
    if (message.empty()) {
      message =
          fmt::format("{} answers with status {}; is it a server of tesser's platform?", options_.url, answer.status);
    }
    switch (answer.status) {
      case 401:
        return {
            ErrorCode::kInvalidInput,
            options_.token.empty()
                ? fmt::format("not logged in at {}; `tesser login {}` keeps a token", options_.url, options_.url)
                : fmt::format("{} does not know this token; get another from who runs it, and `tesser login {}` again",
                              options_.url, options_.url)};
      case 404:
        return {ErrorCode::kNotFound, message};
      case 400:
      case 403:
      case 409:
      case 413:
      case 422:
        return {ErrorCode::kInvalidInput, message};
      default:
        out_of_reach_ = seconds_to_wait(answer) > 0 || answer.status >= 500;
        return {ErrorCode::kFailed, message};
    }
  }

  const ClientOptions options_;
  std::unique_ptr<HttpsClient> http_;
  bool out_of_reach_ = false;
};

}  // namespace

Result<std::unique_ptr<Client>> Client::open(ClientOptions options) {
  while (options.url.ends_with('/')) {
    options.url.pop_back();
  }
  const UrlParts parts = split_url(options.url);
  if ((parts.scheme != "http" && parts.scheme != "https") || parts.authority.empty() || parts.path != "/") {
    return invalid_input(fmt::format("'{}' is no server's URL; expected http://HOST:PORT", options.url));
  }
  HttpsOptions https;
  https.what = "server";
  https.authorities_file = options.authorities;
  TESSER_ASSIGN_OR_RETURN(auto http, HttpsClient::open(https));
  return std::make_unique<HttpApi>(std::move(options), std::move(http));
}

}  // namespace tesser::platform
