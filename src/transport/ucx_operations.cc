// Operations that UCX carries out, from their begin to the callback that ends them.

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "transport/ucx_verbs_worker.h"

namespace tesser::transport {

std::unique_ptr<Operation> VerbsWorker::begin(const std::shared_ptr<Endpoint>& endpoint, Completion* completion) {
  if (completion != nullptr) {
    completion->begin();
  }
  if (endpoint->failure) {
    if (completion != nullptr) {
      completion->fail(*endpoint->failure);
    }
    return nullptr;
  }
  auto operation = std::make_unique<Operation>();
  operation->worker = this;
  operation->endpoint = endpoint;
  operation->completion = completion;
  ++endpoint->in_flight;
  ++in_flight_;
  return operation;
}

ucp_request_param_t VerbsWorker::parameters(Operation& operation) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.send = &VerbsWorker::on_sent;
  parameters.user_data = &operation;
  return parameters;
}

void VerbsWorker::submitted(std::unique_ptr<Operation> operation, ucs_status_ptr_t status) {
  if (status == nullptr) {
    ended(std::move(operation), UCS_OK);
  } else if (UCS_PTR_IS_ERR(status)) {
    ended(std::move(operation), UCS_PTR_STATUS(status));
  } else {
    operation.release();  // on_sent() takes it back
  }
}

void VerbsWorker::on_sent(void* request, ucs_status_t status, void* data) {
  std::unique_ptr<Operation> operation(static_cast<Operation*>(data));
  VerbsWorker* worker = operation->worker;
  ucp_request_free(request);
  worker->ended(std::move(operation), status);
}

void VerbsWorker::ended(std::unique_ptr<Operation> operation, ucs_status_t status) {
  Endpoint& endpoint = *operation->endpoint;
  if (status == UCS_OK && operation->notifies_after && !endpoint.failure) {
    operation->notifies_after = false;
    to_send_.push_back(std::move(operation));  // not from inside a callback
    return;
  }
  --endpoint.in_flight;
  --in_flight_;
  endpoint.chunks_in_flight -= operation->is_chunk ? 1 : 0;
  Completion* completion = operation->completion;
  if (status == UCS_OK && !operation->notifies_after) {
    if (completion != nullptr) {
      completion->finish();
    }
    return;
  }
  if (endpoint.failure) {
    if (completion != nullptr) {
      completion->fail(*endpoint.failure);
    }
    return;
  }
  // The control connection may know more, that the peer is dead for example. abort() ends these with what it says.
  if (completion != nullptr) {
    endpoint.broken.push_back(completion);
  }
  report(endpoint, FailureKind::kLinkDown,
         fmt::format("the network connection to {} failed: {}", endpoint.peer, ucs_status_string(status)));
}

void VerbsWorker::put(const std::shared_ptr<Endpoint>& endpoint, const std::byte* from, const RemoteRegion& to,
                      std::uint64_t offset, std::size_t bytes, Completion& completion) {
  if (bytes == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, &completion)) {
    const ucp_request_param_t options = parameters(*operation);
    const auto key = static_cast<ucp_rkey_h>(const_cast<void*>(to.key()));
    submitted(std::move(operation), ucp_put_nbx(endpoint->handle, from, bytes, to.address() + offset, key, &options));
  }
}

void VerbsWorker::get(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& from, std::uint64_t offset,
                      std::byte* to, std::size_t bytes, Completion& completion) {
  if (bytes == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, &completion)) {
    const ucp_request_param_t options = parameters(*operation);
    const auto key = static_cast<ucp_rkey_h>(const_cast<void*>(from.key()));
    submitted(std::move(operation), ucp_get_nbx(endpoint->handle, to, bytes, from.address() + offset, key, &options));
  }
}

void VerbsWorker::flush(const std::shared_ptr<Endpoint>& endpoint, Completion& completion,
                        const MessageHeader* then_notify) {
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, &completion)) {
    if (then_notify != nullptr) {
      operation->notifies_after = true;
      operation->message = *then_notify;
    }
    const ucp_request_param_t options = parameters(*operation);
    submitted(std::move(operation), ucp_ep_flush_nbx(endpoint->handle, &options));
    progress_locked();  // sends the notification at once when there was nothing to wait for
  }
}

void VerbsWorker::put_word(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& signals, std::uint32_t signal,
                           std::uint64_t value, Completion& completion) {
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, &completion)) {
    operation->message.value = value;
    const ucp_request_param_t options = parameters(*operation);
    const auto key = static_cast<ucp_rkey_h>(const_cast<void*>(signals.key()));
    Operation& sent = *operation;
    submitted(std::move(operation), ucp_put_nbx(endpoint->handle, &sent.message.value, sizeof(value),
                                                signals.address() + signal, key, &options));
  }
}

void VerbsWorker::send(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message,
                       const std::byte* payload, std::size_t bytes, Completion& completion) {
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, &completion)) {
    operation->message = message;
    if (bytes != 0) {
      operation->copied.assign(reinterpret_cast<const char*>(payload), bytes);
      operation->from = reinterpret_cast<const std::byte*>(operation->copied.data());
      operation->bytes = bytes;
    }
    send_locked(std::move(operation));
  }
}

void VerbsWorker::send_locked(std::unique_ptr<Operation> operation) {
  if (operation->endpoint->failure) {
    ended(std::move(operation), UCS_ERR_CANCELED);
    return;
  }
  ucp_request_param_t options = parameters(*operation);
  options.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  options.flags = UCP_AM_SEND_FLAG_EAGER;
  Operation& sent = *operation;  // header and payload must stay until the callback
  submitted(std::move(operation), ucp_am_send_nbx(sent.endpoint->handle, kMessageId, &sent.message,
                                                  sizeof(sent.message), sent.from, sent.bytes, &options));
}

// By UCX, inside progress.
ucs_status_t VerbsWorker::on_message(void* worker, const void* header, std::size_t header_bytes, void* data,
                                     std::size_t bytes, const ucp_am_recv_param_t* parameters) {
  auto& self = *static_cast<VerbsWorker*>(worker);
  const bool whole = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
  MessageHeader message;
  if (header_bytes != sizeof(message) || !whole) {
    return UCS_OK;
  }
  std::memcpy(&message, header, sizeof(message));
  // Of a channel that is over: nobody waits for it.
  if (const auto found = self.endpoints_.find(message.token);
      found != self.endpoints_.end() && !found->second->failure) {
    self.take(std::shared_ptr<Endpoint>(found->second), message, {static_cast<const char*>(data), bytes});
  }
  return UCS_OK;
}

}  // namespace tesser::transport
