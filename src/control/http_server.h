// An HTTP/1.1 server for small requests, uploads that lie in files, answers that are made as they are sent, and answers
// that are waited for.
//
// A connection that is idle occupies no thread; one with a request does, until the answer is sent. Handlers are called
// on the server's threads, several at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tesser::control {

class RequestThreads;

// A part of a multipart/form-data body. Those with a file name lie in a file, which the handler may move away; it is
// removed after the answer else.
struct HttpPart {
  std::string name;
  std::string file_name;  // as the client says; never a path to trust
  std::string content;
  std::filesystem::path file;
};

// While one lives, its handler does not count among those that work, so that others take its place. Move-only.
class WaitingPlace {
 public:
  explicit WaitingPlace(RequestThreads& threads) : threads_(&threads) {}
  WaitingPlace(WaitingPlace&& other) noexcept : threads_(std::exchange(other.threads_, nullptr)) {}
  WaitingPlace& operator=(WaitingPlace&& other) noexcept {
    std::swap(threads_, other.threads_);
    return *this;
  }
  ~WaitingPlace();

 private:
  RequestThreads* threads_;
};

struct HttpRequest {
  std::string address;                                       // of the client, without its port
  std::string method;                                        // GET, POST, PATCH, PUT, DELETE; HEAD arrives as GET
  std::string path;                                          // decoded
  std::vector<std::pair<std::string, std::string>> query;    // decoded
  std::vector<std::pair<std::string, std::string>> headers;  // names as they came
  std::string body;
  std::vector<HttpPart> parts;  // of multipart/form-data, where it was asked for
  RequestThreads* threads = nullptr;
  std::shared_ptr<const void> admitted;  // what HttpAdmission::held is

  // The first of that name; headers in any case.
  const std::string* header(std::string_view name) const;
  const std::string* argument(std::string_view name) const;
  // To be held while the handler waits. None when as many as may wait do so: answer at once then.
  std::optional<WaitingPlace> begin_to_wait() const;
};

// Takes the next piece of an answer; false when the client is gone.
using HttpWrite = std::function<bool(std::string_view piece)>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  // Instead of a body: sends it piece by piece. False: the answer is broken off, which the client sees.
  std::function<bool(const HttpWrite& write)> stream;
};

// What becomes of a request whose headers have come, before its body is read.
struct HttpAdmission {
  std::optional<HttpResponse> refusal;     // the answer instead of the handler's; the body stays unread
  std::size_t most_body_bytes = 0;         // larger ones are refused (413)
  std::filesystem::path parts_directory;   // multipart/form-data is taken apart, with its files here; empty: not
  std::size_t most_part_bytes = 16 << 20;  // of a part that is no file
  std::shared_ptr<const void> held;        // let go of when the answer has been sent; HttpRequest::admitted
};

struct HttpServerOptions {
  std::string what = "server";  // this server, in messages
  int threads = 8;              // handlers that work at the same time
  int waiting = 0;              // further ones that wait
  int connections = 4096;       // open at the same time; further ones are refused (503)
  int connections_of_one = 0;   // of them from one address; 0: as many
  // From the first byte of a request to its last, and again for the answer; slower clients are hung up on (408).
  std::chrono::milliseconds request_time{10'000};
  // Requests and answers may take so much longer as this many bytes a second need; 0: they may not.
  std::size_t slowest_bytes_per_second = 0;
  // A request whose head has not come whole takes no thread.
  std::chrono::milliseconds idle_time{30'000};  // after which a connection without a request is closed
  // Asked on the server's threads, with the request as yet without its body.
  std::function<HttpAdmission(const HttpRequest& request)> admit;
  std::function<HttpResponse(const HttpRequest& request)> answer;
  // The answer to what is no proper request, or larger than it may be. None: the text alone.
  std::function<HttpResponse(int status, const std::string& text)> refuse;
  // Told of every answer before it is sent, refusals too. Of what was no proper request only the address is known.
  std::function<void(const HttpRequest& request, const HttpResponse& answer)> answered;
  // PEM files of the server's certificate and key: it speaks TLS; both or none.
  std::filesystem::path certificate;
  std::filesystem::path key;
};

// Writes no log, so that no secret gets into one.
class HttpServer {
 public:
  // Listens at "HOST:PORT" (port 0: the system chooses).
  static Result<std::unique_ptr<HttpServer>> open(const std::string& address, HttpServerOptions options);
  virtual ~HttpServer() = default;  // waits for handlers, not for clients

  virtual int port() const = 0;
  // Whether clients that ask for this host take the server's certificate; true without TLS.
  virtual bool is_certified_for(const std::string& host) const = 0;
};

}  // namespace tesser::control
