// The paths of channels over UCX: one for lanes whose adapter reaches the peer's memory, one for those that only carry
// messages.

#include <utility>

#include "transport/peer_path.h"
#include "transport/ucx_verbs_worker.h"

namespace tesser::transport {
namespace {

class UcxPath : public PeerPath {
 public:
  UcxPath(std::shared_ptr<VerbsWorker> worker, std::shared_ptr<Endpoint> endpoint)
      : worker_(std::move(worker)), endpoint_(std::move(endpoint)) {}
  ~UcxPath() override { worker_->close(endpoint_); }

  Endpoint& endpoint() { return *endpoint_; }

  std::size_t largest_joint() const override { return kLargestPayload; }
  void write_and_notify(const std::byte* from, const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
                        std::uint32_t signal, std::uint64_t value, Completion& completion) override {
    MessageHeader message = signal_message(signal, value);
    message.offset = offset;
    message.region = to.handle().region;
    worker_->send(endpoint_, message, from, bytes, completion);
  }
  void abort(const Failure& failure) override { worker_->abort(endpoint_, failure); }

 protected:
  MessageHeader signal_message(std::uint32_t signal, std::uint64_t value) const {
    MessageHeader message;
    message.token = endpoint_->token;
    message.value = value;
    message.signal = signal;
    return message;
  }

  const std::shared_ptr<VerbsWorker> worker_;
  const std::shared_ptr<Endpoint> endpoint_;
};

class RemoteAccessPath final : public UcxPath {
 public:
  using UcxPath::UcxPath;

  std::string name() const override { return "UCX " + endpoint_->lanes; }
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
    const MessageHeader message = signal_message(signal, value);
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
};

class MessagePath final : public UcxPath {
 public:
  using UcxPath::UcxPath;

  std::string name() const override {
    return "UCX " + endpoint_->lanes + " (in messages: this transport has no remote memory access)";
  }
  void write(const std::byte* from, const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
             Completion& completion) override {
    worker_->write_in_chunks(endpoint_, from, to, offset, bytes, completion);
  }
  void read(const RemoteRegion& from, std::uint64_t offset, std::byte* to, std::size_t bytes,
            Completion& completion) override {
    worker_->read_in_chunks(endpoint_, from, offset, to, bytes, completion);
  }
  void flush(Completion& completion) override { worker_->flush_chunks(endpoint_, completion); }
  // A tail flag needs a fabric that places writes in order; here it is a notification as any other.
  void notify(const RemoteRegion&, std::uint32_t signal, std::uint64_t value, Notification order,
              Completion& completion) override {
    const MessageHeader message = signal_message(signal, value);
    if (order == Notification::kAlone) {
      worker_->send(endpoint_, message, nullptr, 0, completion);
    } else {
      worker_->signal_after_chunks(endpoint_, message, completion);
    }
  }
};

}  // namespace

std::unique_ptr<PeerPath> make_ucx_path(std::shared_ptr<VerbsWorker> worker, std::shared_ptr<Endpoint> endpoint) {
  if (endpoint->has_remote_access) {
    return std::make_unique<RemoteAccessPath>(std::move(worker), std::move(endpoint));
  }
  return std::make_unique<MessagePath>(std::move(worker), std::move(endpoint));
}

Endpoint& endpoint_of(PeerPath& path) { return static_cast<UcxPath&>(path).endpoint(); }

}  // namespace tesser::transport
