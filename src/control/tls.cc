#include "control/tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include <fmt/format.h>

namespace tesser::control {
namespace {

std::string last_error() {
  const unsigned long code = ERR_peek_last_error();
  char text[256] = "no reason given";
  if (code != 0) {
    ERR_error_string_n(code, text, sizeof(text));
  }
  ERR_clear_error();
  return text;
}

}  // namespace

TlsSession::~TlsSession() { SSL_free(session_); }

ssize_t TlsSession::outcome_of(int code) {
  switch (SSL_get_error(session_, code)) {
    case SSL_ERROR_WANT_READ:
      events_ = POLLIN;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_WANT_WRITE:
      events_ = POLLOUT;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      errno = ECONNRESET;
      return -1;
  }
}

ssize_t TlsSession::read(char* to, std::size_t most) {
  ERR_clear_error();
  const int count = SSL_read(session_, to, static_cast<int>(std::min<std::size_t>(most, INT_MAX)));
  return count > 0 ? count : outcome_of(count);
}

ssize_t TlsSession::write(const char* from, std::size_t bytes) {
  ERR_clear_error();
  events_ = POLLOUT;
  const int count = SSL_write(session_, from, static_cast<int>(std::min<std::size_t>(bytes, INT_MAX)));
  return count > 0 ? count : outcome_of(count);
}

bool TlsSession::has_shaken_hands() const { return SSL_is_init_finished(session_) == 1; }
bool TlsSession::has_bytes() const { return SSL_pending(session_) > 0; }

void TlsSession::say_goodbye() {
  ERR_clear_error();
  if (has_shaken_hands()) {
    SSL_shutdown(session_);
  }
}

Result<std::unique_ptr<TlsIdentity>> TlsIdentity::open(const std::filesystem::path& certificate,
                                                       const std::filesystem::path& key) {
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  if (context == nullptr) {
    return failed(fmt::format("TLS is out of order: {}", last_error()));
  }
  std::unique_ptr<TlsIdentity> identity(new TlsIdentity(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return 0; });  // or it would ask the terminal
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    return invalid_input(
        fmt::format("{}: cannot be used as TLS certificate: {}; give a PEM file", certificate.string(), last_error()));
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return invalid_input(
        fmt::format("{}: cannot be used as TLS key: {}; give the PEM file, without a passphrase, of "
                    "the key of {}",
                    key.string(), last_error(), certificate.string()));
  }
  return identity;
}

TlsIdentity::~TlsIdentity() { SSL_CTX_free(context_); }

bool TlsIdentity::is_for(const std::string& host) const {
  X509* certificate = SSL_CTX_get0_certificate(context_);
  return certificate != nullptr && (X509_check_ip_asc(certificate, host.c_str(), 0) == 1 ||
                                    X509_check_host(certificate, host.data(), host.size(), 0, nullptr) == 1);
}

std::unique_ptr<TlsSession> TlsIdentity::accept(int socket) const {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  SSL* session = SSL_new(context_);
  if (session == nullptr) {
    return nullptr;
  }
  if (SSL_set_fd(session, socket) != 1) {
    SSL_free(session);
    return nullptr;
  }
  SSL_set_accept_state(session);
  return std::make_unique<TlsSession>(session);
}

}  // namespace tesser::control
