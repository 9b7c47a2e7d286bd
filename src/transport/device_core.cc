#include "transport/device_core.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <utility>

#include <linux/futex.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transport/handshake.h"
#include "transport/service.h"

namespace tesser::transport {
namespace {

std::mutex registry_mutex;

std::map<std::uint64_t, std::weak_ptr<DeviceCore>>& registry() {
  // Never destroyed: a hub's thread may end a job's device while the process ends.
  static auto& devices = *new std::map<std::uint64_t, std::weak_ptr<DeviceCore>>;
  return devices;
}

std::string read_boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

std::uint64_t random_nonce() {
  std::uint64_t nonce = 0;
  while (nonce == 0) {
    [[maybe_unused]] const auto got = ::getrandom(&nonce, sizeof(nonce), 0);
  }
  return nonce;
}

Outcome<std::shared_ptr<DeviceCore>> DeviceCore::open(DeviceOptions options) {
  if (options.name.empty() || options.name.size() > 200) {
    return failure(FailureKind::kInvalidArgument, "", "a device's name has 1 to 200 characters");
  }
  if (!SignalArea::is_good_size(options.signal_bytes)) {
    return failure(FailureKind::kInvalidArgument, "",
                   fmt::format("device '{}': signal_bytes is {}; a signal area has {} to {}", options.name,
                               options.signal_bytes, SignalArea::kLeastBytes, SignalArea::kMostBytes));
  }
  const std::uint64_t nonce = random_nonce();
  TESSER_TRANSPORT_ASSIGN(const HostPort place, parse_host_port(options.listen));
  TESSER_TRANSPORT_ASSIGN(Listener listener, listen_tcp(place));
  TESSER_TRANSPORT_ASSIGN(MemoryRegion signals, MemoryRegion::map(nonce, 0, options.signal_bytes, {.name = "signals"}));
  std::shared_ptr<DeviceCore> core(
      new DeviceCore(std::move(options), nonce, std::make_shared<MemoryRegion>(std::move(signals))));
  TESSER_TRANSPORT_ASSIGN(Descriptor unix_socket, listen_unix(core->unix_name_));
  core->service_ = std::make_unique<Service>(*core, std::move(listener), std::move(unix_socket));
  {
    const std::lock_guard lock(registry_mutex);
    registry()[nonce] = core;
  }
  TESSER_TRANSPORT_RETURN_IF_FAILED(core->tcp_.open());
  TESSER_TRANSPORT_RETURN_IF_FAILED(core->service_->start());
  return core;
}

DeviceCore::DeviceCore(DeviceOptions options, std::uint64_t nonce, std::shared_ptr<MemoryRegion> signals)
    : options_(std::move(options)),
      nonce_(nonce),
      boot_id_(read_boot_id()),
      unix_name_(fmt::format("tesser-{:016x}", nonce)),
      signals_(std::move(signals)) {
  regions_.emplace(0, signals_.region());
}

DeviceCore::~DeviceCore() {
  stop();
  const std::lock_guard lock(registry_mutex);
  registry().erase(nonce_);
}

void DeviceCore::stop() {
  if (service_ != nullptr) {
    service_->stop();
  }
  const std::lock_guard lock(mutex_);
  accepted_.clear();
}

std::string DeviceCore::address() const {
  HostPort place = service_->address();
  if (!options_.advertise.empty()) {
    place.host = options_.advertise;
  } else if (place.host == "0.0.0.0" || place.host == "::") {
    char name[HOST_NAME_MAX + 1] = "";
    ::gethostname(name, sizeof(name) - 1);
    place.host = name;
  }
  const bool brackets = place.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}/{:016x}", brackets ? "[" : "", place.host, brackets ? "]" : "", place.port, nonce_);
}

std::shared_ptr<DeviceCore> DeviceCore::find_in_process(std::uint64_t nonce) {
  const std::lock_guard lock(registry_mutex);
  const auto found = registry().find(nonce);
  return found == registry().end() ? nullptr : found->second.lock();
}

Outcome<std::shared_ptr<MemoryRegion>> DeviceCore::allocate(std::size_t bytes, const RegionOptions& options) {
  const std::uint32_t id = next_region_.fetch_add(1);
  TESSER_TRANSPORT_ASSIGN(MemoryRegion mapped, MemoryRegion::map(nonce_, id, bytes, options));
  auto region = std::make_shared<MemoryRegion>(std::move(mapped));
  const std::lock_guard setup(setup_mutex_);
  if (const auto worker = ucx()) {
    TESSER_TRANSPORT_RETURN_IF_FAILED(worker->register_region(region));
  }
  {
    const std::lock_guard lock(mutex_);
    regions_.emplace(id, region);
  }
  for (const std::shared_ptr<Channel>& channel : channels()) {
    channel->publish_region(*region);
  }
  return region;
}

std::shared_ptr<MemoryRegion> DeviceCore::region(std::uint32_t id) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<MemoryRegion>> DeviceCore::regions() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<MemoryRegion>> regions;
  for (const auto& [id, region] : regions_) {
    regions.push_back(region);
  }
  return regions;
}

Outcome<std::shared_ptr<UcxWorker>> DeviceCore::open_ucx() {
  const std::lock_guard setup(setup_mutex_);
  if (auto worker = ucx()) {
    return worker;
  }
  UcxEvents events;
  events.message = [this](const SignalMessage& message, std::string_view payload) { take_message(message, payload); };
  events.error = [this](std::uint64_t token, Failure failure) {
    if (auto channel = channel_of_token(token)) {
      fail_channel(std::move(channel), std::move(failure), true);
    }
  };
  TESSER_TRANSPORT_ASSIGN(std::shared_ptr<UcxWorker> worker,
                          UcxWorker::open({options_.ucx_transports, options_.ucx_devices}, std::move(events)));
  for (const std::shared_ptr<MemoryRegion>& region : regions()) {
    TESSER_TRANSPORT_RETURN_IF_FAILED(worker->register_region(region));
  }
  {
    const std::lock_guard lock(mutex_);
    ucx_ = worker;
  }
  ucx_for_progress_.store(worker.get());
  service_->wake();
  return worker;
}

std::shared_ptr<UcxWorker> DeviceCore::ucx() const {
  const std::lock_guard lock(mutex_);
  return ucx_;
}

void DeviceCore::add_channel(const std::shared_ptr<Channel>& channel, const std::shared_ptr<TcpLink>& link,
                             bool accepted) {
  const std::lock_guard setup(setup_mutex_);
  for (const std::shared_ptr<MemoryRegion>& region : regions()) {
    if (region->handle().region != 0) {
      channel->publish_region(*region);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    channels_.push_back(channel);
    if (accepted) {
      accepted_.push_back(channel);
    }
    if (link != nullptr) {
      tcp_.add(link);
    }
  }
  if (link != nullptr) {
    link->watch(tcp_.event_descriptor());
  }
  service_->wake();
  signals_.ring();
}

void DeviceCore::remove_channel(const Channel& channel) {
  const std::lock_guard lock(mutex_);
  std::erase_if(channels_, [&](const auto& entry) { return entry.get() == &channel; });
  tcp_.remove(channel.token());
}

std::vector<std::shared_ptr<Channel>> DeviceCore::channels() const {
  const std::lock_guard lock(mutex_);
  return channels_;
}

std::shared_ptr<Channel> DeviceCore::channel_of_token(std::uint64_t token) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(channels_.begin(), channels_.end(), [&](const auto& entry) { return entry->token() == token; });
  return found == channels_.end() ? nullptr : *found;
}

Outcome<std::shared_ptr<Channel>> DeviceCore::accept(Deadline deadline) {
  std::shared_ptr<Channel> channel;
  const auto take = [&] {
    const std::lock_guard lock(mutex_);
    if (accepted_.empty()) {
      return false;
    }
    channel = std::move(accepted_.front());
    accepted_.pop_front();
    return true;
  };
  if (!wait(take, deadline)) {
    return failure(FailureKind::kTimeout, "", fmt::format("no peer has connected to {} in time", options_.name));
  }
  return channel;
}

void DeviceCore::expect_attachments(std::uint64_t token) {
  const std::lock_guard lock(attach_mutex_);
  expected_attachments_.insert(token);
}

void DeviceCore::forget_attachments(std::uint64_t token) {
  const std::lock_guard lock(attach_mutex_);
  expected_attachments_.erase(token);
  attachments_.erase({token, Attachment::kUnix});
  attachments_.erase({token, Attachment::kTcp});
}

void DeviceCore::attach(std::uint64_t token, Attachment kind, Descriptor socket) {
  {
    const std::lock_guard lock(attach_mutex_);
    if (expected_attachments_.count(token) == 0) {
      return;
    }
    attachments_.insert_or_assign({token, kind}, std::move(socket));
  }
  attached_.notify_all();
}

Outcome<Descriptor> DeviceCore::take_attached(std::uint64_t token, Attachment kind, const std::string& peer,
                                              Deadline deadline) {
  std::unique_lock lock(attach_mutex_);
  if (!attached_.wait_until(lock, deadline, [&] { return attachments_.count({token, kind}) != 0; })) {
    return failure(FailureKind::kTimeout, peer,
                   fmt::format("{} did not make its second connection, {}, in time", peer,
                               kind == Attachment::kUnix ? "to the Unix socket" : "for data"));
  }
  const auto found = attachments_.find({token, kind});
  Descriptor socket = std::move(found->second);
  attachments_.erase(found);
  return socket;
}

void DeviceCore::fail_channel(std::shared_ptr<Channel> channel, Failure failure, bool tell_peer) {
  service_->post([this, channel = std::move(channel), failure = std::move(failure), tell_peer] {
    service_->fail(channel, failure, tell_peer);
  });
}

bool DeviceCore::spin(const std::function<bool()>& ready, Deadline deadline) {
  constexpr int kLooksBetweenClockReads = 32;
  constexpr int kLooksBetweenProgress = 4;
  const bool progresses = has_network();
  Deadline end = Clock::now() + options_.spin;
  while (true) {
    for (int i = 0; i < (progresses ? kLooksBetweenProgress : kLooksBetweenClockReads); ++i) {
      if (ready()) {
        return true;
      }
      pause();
    }
    const bool moved = progress() != 0;
    const Deadline now = Clock::now();
    if (moved) {
      end = now + options_.spin;  // this thread moves the bytes it waits for faster than it could hand them over
    }
    if (now >= std::min(end, deadline)) {
      return false;
    }
  }
}

bool DeviceCore::wait(const std::function<bool()>& ready, Deadline deadline) {
  Doorbell& doorbell = signals_.doorbell();
  std::atomic_ref<std::uint32_t> sleepers(doorbell.sleepers);
  std::atomic_ref<std::uint32_t> word(doorbell.word);
  while (true) {
    spinners_.fetch_add(1);
    const bool found = spin(ready, deadline);
    spinners_.fetch_sub(1);
    if (found) {
      return true;
    }
    if (has_network() && !anybody_spins()) {
      service_->wake();  // it progresses from here on
    }
    const Deadline now = Clock::now();
    if (now >= deadline) {
      return false;
    }
    auto sleep = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - now);
    if (unsignalled_.load(std::memory_order_relaxed) != 0) {
      sleep = std::min<std::chrono::nanoseconds>(sleep, std::chrono::milliseconds(1));
    }
    const timespec timeout{static_cast<time_t>(sleep.count() / 1'000'000'000),
                           static_cast<long>(sleep.count() % 1'000'000'000)};
    // The order of these three is the argument of docs/transport.md against lost wake-ups.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = word.load(std::memory_order_seq_cst);
    const bool ready_now = ready();
    if (!ready_now) {
      ::syscall(SYS_futex, &doorbell.word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
    }
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (ready_now || ready()) {
      return true;
    }
  }
}

unsigned DeviceCore::progress() {
  UcxWorker* ucx = ucx_for_progress_.load(std::memory_order_acquire);
  const unsigned done = (ucx == nullptr ? 0 : ucx->progress()) + tcp_.progress();
  if (done != 0) {
    signals_.ring();  // other threads of this process may wait for what was done
  }
  return done;
}

void DeviceCore::take_message(const SignalMessage& message, std::string_view payload) {
  // From an earlier channel, or for a word given up: nobody waits for it.
  if (channel_of_token(message.token) == nullptr || !signals_.expects(message.signal, message.value)) {
    return;
  }
  if (!payload.empty()) {
    const std::shared_ptr<MemoryRegion> target = region(message.region);
    if (target == nullptr || message.offset > target->bytes() || payload.size() > target->bytes() - message.offset) {
      return;
    }
    std::memcpy(target->data() + message.offset, payload.data(), payload.size());
  }
  signals_.deliver(message.signal, message.value);
}

}  // namespace tesser::transport
