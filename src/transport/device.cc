#include "transport/device.h"

#include <charconv>
#include <fstream>
#include <utility>

#include <sys/resource.h>

#include <fmt/format.h>

#include "transport/device_core.h"
#include "transport/handshake.h"
#include "transport/ucx_worker.h"

namespace tesser::transport {
namespace {

std::string first_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

}  // namespace

Outcome<std::unique_ptr<Device>> Device::open(DeviceOptions options) {
  TESSER_TRANSPORT_ASSIGN(std::shared_ptr<DeviceCore> core, DeviceCore::open(std::move(options)));
  return std::unique_ptr<Device>(new Device(std::move(core)));
}

Device::~Device() { core_->stop(); }

const std::string& Device::name() const { return core_->options().name; }
std::string Device::address() const { return core_->address(); }
std::uint64_t Device::nonce() const { return core_->nonce(); }

Outcome<std::shared_ptr<MemoryRegion>> Device::allocate(std::size_t bytes, const RegionOptions& options) {
  return core_->allocate(bytes, options);
}

Outcome<std::shared_ptr<Channel>> Device::connect(std::string_view address, Deadline deadline) {
  const std::size_t slash = address.find('/');
  std::uint64_t nonce = 0;
  if (slash != std::string_view::npos) {
    const std::string_view digits = address.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), nonce, 16);
    if (error != std::errc() || end != digits.data() + digits.size() || nonce == 0) {
      return failure(FailureKind::kInvalidArgument, "",
                     fmt::format("'{}' is no address; write HOST:PORT or HOST:PORT/NONCE", address));
    }
  }
  TESSER_TRANSPORT_ASSIGN(const HostPort place, parse_host_port(address.substr(0, slash)));
  return connect_peer(core_, place, nonce, deadline);
}

Outcome<std::shared_ptr<Channel>> Device::accept(Deadline deadline) { return core_->accept(deadline); }

bool Device::wait(const std::function<bool()>& ready, Deadline deadline) { return core_->wait(ready, deadline); }

void Device::wake() { core_->signals().ring(); }

void Device::progress() { core_->progress(); }

DeviceReport Device::report() const {
  DeviceReport report;
  report.name = name();
  report.address = address();
  report.ucx = ucx_description();
  const UcxOptions ucx{core_->options().ucx_transports, core_->options().ucx_devices};
  report.adapters = ucx_adapters(ucx);
  report.why_no_rdma = why_no_rdma(ucx);
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  report.locked_memory_limit =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} KiB", limit.rlim_cur / 1024);
  report.shared_huge_pages = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const std::string reserved = first_line("/proc/sys/vm/nr_hugepages");
  std::from_chars(reserved.data(), reserved.data() + reserved.size(), report.reserved_huge_pages);
  return report;
}

}  // namespace tesser::transport
