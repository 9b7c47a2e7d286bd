#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "control/control_http.h"
#include "control/http_server.h"

namespace tesser::control {
namespace {

HttpResponse text_response(int status, std::string text) {
  HttpResponse response;
  response.status = status;
  response.content_type = "text/plain";
  response.body = std::move(text);
  return response;
}

class AnsweringServer final : public ControlServer {
 public:
  AnsweringServer(const std::string& token, Answer answer, ControlServerOptions options)
      : authorization_(token.empty() ? "" : "Bearer " + token),
        needs_authorization_(!token.empty() || !options.tenants.empty()),
        answer_(std::move(answer)),
        options_(std::move(options)) {}

  Result<void> listen(const std::string& address, int clients) {
    HttpServerOptions options;
    options.what = options_.what;
    options.threads = clients + 2;
    options.request_time = options_.request_time;
    options.admit = [this](const HttpRequest& request) { return admit(request); };
    options.answer = [this](const HttpRequest& request) { return respond(request); };
    TESSER_ASSIGN_OR_RETURN(server_, HttpServer::open(address, std::move(options)));
    return {};
  }

  int port() const override { return server_->port(); }

 private:
  HttpAdmission admit(const HttpRequest& request) const {
    HttpAdmission admission;
    admission.most_body_bytes = options_.most_body_bytes;
    const bool open = !needs_authorization_ || (options_.needs_token && !options_.needs_token(request.path));
    if (!open && !caller(request)) {
      admission.refusal =
          text_response(403, fmt::format("this request does not carry the token that the {} expects", options_.what));
    } else if (request.method == "GET" ? !options_.get : request.method != "POST") {
      admission.refusal = text_response(405, fmt::format("the {} answers no {}", options_.what, request.method));
    }
    return admission;
  }

  // Whose token the request carries: a tenant's name, or nothing for the server's own. None where it carries neither.
  std::optional<std::string> caller(const HttpRequest& request) const {
    const std::string* given = request.header("Authorization");
    const std::string_view authorization = given == nullptr ? std::string_view() : *given;
    std::optional<std::string> found;
    if (!authorization_.empty() && is_same_secret(authorization, authorization_)) {
      found = "";
    }
    for (const auto& [token, tenant] : options_.tenants) {
      if (is_same_secret(authorization, "Bearer " + token)) {
        found = tenant;
      }
    }
    return found;
  }

  Result<std::string> body_for(const HttpRequest& request) const {
    if (request.method == "GET") {
      return options_.get(request.path, request.body);
    }
    return options_.answer_tenant ? options_.answer_tenant(caller(request).value_or(""), request.path, request.body)
                                  : answer_(request.path, request.body);
  }

  HttpResponse respond(const HttpRequest& request) const {
    const Result<std::string> body = body_for(request);
    if (!body) {
      return text_response(body.error().code == ErrorCode::kNotFound ? 404 : 422, body.error().message);
    }
    HttpResponse response = text_response(200, *body);
    if (request.method != "GET" || request.path.starts_with("/v1/")) {
      response.content_type = "application/json";
    }
    return response;
  }

  const std::string authorization_;  // by the server's own token; empty: it has none
  const bool needs_authorization_;
  const Answer answer_;
  const ControlServerOptions options_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace

bool is_same_secret(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    difference |= static_cast<unsigned char>(given[i] ^ other);
  }
  return difference == 0;
}

Result<std::unique_ptr<ControlServer>> ControlServer::open(const std::string& address, const std::string& token,
                                                           int clients, Answer answer, ControlServerOptions options) {
  auto server = std::make_unique<AnsweringServer>(token, std::move(answer), std::move(options));
  TESSER_RETURN_IF_ERROR(server->listen(address, clients));
  return server;
}

}  // namespace tesser::control
