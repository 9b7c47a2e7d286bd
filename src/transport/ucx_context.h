// UCX's contexts, restricted to verbs. Only for ucx_*.cc: this header has UCX's types.
#pragma once

#include <string>

#include <ucp/api/ucp.h>

#include "transport/failure.h"
#include "transport/ucx_worker.h"

namespace tesser::transport {

// A ucp_context_h and its end.
class UcxContext {
 public:
  // With verbs transports only, so that UCX never takes another path by itself: those of options.transports, else of
  // UCX_TLS, else all; adapters as options.devices or UCX_NET_DEVICES say. kUnavailable with the reason.
  static Outcome<UcxContext> open(const UcxOptions& options);
  UcxContext(UcxContext&& other) noexcept;
  UcxContext& operator=(UcxContext&& other) noexcept;
  ~UcxContext();

  ucp_context_h get() const { return context_; }
  void release() { context_ = nullptr; }  // it is never cleaned up

 private:
  explicit UcxContext(ucp_context_h context) : context_(context) {}

  ucp_context_h context_ = nullptr;
};

// The verbs transports that open() would allow, as UCX_TLS writes them; empty when `options` name others only.
std::string verbs_transports(const UcxOptions& options);

}  // namespace tesser::transport
