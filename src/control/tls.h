// TLS of a server's connections, as OpenSSL has it. Internal to this folder.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tesser::control {

// One connection. One thread at a time; nothing waits. Without a socket of its own.
class TlsSession {
 public:
  explicit TlsSession(ssl_st* session) : session_(session) {}
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  ~TlsSession();

  // As recv() and send() without waiting: bytes, 0 at the end, or -1 with errno. EAGAIN: once `events()`, of poll(),
  // are there, again with the same bytes. The first calls shake hands.
  ssize_t read(char* to, std::size_t most);
  ssize_t write(const char* from, std::size_t bytes);
  short events() const { return events_; }
  bool has_shaken_hands() const;
  // Bytes that were read from the socket, but not by read() yet.
  bool has_bytes() const;
  void say_goodbye();

 private:
  ssize_t outcome_of(int code);

  ssl_st* const session_;
  short events_ = 1;  // POLLIN
};

// Certificate and key of a server. Any thread.
class TlsIdentity {
 public:
  // PEM files; the certificate's with those of the authorities between it and the one that clients trust, if any.
  // kInvalidInput when they do not go together or cannot be read.
  static Result<std::unique_ptr<TlsIdentity>> open(const std::filesystem::path& certificate,
                                                   const std::filesystem::path& key);
  TlsIdentity(const TlsIdentity&) = delete;
  TlsIdentity& operator=(const TlsIdentity&) = delete;
  ~TlsIdentity();

  // Whether clients that ask for this host, a name or an address, will take it.
  bool is_for(const std::string& host) const;
  // Nothing when the system has no memory for it. The socket is made one that does not wait.
  std::unique_ptr<TlsSession> accept(int socket) const;

 private:
  explicit TlsIdentity(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

}  // namespace tesser::control
