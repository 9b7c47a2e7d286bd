// grpc_transfer [--exchange] MILLISECONDS BYTES...: gRPC's part of ./x bench transfer. Prints a line of JSON a size.
//
// Tensors go as messages of raw bytes on one stream between two processes over TCP, without TLS and without a limit of
// size. What users do for speed is done: one thread with a completion queue in each process, which spins before it
// sleeps, no protocol buffers around the bytes, the tensor itself as the slice that is sent, one copy from gRPC's
// slices to the tensor that is received. Larger frames, read chunks, look-ahead and zero-copy sends were tried: none
// was clearly faster. The rounds are those of tesser's transfers (transport/measured_rounds.h).
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <grpc/support/time.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "transport/measured_processes.h"
#include "transport/measured_rounds.h"

namespace {

using tesser::transport::Failure;
using tesser::transport::FailureKind;
using tesser::transport::Measurement;
using tesser::transport::Outcome;
using tesser::transport::RoundOptions;
using tesser::transport::TensorCarrier;

struct Arguments {
  bool exchange = false;
  RoundOptions rounds;
  std::vector<std::uint64_t> sizes;
};

// What a completed operation was; its address is the operation's tag.
enum Tag : std::uint8_t { kStarted, kRead, kWritten, kFinished };
Tag tags[] = {kStarted, kRead, kWritten, kFinished};

// A stream of messages, the same for client and server. Messages leave and arrive in order.
class Stream {
 public:
  Stream(grpc::CompletionQueue& queue, std::function<void(grpc::ByteBuffer*, void*)> read,
         std::function<void(const grpc::ByteBuffer&, void*)> write)
      : queue_(queue), read_(std::move(read)), write_(std::move(write)) {
    read_(&arriving_, &tags[kRead]);
  }

  // The memory must not change until all_written().
  void send(std::span<const std::byte> tensor) {
    const grpc::Slice slice(tensor.data(), tensor.size(), grpc::Slice::STATIC_SLICE);
    unwritten_.emplace_back(&slice, 1);
    if (unwritten_.size() == 1) {
      write_(unwritten_.front(), &tags[kWritten]);
    }
  }
  bool all_written() const { return unwritten_.empty(); }

  bool has_message() const { return !arrived_.empty(); }
  // Copies the next message to the tensor; false when it has another size.
  bool take_message(std::span<std::byte> tensor) {
    const grpc::ByteBuffer message = std::move(arrived_.front());
    arrived_.pop_front();
    slices_.clear();
    if (message.Length() != tensor.size() || !message.Dump(&slices_).ok()) {
      return false;
    }
    for (const grpc::Slice& slice : slices_) {
      std::memcpy(tensor.data(), slice.begin(), slice.size());
      tensor = tensor.subspan(slice.size());
    }
    return true;
  }

  // Waits for one operation to end; false when the stream is over.
  bool progress() {
    void* tag = nullptr;
    bool ok = false;
    if (!next(&tag, &ok) || !ok) {
      return false;
    }
    switch (*static_cast<Tag*>(tag)) {
      case kRead:
        arrived_.push_back(std::move(arriving_));
        arriving_.Clear();
        read_(&arriving_, &tags[kRead]);
        return true;
      case kWritten:
        unwritten_.pop_front();
        if (!unwritten_.empty()) {
          write_(unwritten_.front(), &tags[kWritten]);
        }
        return true;
      default:
        return false;
    }
  }

 private:
  // Spins as long as a tesser device does by default, and then sleeps.
  bool next(void** tag, bool* ok) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    do {
      const auto status = queue_.AsyncNext(tag, ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
      if (status != grpc::CompletionQueue::TIMEOUT) {
        return status == grpc::CompletionQueue::GOT_EVENT;
      }
    } while (std::chrono::steady_clock::now() < end);
    return queue_.Next(tag, ok);
  }

  grpc::CompletionQueue& queue_;
  std::function<void(grpc::ByteBuffer*, void*)> read_;
  std::function<void(const grpc::ByteBuffer&, void*)> write_;
  grpc::ByteBuffer arriving_;
  std::deque<grpc::ByteBuffer> arrived_;
  std::deque<grpc::ByteBuffer> unwritten_;  // the first one is being written
  std::vector<grpc::Slice> slices_;
};

// Memory as a tesser device has it: huge pages where the kernel grants them.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      std::perror("no memory for the tensors");
      std::exit(1);
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::munmap(data_, bytes_); }

  std::span<std::byte> span() const { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  std::size_t bytes_;
  void* data_;
};

// One message a tensor, in the order of the set.
class MessageSet final : public TensorCarrier {
 public:
  MessageSet(Stream& stream, const std::vector<std::uint64_t>& tensors)
      : stream_(stream), source_(bytes_of(tensors)), target_(bytes_of(tensors)) {
    for (std::uint64_t offset = 0; const std::uint64_t bytes : tensors) {
      outgoing_.push_back(source_.span().subspan(offset, bytes));
      targets_.push_back(target_.span().subspan(offset, bytes));
      incoming_.emplace_back(targets_.back());
      offset += aligned(bytes);
    }
  }

  const std::vector<std::span<std::byte>>& outgoing() const override { return outgoing_; }
  const std::vector<std::span<const std::byte>>& incoming() const override { return incoming_; }

  Outcome<void> send() override {
    for (const std::span<std::byte> tensor : outgoing_) {
      stream_.send(tensor);
    }
    return {};
  }
  Outcome<void> settle() override {
    return wait([this] { return stream_.all_written(); });
  }
  Outcome<void> receive() override {
    for (const std::span<std::byte> tensor : targets_) {
      TESSER_TRANSPORT_RETURN_IF_FAILED(wait([this] { return stream_.has_message(); }));
      if (!stream_.take_message(tensor)) {
        return failed("a message has another size than its tensor");
      }
    }
    return {};
  }
  Outcome<void> release() override { return {}; }

 private:
  static std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }
  static std::uint64_t bytes_of(const std::vector<std::uint64_t>& tensors) {
    return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                           [](std::uint64_t sum, std::uint64_t bytes) { return sum + aligned(bytes); });
  }
  static tl::unexpected<Failure> failed(std::string message) {
    return tesser::transport::failure(FailureKind::kProtocol, "gRPC", std::move(message));
  }

  template <typename Condition>
  Outcome<void> wait(const Condition& condition) {
    while (!condition()) {
      if (!stream_.progress()) {
        return failed("the stream has ended");
      }
    }
    return {};
  }

  Stream& stream_;
  Memory source_;
  Memory target_;
  std::vector<std::span<std::byte>> outgoing_;
  std::vector<std::span<std::byte>> targets_;
  std::vector<std::span<const std::byte>> incoming_;
};

Outcome<void> measure(Stream& stream, bool first, const Arguments& arguments) {
  if (arguments.exchange) {
    MessageSet tensors(stream, arguments.sizes);
    MessageSet turn(stream, {sizeof(std::uint64_t)});
    if (!first) {
      return follow_exchange(tensors, turn);
    }
    TESSER_TRANSPORT_ASSIGN(const Measurement row, lead_exchange(tensors, turn, "grpc", arguments.rounds));
    std::puts(json_line(row).c_str());
    return {};
  }
  for (const std::uint64_t bytes : arguments.sizes) {
    MessageSet tensor(stream, {bytes});
    if (!first) {
      TESSER_TRANSPORT_RETURN_IF_FAILED(follow_there_and_back(tensor));
      continue;
    }
    TESSER_TRANSPORT_ASSIGN(const Measurement row, lead_there_and_back(tensor, "grpc", arguments.rounds));
    std::puts(json_line(row).c_str());
  }
  return {};
}

int exit_code(const Outcome<void>& outcome) {
  if (!outcome) {
    std::fprintf(stderr, "grpc_transfer: %s\n", outcome.error().message.c_str());
  }
  return outcome ? 0 : 1;
}

void drain(grpc::CompletionQueue& queue) {
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
}

int serve(const Arguments& arguments, const tesser::transport::TellAddress& tell) {
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterAsyncGenericService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fputs("grpc_transfer: no port to listen at\n", stderr);
    return 1;
  }
  tell("127.0.0.1:" + std::to_string(port));

  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter call(&context);
  service.RequestCall(&context, &call, queue.get(), queue.get(), &tags[kStarted]);
  void* tag = nullptr;
  bool ok = false;
  if (!queue->Next(&tag, &ok) || !ok) {
    std::fputs("grpc_transfer: the other process did not call\n", stderr);
    return 1;
  }
  int code = 0;
  {
    Stream stream(
        *queue, [&](grpc::ByteBuffer* to, void* tag) { call.Read(to, tag); },
        [&](const grpc::ByteBuffer& from, void* tag) { call.Write(from, tag); });
    code = exit_code(measure(stream, true, arguments));
    call.Finish(grpc::Status::OK, &tags[kFinished]);
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    drain(*queue);
  }
  return code;
}

int call(const Arguments& arguments, const std::string& address) {
  grpc::ChannelArguments channel_arguments;
  channel_arguments.SetMaxReceiveMessageSize(-1);
  channel_arguments.SetMaxSendMessageSize(-1);
  grpc::GenericStub stub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), channel_arguments));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call =
      stub.PrepareCall(&context, "/tesser.bench/Transfer", &queue);
  call->StartCall(&tags[kStarted]);
  void* tag = nullptr;
  bool ok = false;
  if (!queue.Next(&tag, &ok) || !ok) {
    std::fprintf(stderr, "grpc_transfer: no connection to %s\n", address.c_str());
    return 1;
  }
  Stream stream(
      queue, [&](grpc::ByteBuffer* to, void* tag) { call->Read(to, tag); },
      [&](const grpc::ByteBuffer& from, void* tag) { call->Write(from, tag); });
  const int code = exit_code(measure(stream, false, arguments));
  context.TryCancel();
  drain(queue);
  return code;
}

bool parse(int count, char** words, Arguments& arguments) {
  std::vector<std::uint64_t> numbers;
  for (int i = 1; i < count; ++i) {
    if (std::string_view(words[i]) == "--exchange") {
      arguments.exchange = true;
      continue;
    }
    char* end = nullptr;
    numbers.push_back(std::strtoull(words[i], &end, 10));
    if (*end != '\0' || numbers.back() == 0) {
      return false;
    }
  }
  if (numbers.size() < 2) {
    return false;
  }
  arguments.rounds.time = std::chrono::milliseconds(numbers.front());
  arguments.sizes.assign(numbers.begin() + 1, numbers.end());
  for (const std::uint64_t bytes : arguments.sizes) {
    if (bytes < sizeof(std::uint64_t)) {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  Arguments arguments;
  if (!parse(count, words, arguments)) {
    std::fputs("usage: grpc_transfer [--exchange] MILLISECONDS BYTES..., with 8 bytes or more\n", stderr);
    return 2;
  }
  return tesser::transport::run_two_processes(
      [&](const tesser::transport::TellAddress& tell) { return serve(arguments, tell); },
      [&](const std::string& address) { return call(arguments, address); });
}
