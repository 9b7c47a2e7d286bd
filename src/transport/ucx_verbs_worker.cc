#include "transport/ucx_verbs_worker.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "transport/peer_path.h"

namespace tesser::transport {
namespace {

constexpr std::chrono::milliseconds kTimeToCancel{500};
constexpr std::chrono::milliseconds kBetweenGreetings{50};
constexpr std::chrono::microseconds kBetweenLooks{500};

// "rc_verbs/mlx5_0:1, ud_verbs/mlx5_0:1", from what ucp_ep_print_info() says; 1.13 has no other way.
std::string lanes_of(ucp_ep_h handle) {
  char* text = nullptr;
  std::size_t bytes = 0;
  FILE* stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) {
    return "";
  }
  ucp_ep_print_info(handle, stream);
  std::fclose(stream);
  const std::string info(text, bytes);
  std::free(text);
  std::string lanes;
  for (std::size_t at = info.find("lane["); at != std::string::npos; at = info.find("lane[", at + 1)) {
    // "lane[0]:  0:rc_verbs/mlx5_0:1.0 md[0]  ..."
    const std::size_t slash = info.find('/', at);
    const std::size_t line_end = info.find('\n', at);
    if (slash == std::string::npos || slash > line_end) {
      continue;
    }
    const std::size_t begin = info.rfind(':', slash) + 1;
    const std::size_t end = info.find_first_of(" .", slash);
    const std::string lane = info.substr(begin, end - begin);
    if (lanes.find(lane) == std::string::npos) {
      lanes += (lanes.empty() ? "" : ", ") + lane;
    }
  }
  return lanes;
}

// Whether the adapter itself reaches the peer's memory: rc and dc can, ud cannot.
bool have_remote_access(const std::string& lanes) {
  return lanes.starts_with("rc") || lanes.starts_with("dc") || lanes.find(", rc") != std::string::npos ||
         lanes.find(", dc") != std::string::npos;
}

}  // namespace

VerbsWorker::~VerbsWorker() {
  events_ = {};
  const std::lock_guard lock(mutex_);
  if (must_outlive_process_) {
    context_.release();
    return;
  }
  for (auto& [id, registered] : regions_) {
    ucp_mem_unmap(context_.get(), registered.memory);
  }
  if (worker_ != nullptr) {
    ucp_worker_destroy(worker_);
  }
}

Outcome<void> VerbsWorker::start() {
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucs_status_t status = ucp_worker_create(context_.get(), &parameters, &worker_);
  if (status == UCS_OK) {
    status = ucp_worker_get_efd(worker_, &event_descriptor_);
  }
  if (status == UCS_OK) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = &VerbsWorker::on_message;
    handler.arg = this;
    status = ucp_worker_set_am_recv_handler(worker_, &handler);
  }
  if (status != UCS_OK) {
    return failure(FailureKind::kUnavailable, "",
                   fmt::format("UCX cannot use the adapter: {}; the usual cause is the limit of locked memory (ulimit "
                               "-l), which `tesser transport info` prints",
                               ucs_status_string(status)));
  }
  return {};
}

std::string VerbsWorker::address() {
  const std::lock_guard lock(mutex_);
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  std::string text;
  if (ucp_worker_get_address(worker_, &address, &bytes) == UCS_OK) {
    text.assign(reinterpret_cast<const char*>(address), bytes);
    ucp_worker_release_address(worker_, address);
  }
  return text;
}

Outcome<std::string> VerbsWorker::register_region(const std::shared_ptr<MemoryRegion>& region) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t id = region->handle().region;
  if (const auto found = regions_.find(id); found != regions_.end()) {
    return found->second.key;
  }
  ucp_mem_map_params_t parameters{};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  parameters.address = region->data();
  parameters.length = region->bytes();
  Registered registered{region, nullptr, {}};
  ucs_status_t status = ucp_mem_map(context_.get(), &parameters, &registered.memory);
  void* key = nullptr;
  std::size_t bytes = 0;
  if (status == UCS_OK) {
    status = ucp_rkey_pack(context_.get(), registered.memory, &key, &bytes);
    if (status != UCS_OK) {
      ucp_mem_unmap(context_.get(), registered.memory);
    }
  }
  if (status != UCS_OK) {
    return failure(
        FailureKind::kRegistrationRefused, "",
        fmt::format("region '{}' of {} bytes cannot be registered for the network: {}; the usual cause is the limit of "
                    "locked memory (ulimit -l), which `tesser transport info` prints",
                    region->name(), region->bytes(), ucs_status_string(status)));
  }
  registered.key.assign(static_cast<const char*>(key), bytes);
  ucp_rkey_buffer_release(key);
  return regions_.emplace(id, std::move(registered)).first->second.key;
}

Outcome<std::unique_ptr<PeerPath>> VerbsWorker::connect(const std::string& peer, std::uint64_t token,
                                                        const std::string& address, Deadline deadline) {
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->peer = peer;
  endpoint->token = token;
  {
    const std::lock_guard lock(mutex_);
    ucp_ep_params_t parameters{};
    parameters.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    parameters.err_handler.cb = &VerbsWorker::on_error;
    parameters.err_handler.arg = this;
    const ucs_status_t status = ucp_ep_create(worker_, &parameters, &endpoint->handle);
    if (status != UCS_OK) {
      return failure(
          FailureKind::kUnreachable, peer,
          fmt::format("the adapter finds no way to {}: {}; check that both machines share a fabric, and UCX_TLS and "
                      "UCX_NET_DEVICES if they are set",
                      peer, ucs_status_string(status)));
    }
    endpoints_[token] = endpoint;
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(greet(endpoint, deadline));
  {
    const std::lock_guard lock(mutex_);
    endpoint->lanes = lanes_of(endpoint->handle);
    endpoint->has_remote_access = have_remote_access(endpoint->lanes);
  }
  return make_ucx_path(std::static_pointer_cast<VerbsWorker>(shared_from_this()), std::move(endpoint));
}

// Asks for an answer until one comes; the peer may not have made its endpoint yet.
Outcome<void> VerbsWorker::greet(const std::shared_ptr<Endpoint>& endpoint, Deadline deadline) {
  MessageHeader greeting;
  greeting.token = endpoint->token;
  greeting.kind = MessageKind::kFlush;
  endpoint->greeting.begin();
  Deadline next = Clock::now();
  while (true) {
    unsigned done = 0;
    {
      const std::lock_guard lock(mutex_);
      if (Clock::now() >= next) {
        next = Clock::now() + kBetweenGreetings;
        endpoint->flushes[greeting.value] = &endpoint->greeting;
        send_soon(endpoint, greeting, nullptr);
      }
      done = progress_locked();
      if (endpoint->greeting.done()) {
        return {};
      }
      if (!endpoint->link_error.empty()) {
        break;
      }
      if (Clock::now() >= deadline) {
        // UCX 1.13 ends the process when an endpoint is closed before its first message has gone out: it stays, and
        // the worker with it.
        must_outlive_process_ = true;
        endpoint->failure = Failure{FailureKind::kTimeout, endpoint->peer, ""};
        endpoints_.erase(endpoint->token);
        return transport::failure(
            FailureKind::kTimeout, endpoint->peer,
            fmt::format("the adapter has brought no answer from {} in time; check that both adapters are on one "
                        "fabric, their ports are active and, over RoCE, that their IP addresses reach each other",
                        endpoint->peer));
      }
    }
    if (done == 0) {
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  Failure failure{FailureKind::kUnreachable, endpoint->peer, endpoint->link_error};
  close(endpoint);
  return tl::unexpected<Failure>(std::move(failure));
}

Outcome<std::shared_ptr<const void>> VerbsWorker::unpack_key(PeerPath& path, const std::string& peer,
                                                             const std::string& key) {
  Endpoint& endpoint = endpoint_of(path);
  ucp_rkey_h unpacked = nullptr;
  const std::lock_guard lock(mutex_);
  // UCX trusts the key's length to be right.
  if (endpoint.handle == nullptr || key.empty() ||
      ucp_ep_rkey_unpack(endpoint.handle, key.data(), &unpacked) != UCS_OK) {
    return failure(FailureKind::kProtocol, peer,
                   fmt::format("{} publishes a region with a key that UCX cannot use", peer));
  }
  return std::shared_ptr<const void>(unpacked, [worker = shared_from_this()](const void* rkey) {
    const std::lock_guard guard(static_cast<VerbsWorker&>(*worker).mutex_);
    ucp_rkey_destroy(static_cast<ucp_rkey_h>(const_cast<void*>(rkey)));
  });
}

bool VerbsWorker::arm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && ucp_worker_arm(worker_) == UCS_OK;
}

unsigned VerbsWorker::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() ? progress_locked() : 0;
}

unsigned VerbsWorker::progress_locked() {
  unsigned done = ucp_worker_progress(worker_);
  while (!to_send_.empty()) {
    std::unique_ptr<Operation> operation = std::move(to_send_.front());
    to_send_.pop_front();
    send_locked(std::move(operation));
    ++done;
  }
  for (auto endpoint = with_chunks_.begin(); endpoint != with_chunks_.end();) {
    done += send_chunks(*endpoint);
    endpoint = (*endpoint)->outgoing.empty() ? with_chunks_.erase(endpoint) : std::next(endpoint);
  }
  return done;
}

bool VerbsWorker::idle() {
  const std::lock_guard lock(mutex_);
  return in_flight_ == 0 && with_chunks_.empty();
}

// By UCX, inside progress.
void VerbsWorker::on_error(void* argument, ucp_ep_h handle, ucs_status_t status) {
  auto& self = *static_cast<VerbsWorker*>(argument);
  for (const auto& [token, endpoint] : self.endpoints_) {
    if (endpoint->handle == handle && !endpoint->failure) {
      self.report(*endpoint, FailureKind::kLinkDown,
                  fmt::format("the network connection to {} failed: {}", endpoint->peer, ucs_status_string(status)));
    }
  }
}

void VerbsWorker::report(Endpoint& endpoint, FailureKind kind, std::string message) {
  endpoint.link_error = message;
  if (events_.error) {
    events_.error(endpoint.token, {kind, endpoint.peer, std::move(message)});
  }
}

void VerbsWorker::abort(const std::shared_ptr<Endpoint>& endpoint, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (endpoint->failure) {
    return;
  }
  endpoint->failure = failure;
  for (Completion* completion : std::exchange(endpoint->broken, {})) {
    completion->fail(failure);
  }
  abandon_chunks(*endpoint, failure);
  ucp_request_param_t options{};
  options.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  options.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint->handle, &options);
  const Deadline end = in(kTimeToCancel);
  const auto closing = [&] { return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS; };
  while ((closing() || endpoint->in_flight != 0) && Clock::now() < end) {
    progress_locked();
  }
  if (UCS_PTR_IS_PTR(request)) {
    ucp_request_free(request);
  }
  endpoint->handle = nullptr;
}

void VerbsWorker::close(const std::shared_ptr<Endpoint>& endpoint) {
  abort(endpoint, {FailureKind::kPeerClosed, endpoint->peer, "the channel has been closed"});
  const std::lock_guard lock(mutex_);
  with_chunks_.erase(endpoint);
  endpoints_.erase(endpoint->token);
}

Outcome<std::shared_ptr<UcxWorker>> UcxWorker::open(const UcxOptions& options, UcxEvents events) {
  TESSER_TRANSPORT_ASSIGN(UcxContext context, UcxContext::open(options));
  auto worker = std::make_shared<VerbsWorker>(std::move(context), std::move(events));
  TESSER_TRANSPORT_RETURN_IF_FAILED(worker->start());
  return std::shared_ptr<UcxWorker>(std::move(worker));
}

}  // namespace tesser::transport
