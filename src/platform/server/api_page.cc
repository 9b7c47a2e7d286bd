// The page at `/`, and what keeps it cheap and safe: entity tags, and headers that bind a browser.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "platform/page/page.h"
#include "platform/server/api.h"

namespace tesser::platform {
namespace {

// Whether a browser has what this tag stands for. Tags hold no comma and no quote.
bool is_known(const control::HttpRequest& request, const std::string& tag) {
  const std::string* given = request.header("If-None-Match");
  return given != nullptr && (*given == "*" || given->find(tag) != std::string::npos);
}

void answer_not_modified(control::HttpResponse& response) {
  response.status = 304;
  response.body.clear();
}

control::HttpResponse page_response(const control::HttpRequest& request, const PageFile& file, const char* caching) {
  control::HttpResponse response;
  const std::string tag = fmt::format("\"{}\"", file.digest);
  response.content_type = file.content_type;
  response.body = file.content;
  response.headers = {{"ETag", tag}, {"Cache-Control", caching}};
  if (is_known(request, tag)) {
    answer_not_modified(response);
  }
  return response;
}

}  // namespace

control::HttpResponse Api::page(const Call& call) {
  Response response = page_response(call.request, *page_file("index.html"), "no-cache");
  // Scripts and styles are files of this server and nothing else, whatever gets into the page; `form-action` keeps a
  // token out of the address of a page whose scripts do not run.
  response.headers.insert(
      response.headers.end(),
      {{"Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "
        "'script'; trusted-types 'none'"},
       {"X-Frame-Options", "DENY"},
       {"Referrer-Policy", "no-referrer"},
       {"Cross-Origin-Opener-Policy", "same-origin"},
       {"Cross-Origin-Resource-Policy", "same-origin"},
       {"Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"}});
  return response;
}

control::HttpResponse Api::page_asset(const Call& call) {
  const PageFile* file = call.values[0] == page_version() ? page_file(call.values[1]) : nullptr;
  if (file == nullptr) {
    return error(404, "U_NOT_FOUND", "the page has no such file; the server may be a newer one: load the page again");
  }
  Response response = page_response(call.request, *file, "public, max-age=31536000, immutable");
  response.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  return response;
}

void Api::finish(const Request* request, Response& response) {
  const auto has = [&](std::string_view name) {
    return std::any_of(response.headers.begin(), response.headers.end(),
                       [&](const auto& header) { return header.first == name; });
  };
  if (!has("X-Content-Type-Options")) {  // what users wrote is what its type says, never HTML that a browser guesses
    response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  }
  if (has("Cache-Control")) {
    return;
  }
  response.headers.emplace_back("Cache-Control", "no-store");
  // Those who look again and again need not be sent what they have.
  if (request != nullptr && request->method == "GET" && response.status == 200 && !response.stream) {
    const std::string tag = fmt::format("\"{:016x}\"", std::hash<std::string>()(response.body));
    response.headers.emplace_back("ETag", "W/" + tag);
    if (is_known(*request, tag)) {
      answer_not_modified(response);
    }
  }
}

}  // namespace tesser::platform
