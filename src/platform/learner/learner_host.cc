#include "platform/learner/learner_host.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "platform/learner/process_tree.h"

namespace tesser::platform {
namespace {

// Below the 32,768 at which Linux begins with ports of its own choice.
constexpr int kFirstPort = 20'000;
constexpr int kLastPort = 32'000;
constexpr int kTries = 200;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// IPv4 before IPv6; without those that lead nowhere else.
std::vector<std::string> addresses() {
  std::vector<std::string> found;
  std::vector<std::string> of_version_6;
  struct ifaddrs* first = nullptr;
  if (::getifaddrs(&first) == 0) {
    for (const struct ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_LOOPBACK) != 0 || (each->ifa_flags & IFF_UP) == 0) {
        continue;
      }
      std::array<char, INET6_ADDRSTRLEN> text{};
      if (each->ifa_addr->sa_family == AF_INET) {
        const auto* const address = reinterpret_cast<const struct sockaddr_in*>(each->ifa_addr);
        found.emplace_back(::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()));
      } else if (each->ifa_addr->sa_family == AF_INET6) {
        const auto* const address = reinterpret_cast<const struct sockaddr_in6*>(each->ifa_addr);
        if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) {
          of_version_6.emplace_back(::inet_ntop(AF_INET6, &address->sin6_addr, text.data(), text.size()));
        }
      }
    }
    ::freeifaddrs(first);
  }
  found.insert(found.end(), of_version_6.begin(), of_version_6.end());
  if (found.empty()) {
    found.emplace_back("127.0.0.1");
  }
  return found;
}

// The machine's boot and the network name space in it.
std::string network() {
  std::string boot(64, '\0');
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  const ssize_t count = file >= 0 ? ::read(file, boot.data(), boot.size()) : 0;
  if (file >= 0) {
    ::close(file);
  }
  boot.resize(count > 1 ? static_cast<std::size_t>(count) - 1 : 0);  // without its line feed
  std::error_code error;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/net", error).string();
  return boot.empty() || space.empty() ? "" : boot + "/" + space;
}

}  // namespace

LearnerUp this_host() {
  LearnerUp up;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  up.host = name.data();
  for (const std::string& node : {variable("TESSER_NODE"), variable("SLURMD_NODENAME"), up.host}) {
    if (!node.empty()) {
      up.node = node;
      break;
    }
  }
  up.network = network();
  up.pid = ::getpid();
  up.started = start_ticks(::getpid()).value_or(0);
  up.addresses = addresses();
  return up;
}

Result<ReservedPort> ReservedPort::take() {
  std::random_device random;
  std::uniform_int_distribution<int> any(kFirstPort, kLastPort);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) {
      return failed(fmt::format("cannot make a socket: {}", std::generic_category().message(errno)));
    }
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    const int port = any(random);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(socket, reinterpret_cast<const struct sockaddr*>(&address), sizeof address) == 0) {
      return ReservedPort(socket, port);
    }
    ::close(socket);
  }
  return failed(fmt::format("no free port between {} and {}", kFirstPort, kLastPort));
}

ReservedPort::ReservedPort(ReservedPort&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), number_(other.number_) {}

ReservedPort& ReservedPort::operator=(ReservedPort&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(number_, other.number_);
  return *this;
}

ReservedPort::~ReservedPort() {
  if (socket_ >= 0) {
    ::close(socket_);
  }
}

std::filesystem::path run_token_path(const Volume& volume, int attempt) {
  return volume.attempt(attempt) / "run-token";
}

Result<void> write_secret(const std::filesystem::path& path, const std::string& secret) {
  std::filesystem::path partial = path;
  partial += fmt::format(".partial-{}", ::getpid());
  ::unlink(partial.c_str());
  const int file = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    return tl::unexpected<Error>(file_error(path, "write", errno));
  }
  const bool is_written = ::write(file, secret.data(), secret.size()) == static_cast<ssize_t>(secret.size()) &&
                          ::fsync(file) == 0 && ::rename(partial.c_str(), path.c_str()) == 0;
  const int reason = errno;
  ::close(file);
  if (!is_written) {
    ::unlink(partial.c_str());
    return tl::unexpected<Error>(file_error(path, "write", reason));
  }
  return {};
}

}  // namespace tesser::platform
