// Peers over the network, through UCX. All calls of UCX are made under one lock; its callbacks run inside progress().

#include "transport/ucx_worker.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>

#include <fmt/format.h>

namespace tesser::transport {
namespace {

constexpr unsigned kMessageId = 1;
constexpr std::size_t kLargestJoint = 8 << 10;
// UCX's own shared memory is not used: docs/transport.md says why.
constexpr const char* kAllButSharedMemory = "^sm,self";
constexpr std::chrono::milliseconds kTimeToCancel{500};

static_assert(sizeof(SignalMessage) == 32, "it is the header of the message on the wire");

struct Endpoint {
  ucp_ep_h handle = nullptr;
  std::string peer;
  std::uint64_t token = 0;
  std::optional<Failure> failure;  // once aborted
  std::size_t in_flight = 0;
  std::vector<Completion*> broken;  // of operations that failed before the channel did, whose reason is awaited
};

class Worker;

// One operation of UCX until its callback.
struct Operation {
  Worker* worker = nullptr;
  std::shared_ptr<Endpoint> endpoint;
  Completion* completion = nullptr;
  bool notifies_after = false;  // a flush, after which the message goes
  SignalMessage message;
  std::string payload;
};

class Worker final : public UcxWorker {
 public:
  Worker(UcxEvents events) : events_(std::move(events)) {}
  ~Worker() override;
  Outcome<void> start(const UcxOptions& options);

  std::string address() override;
  Outcome<std::string> register_region(const std::shared_ptr<MemoryRegion>& region) override;
  Outcome<std::unique_ptr<PeerPath>> connect(const std::string& peer, std::uint64_t token,
                                             const std::string& address) override;
  Outcome<std::shared_ptr<const void>> unpack_key(PeerPath& path, const std::string& peer,
                                                  const std::string& key) override;
  int event_descriptor() override { return event_descriptor_; }
  bool arm() override;
  unsigned progress() override;
  bool idle() override;

  void put(const std::shared_ptr<Endpoint>& endpoint, const std::byte* from, const RemoteRegion& to,
           std::uint64_t offset, std::size_t bytes, Completion& completion);
  void get(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& from, std::uint64_t offset, std::byte* to,
           std::size_t bytes, Completion& completion);
  void flush(const std::shared_ptr<Endpoint>& endpoint, Completion& completion, const SignalMessage* then_notify);
  void send(const std::shared_ptr<Endpoint>& endpoint, const SignalMessage& message, const std::byte* payload,
            std::size_t bytes, Completion& completion);
  void put_word(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& signals, std::uint32_t signal,
                std::uint64_t value, Completion& completion);
  void abort(const std::shared_ptr<Endpoint>& endpoint, const Failure& failure);
  void close(const std::shared_ptr<Endpoint>& endpoint);
  std::string lanes(const Endpoint& endpoint);

 private:
  static void on_sent(void* request, ucs_status_t status, void* operation);
  static void on_received(void* request, ucs_status_t status, std::size_t bytes, void* operation);
  static ucs_status_t on_message(void* worker, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* parameters);
  static void on_error(void* endpoint, ucp_ep_h handle, ucs_status_t status);

  std::unique_ptr<Operation> begin(const std::shared_ptr<Endpoint>& endpoint, Completion& completion);
  void submitted(std::unique_ptr<Operation> operation, ucs_status_ptr_t status);
  void ended(std::unique_ptr<Operation> operation, ucs_status_t status);
  void send_locked(std::unique_ptr<Operation> operation);
  unsigned progress_locked();
  static ucp_request_param_t parameters(Operation& operation);

  UcxEvents events_;
  std::mutex mutex_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_descriptor_ = -1;
  struct Registered {
    std::shared_ptr<MemoryRegion> region;
    ucp_mem_h memory = nullptr;
    std::string key;
  };
  std::map<std::uint32_t, Registered> regions_;
  std::map<const Endpoint*, std::weak_ptr<Endpoint>> endpoints_;
  std::deque<std::unique_ptr<Operation>> to_send_;  // notifications whose flush has completed
  std::size_t in_flight_ = 0;
};

class UcxPath final : public PeerPath {
 public:
  UcxPath(std::shared_ptr<Worker> worker, std::shared_ptr<Endpoint> endpoint)
      : worker_(std::move(worker)), endpoint_(std::move(endpoint)) {}
  ~UcxPath() override { worker_->close(endpoint_); }

  std::string name() const override { return "UCX " + worker_->lanes(*endpoint_); }
  Endpoint& endpoint() { return *endpoint_; }

  void write(const std::byte* from, const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
             Completion& completion) override {
    worker_->put(endpoint_, from, to, offset, bytes, completion);
  }
  void read(const RemoteRegion& from, std::uint64_t offset, std::byte* to, std::size_t bytes,
            Completion& completion) override {
    worker_->get(endpoint_, from, offset, to, bytes, completion);
  }
  void flush(Completion& completion) override { worker_->flush(endpoint_, completion, nullptr); }
  void notify(const RemoteRegion& signals, std::uint32_t signal, std::uint64_t value, Notification order,
              Completion& completion) override {
    SignalMessage message;
    message.token = endpoint_->token;
    message.value = value;
    message.signal = signal;
    switch (order) {
      case Notification::kOrdered:
        worker_->flush(endpoint_, completion, &message);
        return;
      case Notification::kTailFlag:
        worker_->put_word(endpoint_, signals, signal, value, completion);
        return;
      case Notification::kAlone:
        worker_->send(endpoint_, message, nullptr, 0, completion);
        return;
    }
  }
  std::size_t largest_joint() const override { return kLargestJoint; }
  void write_and_notify(const std::byte* from, const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
                        std::uint32_t signal, std::uint64_t value, Completion& completion) override {
    SignalMessage message;
    message.token = endpoint_->token;
    message.value = value;
    message.offset = offset;
    message.region = to.handle().region;
    message.signal = signal;
    worker_->send(endpoint_, message, from, bytes, completion);
  }
  void abort(const Failure& failure) override { worker_->abort(endpoint_, failure); }

 private:
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<Endpoint> endpoint_;
};

Worker::~Worker() {
  events_ = {};
  const std::lock_guard lock(mutex_);
  for (auto& [id, registered] : regions_) {
    ucp_mem_unmap(context_, registered.memory);
  }
  if (worker_ != nullptr) {
    ucp_worker_destroy(worker_);
  }
  if (context_ != nullptr) {
    ucp_cleanup(context_);
  }
}

Outcome<void> Worker::start(const UcxOptions& options) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status == UCS_OK && (!options.transports.empty() || std::getenv("UCX_TLS") == nullptr)) {
    status =
        ucp_config_modify(config, "TLS", options.transports.empty() ? kAllButSharedMemory : options.transports.c_str());
  }
  if (status == UCS_OK && !options.devices.empty()) {
    status = ucp_config_modify(config, "NET_DEVICES", options.devices.c_str());
  }
  if (status == UCS_OK) {
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    status = ucp_init(&parameters, config, &context_);
  }
  if (config != nullptr) {
    ucp_config_release(config);
  }
  if (status == UCS_OK) {
    ucp_worker_params_t parameters{};
    parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    status = ucp_worker_create(context_, &parameters, &worker_);
  }
  if (status == UCS_OK) {
    status = ucp_worker_get_efd(worker_, &event_descriptor_);
  }
  if (status == UCS_OK) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = &Worker::on_message;
    handler.arg = this;
    status = ucp_worker_set_am_recv_handler(worker_, &handler);
  }
  if (status != UCS_OK) {
    return failure(
        FailureKind::kUnavailable, "",
        fmt::format("UCX does not start ({}); transports '{}', devices '{}'; ucx_info -d lists what this machine has",
                    ucs_status_string(status), options.transports, options.devices));
  }
  return {};
}

std::string Worker::address() {
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

Outcome<std::string> Worker::register_region(const std::shared_ptr<MemoryRegion>& region) {
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
  ucs_status_t status = ucp_mem_map(context_, &parameters, &registered.memory);
  void* key = nullptr;
  std::size_t bytes = 0;
  if (status == UCS_OK) {
    status = ucp_rkey_pack(context_, registered.memory, &key, &bytes);
    if (status != UCS_OK) {
      ucp_mem_unmap(context_, registered.memory);
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

Outcome<std::unique_ptr<PeerPath>> Worker::connect(const std::string& peer, std::uint64_t token,
                                                   const std::string& address) {
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
    parameters.err_handler.cb = &Worker::on_error;
    parameters.err_handler.arg = this;
    const ucs_status_t status = ucp_ep_create(worker_, &parameters, &endpoint->handle);
    if (status != UCS_OK) {
      return failure(
          FailureKind::kUnreachable, peer,
          fmt::format("UCX finds no way to {}: {}; check that both machines share a network, and UCX_TLS and "
                      "UCX_NET_DEVICES if they are set",
                      peer, ucs_status_string(status)));
    }
    endpoints_[endpoint.get()] = endpoint;
  }
  return std::make_unique<UcxPath>(std::static_pointer_cast<Worker>(shared_from_this()), std::move(endpoint));
}

Outcome<std::shared_ptr<const void>> Worker::unpack_key(PeerPath& path, const std::string& peer,
                                                        const std::string& key) {
  Endpoint& endpoint = static_cast<UcxPath&>(path).endpoint();
  ucp_rkey_h unpacked = nullptr;
  const std::lock_guard lock(mutex_);
  // UCX trusts the key's length to be right.
  if (endpoint.handle == nullptr || key.empty() ||
      ucp_ep_rkey_unpack(endpoint.handle, key.data(), &unpacked) != UCS_OK) {
    return failure(FailureKind::kProtocol, peer,
                   fmt::format("{} publishes a region with a key that UCX cannot use", peer));
  }
  return std::shared_ptr<const void>(unpacked, [worker = shared_from_this()](const void* rkey) {
    const std::lock_guard guard(static_cast<Worker&>(*worker).mutex_);
    ucp_rkey_destroy(static_cast<ucp_rkey_h>(const_cast<void*>(rkey)));
  });
}

bool Worker::arm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && ucp_worker_arm(worker_) == UCS_OK;
}

unsigned Worker::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() ? progress_locked() : 0;
}

unsigned Worker::progress_locked() {
  unsigned done = ucp_worker_progress(worker_);
  while (!to_send_.empty()) {
    std::unique_ptr<Operation> operation = std::move(to_send_.front());
    to_send_.pop_front();
    send_locked(std::move(operation));
    ++done;
  }
  return done;
}

bool Worker::idle() {
  const std::lock_guard lock(mutex_);
  return in_flight_ == 0;
}

std::unique_ptr<Operation> Worker::begin(const std::shared_ptr<Endpoint>& endpoint, Completion& completion) {
  completion.begin();
  if (endpoint->failure) {
    completion.fail(*endpoint->failure);
    return nullptr;
  }
  auto operation = std::make_unique<Operation>();
  operation->worker = this;
  operation->endpoint = endpoint;
  operation->completion = &completion;
  ++endpoint->in_flight;
  ++in_flight_;
  return operation;
}

ucp_request_param_t Worker::parameters(Operation& operation) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.send = &Worker::on_sent;
  parameters.user_data = &operation;
  return parameters;
}

void Worker::submitted(std::unique_ptr<Operation> operation, ucs_status_ptr_t status) {
  if (status == nullptr) {
    ended(std::move(operation), UCS_OK);
  } else if (UCS_PTR_IS_ERR(status)) {
    ended(std::move(operation), UCS_PTR_STATUS(status));
  } else {
    operation.release();  // on_sent() takes it back
  }
}

void Worker::on_sent(void* request, ucs_status_t status, void* data) {
  std::unique_ptr<Operation> operation(static_cast<Operation*>(data));
  Worker* worker = operation->worker;
  ucp_request_free(request);
  worker->ended(std::move(operation), status);
}

// Under the lock, as all callbacks are.
void Worker::ended(std::unique_ptr<Operation> operation, ucs_status_t status) {
  Endpoint& endpoint = *operation->endpoint;
  if (status == UCS_OK && operation->notifies_after && !endpoint.failure) {
    operation->notifies_after = false;
    to_send_.push_back(std::move(operation));  // not from inside a callback
    return;
  }
  --endpoint.in_flight;
  --in_flight_;
  if (status == UCS_OK && !operation->notifies_after) {
    operation->completion->finish();
    return;
  }
  if (endpoint.failure) {
    operation->completion->fail(*endpoint.failure);
    return;
  }
  // The control connection may know more, that the peer is dead for example. abort() ends these with what it says.
  endpoint.broken.push_back(operation->completion);
  if (events_.error) {
    events_.error(endpoint.token,
                  {FailureKind::kLinkDown, endpoint.peer,
                   fmt::format("the network connection to {} failed: {}", endpoint.peer, ucs_status_string(status))});
  }
}

void Worker::put(const std::shared_ptr<Endpoint>& endpoint, const std::byte* from, const RemoteRegion& to,
                 std::uint64_t offset, std::size_t bytes, Completion& completion) {
  if (bytes == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, completion)) {
    const ucp_request_param_t options = parameters(*operation);
    const auto key = static_cast<ucp_rkey_h>(const_cast<void*>(to.key()));
    submitted(std::move(operation), ucp_put_nbx(endpoint->handle, from, bytes, to.address() + offset, key, &options));
  }
}

void Worker::get(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& from, std::uint64_t offset,
                 std::byte* to, std::size_t bytes, Completion& completion) {
  if (bytes == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, completion)) {
    const ucp_request_param_t options = parameters(*operation);
    const auto key = static_cast<ucp_rkey_h>(const_cast<void*>(from.key()));
    submitted(std::move(operation), ucp_get_nbx(endpoint->handle, to, bytes, from.address() + offset, key, &options));
  }
}

void Worker::flush(const std::shared_ptr<Endpoint>& endpoint, Completion& completion,
                   const SignalMessage* then_notify) {
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, completion)) {
    if (then_notify != nullptr) {
      operation->notifies_after = true;
      operation->message = *then_notify;
    }
    const ucp_request_param_t options = parameters(*operation);
    submitted(std::move(operation), ucp_ep_flush_nbx(endpoint->handle, &options));
    progress_locked();  // sends the notification at once when there was nothing to wait for
  }
}

void Worker::send(const std::shared_ptr<Endpoint>& endpoint, const SignalMessage& message, const std::byte* payload,
                  std::size_t bytes, Completion& completion) {
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, completion)) {
    operation->message = message;
    if (bytes != 0) {
      operation->payload.assign(reinterpret_cast<const char*>(payload), bytes);
    }
    send_locked(std::move(operation));
  }
}

void Worker::send_locked(std::unique_ptr<Operation> operation) {
  if (operation->endpoint->failure) {
    ended(std::move(operation), UCS_ERR_CANCELED);
    return;
  }
  ucp_request_param_t options = parameters(*operation);
  options.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  options.flags = UCP_AM_SEND_FLAG_EAGER;
  Operation& sent = *operation;  // header and payload must stay until the callback
  submitted(std::move(operation),
            ucp_am_send_nbx(sent.endpoint->handle, kMessageId, &sent.message, sizeof(sent.message), sent.payload.data(),
                            sent.payload.size(), &options));
}

void Worker::put_word(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& signals, std::uint32_t signal,
                      std::uint64_t value, Completion& completion) {
  const std::lock_guard lock(mutex_);
  if (auto operation = begin(endpoint, completion)) {
    operation->message.value = value;
    const ucp_request_param_t options = parameters(*operation);
    const auto key = static_cast<ucp_rkey_h>(const_cast<void*>(signals.key()));
    Operation& sent = *operation;
    submitted(std::move(operation), ucp_put_nbx(endpoint->handle, &sent.message.value, sizeof(value),
                                                signals.address() + signal, key, &options));
  }
}

ucs_status_t Worker::on_message(void* worker, const void* header, std::size_t header_bytes, void* data,
                                std::size_t bytes, const ucp_am_recv_param_t* parameters) {
  auto& self = *static_cast<Worker*>(worker);
  const bool whole = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;
  if (header_bytes == sizeof(SignalMessage) && whole && self.events_.message) {
    SignalMessage message;
    std::memcpy(&message, header, sizeof(message));
    self.events_.message(message, {static_cast<const char*>(data), bytes});
  }
  return UCS_OK;
}

void Worker::on_error(void* argument, ucp_ep_h handle, ucs_status_t status) {
  auto& self = *static_cast<Worker*>(argument);
  for (const auto& [address, weak] : self.endpoints_) {
    const auto endpoint = weak.lock();
    if (endpoint != nullptr && endpoint->handle == handle && !endpoint->failure && self.events_.error) {
      self.events_.error(endpoint->token, {FailureKind::kLinkDown, endpoint->peer,
                                           fmt::format("the network connection to {} failed: {}", endpoint->peer,
                                                       ucs_status_string(status))});
    }
  }
}

void Worker::abort(const std::shared_ptr<Endpoint>& endpoint, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (endpoint->failure) {
    return;
  }
  endpoint->failure = failure;
  for (Completion* completion : std::exchange(endpoint->broken, {})) {
    completion->fail(failure);
  }
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

void Worker::close(const std::shared_ptr<Endpoint>& endpoint) {
  abort(endpoint, {FailureKind::kPeerClosed, endpoint->peer, "the channel has been closed"});
  const std::lock_guard lock(mutex_);
  endpoints_.erase(endpoint.get());
}

// "tcp/eth0", as ucp_ep_print_info() says it; 1.13 has no other way.
std::string Worker::lanes(const Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  char* text = nullptr;
  std::size_t bytes = 0;
  FILE* stream = ::open_memstream(&text, &bytes);
  if (stream == nullptr) {
    return "";
  }
  ucp_ep_print_info(endpoint.handle, stream);
  std::fclose(stream);
  const std::string info(text, bytes);
  std::free(text);
  std::string lanes;
  for (std::size_t at = info.find("lane["); at != std::string::npos; at = info.find("lane[", at + 1)) {
    // "lane[0]:  2:tcp/eth0.0 md[1]  ..."
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

}  // namespace

Outcome<std::shared_ptr<UcxWorker>> UcxWorker::open(const UcxOptions& options, UcxEvents events) {
  auto worker = std::make_shared<Worker>(std::move(events));
  TESSER_TRANSPORT_RETURN_IF_FAILED(worker->start(options));
  return std::shared_ptr<UcxWorker>(std::move(worker));
}

}  // namespace tesser::transport
