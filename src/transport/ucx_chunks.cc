// One-sided operations over lanes that have none (ud): writes go out in chunks that the peer's progress places, reads
// are requests that are answered with chunks. docs/transport.md has the argument why a notification never overtakes
// its data: it says how many chunks it comes after, and the receiver holds it until those are placed.

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "transport/ucx_verbs_worker.h"

namespace tesser::transport {
namespace {

// Chunks handed to UCX at a time; the rest waits here, so that credits and other channels are not behind all of it.
constexpr std::size_t kMostChunksInFlight = 32;

std::uint64_t chunks_of(std::size_t bytes) { return (bytes + kLargestPayload - 1) / kLargestPayload; }

// Takes as many operations as it has chunks. Whether the endpoint can be used.
bool begin_chunks(const Endpoint& endpoint, std::size_t bytes, Completion& completion) {
  for (std::uint64_t i = 0; i < chunks_of(bytes); ++i) {
    completion.begin();
    if (endpoint.failure) {
      completion.fail(*endpoint.failure);
      return false;
    }
  }
  return true;
}

}  // namespace

void VerbsWorker::write_in_chunks(const std::shared_ptr<Endpoint>& endpoint, const std::byte* from,
                                  const RemoteRegion& to, std::uint64_t offset, std::size_t bytes,
                                  Completion& completion) {
  if (bytes == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!begin_chunks(*endpoint, bytes, completion)) {
    return;
  }
  ChunkedTransfer transfer;
  transfer.next.token = endpoint->token;
  transfer.next.kind = MessageKind::kChunk;
  transfer.next.region = to.handle().region;
  transfer.next.offset = offset;
  transfer.next.number = endpoint->chunks_begun + 1;
  transfer.from = from;
  transfer.bytes = bytes;
  transfer.completion = &completion;
  endpoint->chunks_begun += chunks_of(bytes);
  endpoint->outgoing.push_back(std::move(transfer));
  with_chunks_.insert(endpoint);
  send_chunks(endpoint);
}

void VerbsWorker::read_in_chunks(const std::shared_ptr<Endpoint>& endpoint, const RemoteRegion& from,
                                 std::uint64_t offset, std::byte* to, std::size_t bytes, Completion& completion) {
  if (bytes == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  completion.begin();
  if (endpoint->failure) {
    completion.fail(*endpoint->failure);
    return;
  }
  MessageHeader request;
  request.token = endpoint->token;
  request.kind = MessageKind::kRead;
  request.region = from.handle().region;
  request.offset = offset;
  request.number = ++endpoint->requests;
  request.value = bytes;
  endpoint->reads[request.number] = {to, bytes, bytes, &completion};
  send_soon(endpoint, request, nullptr);
  progress_locked();
}

void VerbsWorker::flush_chunks(const std::shared_ptr<Endpoint>& endpoint, Completion& completion) {
  const std::lock_guard lock(mutex_);
  completion.begin();
  if (endpoint->failure) {
    completion.fail(*endpoint->failure);
    return;
  }
  MessageHeader request;
  request.token = endpoint->token;
  request.kind = MessageKind::kFlush;
  request.number = endpoint->chunks_begun;
  request.value = ++endpoint->requests;
  endpoint->flushes[request.value] = &completion;
  send_soon(endpoint, request, nullptr);
  progress_locked();
}

void VerbsWorker::signal_after_chunks(const std::shared_ptr<Endpoint>& endpoint, MessageHeader message,
                                      Completion& completion) {
  const std::lock_guard lock(mutex_);
  message.number = endpoint->chunks_begun;
  if (auto operation = begin(endpoint, &completion)) {
    operation->message = message;
    send_locked(std::move(operation));
  }
}

void VerbsWorker::send_soon(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message,
                            Completion* completion) {
  if (auto operation = begin(endpoint, completion)) {
    operation->message = message;
    to_send_.push_back(std::move(operation));
  }
}

unsigned VerbsWorker::send_chunks(const std::shared_ptr<Endpoint>& endpoint) {
  unsigned sent = 0;
  while (!endpoint->outgoing.empty() && endpoint->chunks_in_flight < kMostChunksInFlight && !endpoint->failure &&
         endpoint->broken.empty()) {
    ChunkedTransfer& transfer = endpoint->outgoing.front();
    auto operation = std::make_unique<Operation>();
    operation->worker = this;
    operation->endpoint = endpoint;
    operation->completion = transfer.completion;  // begun already
    operation->is_chunk = true;
    operation->message = transfer.next;
    operation->from = transfer.from;
    operation->bytes = std::min(transfer.bytes, kLargestPayload);
    operation->owner = transfer.owner;
    ++endpoint->in_flight;
    ++endpoint->chunks_in_flight;
    ++in_flight_;
    transfer.from += operation->bytes;
    transfer.bytes -= operation->bytes;
    transfer.next.offset += operation->bytes;
    transfer.next.number += transfer.next.kind == MessageKind::kChunk ? 1 : 0;
    if (transfer.bytes == 0) {
      endpoint->outgoing.pop_front();
    }
    send_locked(std::move(operation));
    ++sent;
  }
  return sent;
}

std::shared_ptr<MemoryRegion> VerbsWorker::region_with(std::uint32_t id, std::uint64_t offset,
                                                       std::uint64_t bytes) const {
  const auto found = regions_.find(id);
  if (found == regions_.end() || offset > found->second.region->bytes() ||
      bytes > found->second.region->bytes() - offset) {
    return nullptr;
  }
  return found->second.region;
}

void VerbsWorker::take(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message,
                       std::string_view payload) {
  switch (message.kind) {
    case MessageKind::kChunk:
      take_chunk(endpoint, message, payload);
      return;
    case MessageKind::kSignal:
    case MessageKind::kFlush:
      if (message.number > endpoint->placed) {
        endpoint->held.push_back(message);  // without payload: only kAlone carries one
      } else {
        act(endpoint, message, payload);
      }
      return;
    case MessageKind::kRead:
      take_read(endpoint, message);
      return;
    case MessageKind::kReadChunk:
      take_read_chunk(endpoint, message, payload);
      return;
    case MessageKind::kFlushed:
      if (const auto found = endpoint->flushes.find(message.value); found != endpoint->flushes.end()) {
        found->second->finish();
        endpoint->flushes.erase(found);
      }
      return;
  }
  report(*endpoint, FailureKind::kProtocol, fmt::format("{} sent a message that cannot be right", endpoint->peer));
}

// A signal or flush whose chunks are all placed.
void VerbsWorker::act(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message,
                      std::string_view payload) {
  if (message.kind == MessageKind::kFlush) {
    MessageHeader answer;
    answer.token = message.token;
    answer.kind = MessageKind::kFlushed;
    answer.value = message.value;
    send_soon(endpoint, answer, nullptr);
  } else if (events_.message) {
    events_.message({message.token, message.value, message.offset, message.region, message.signal}, payload);
  }
}

void VerbsWorker::take_chunk(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message,
                             std::string_view payload) {
  const auto region = region_with(message.region, message.offset, payload.size());
  if (region == nullptr || message.number <= endpoint->placed) {
    report(*endpoint, FailureKind::kProtocol,
           fmt::format("{} writes twice, or outside the memory that was shown to it", endpoint->peer));
    return;
  }
  std::memcpy(region->data() + message.offset, payload.data(), payload.size());
  endpoint->placed_early.insert(message.number);
  while (!endpoint->placed_early.empty() && *endpoint->placed_early.begin() == endpoint->placed + 1) {
    ++endpoint->placed;
    endpoint->placed_early.erase(endpoint->placed_early.begin());
  }
  const auto waits = [&](const MessageHeader& held) { return held.number > endpoint->placed; };
  const auto due = std::stable_partition(endpoint->held.begin(), endpoint->held.end(), waits);
  for (auto held = due; held != endpoint->held.end(); ++held) {
    act(endpoint, *held, {});
  }
  endpoint->held.erase(due, endpoint->held.end());
}

void VerbsWorker::take_read(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message) {
  const auto region = region_with(message.region, message.offset, message.value);
  if (region == nullptr) {
    report(*endpoint, FailureKind::kProtocol,
           fmt::format("{} reads outside the memory that was shown to it", endpoint->peer));
    return;
  }
  if (message.value == 0 || !begin_chunks(*endpoint, message.value, endpoint->serving)) {
    return;
  }
  ChunkedTransfer answer;
  answer.next.token = endpoint->token;
  answer.next.kind = MessageKind::kReadChunk;
  answer.next.number = message.number;
  answer.from = region->data() + message.offset;
  answer.bytes = message.value;
  answer.owner = region;
  answer.completion = &endpoint->serving;
  endpoint->outgoing.push_back(std::move(answer));
  with_chunks_.insert(endpoint);  // sent by progress_locked()
}

void VerbsWorker::take_read_chunk(const std::shared_ptr<Endpoint>& endpoint, const MessageHeader& message,
                                  std::string_view payload) {
  const auto found = endpoint->reads.find(message.number);
  if (found == endpoint->reads.end()) {
    return;
  }
  ChunkedRead& read = found->second;
  if (payload.size() > read.missing || message.offset > read.bytes || payload.size() > read.bytes - message.offset) {
    report(*endpoint, FailureKind::kProtocol, fmt::format("{} answers more than was asked for", endpoint->peer));
    return;
  }
  std::memcpy(read.to + message.offset, payload.data(), payload.size());
  read.missing -= payload.size();
  if (read.missing == 0) {
    read.completion->finish();
    endpoint->reads.erase(found);
  }
}

// What is not in UCX's hands; the rest ends by itself.
void VerbsWorker::abandon_chunks(Endpoint& endpoint, const Failure& failure) {
  for (const ChunkedTransfer& transfer : std::exchange(endpoint.outgoing, {})) {
    for (std::uint64_t i = 0; i < chunks_of(transfer.bytes); ++i) {
      transfer.completion->fail(failure);
    }
  }
  for (const auto& [number, read] : std::exchange(endpoint.reads, {})) {
    read.completion->fail(failure);
  }
  for (const auto& [number, completion] : std::exchange(endpoint.flushes, {})) {
    completion->fail(failure);
  }
  endpoint.held.clear();
}

}  // namespace tesser::transport
