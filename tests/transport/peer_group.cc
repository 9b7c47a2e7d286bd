#include "peer_group.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "transport/device_core.h"
#include "transport/ucx_worker.h"

namespace tesser::transport::testing {
namespace {

constexpr std::chrono::seconds kConnectTime{20};
constexpr std::chrono::seconds kVerbsConnectTime{8};
constexpr std::chrono::seconds kGroupTime{120};
constexpr std::chrono::seconds kSlowSilence{20};

bool in_one_process(Backend backend) { return backend == Backend::kThreads || backend == Backend::kTcpThreads; }

int run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()); }

// Namespaces tesser0-PID and tesser1-PID with a veth pair between them, 10.99.0.1 and .2.
class Namespaces {
 public:
  static std::string name(int index) { return "tesser" + std::to_string(index) + "-" + std::to_string(owner()); }

  Namespaces() {
    owner() = ::getpid();
    const std::string pair = "tv" + std::to_string(owner());
    up_ = run("ip netns add " + name(0)) == 0 && run("ip netns add " + name(1)) == 0 &&
          run("ip link add " + pair + "a netns " + name(0) + " type veth peer name " + pair + "b netns " + name(1)) ==
              0 &&
          configure(0, pair + "a") && configure(1, pair + "b") && has_carrier(0) && has_carrier(1);
  }
  ~Namespaces() {
    run("ip netns del " + name(0));
    run("ip netns del " + name(1));
  }
  bool up() const { return up_; }

 private:
  static int& owner() {
    static int process = 0;
    return process;
  }
  static bool configure(int index, const std::string& device) {
    const std::string in = "ip -n " + name(index) + " ";
    return run(in + "link set lo up") == 0 && run(in + "link set " + device + " name tv0") == 0 &&
           run(in + "addr add 10.99.0." + std::to_string(index + 1) + "/24 dev tv0") == 0 &&
           run(in + "link set tv0 up") == 0;
  }
  static bool has_carrier(int index) {
    const std::string look = "ip -n " + name(index) + " link show tv0 | grep -q 'state UP'";
    for (int i = 0; i < 100; ++i) {
      if (run(look) == 0) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  bool up_ = false;
};

Namespaces& namespaces() {
  static Namespaces both;
  return both;
}

bool is_verbs(Backend backend) { return backend == Backend::kRc || backend == Backend::kUd; }

std::string transports_of(Backend backend) { return backend == Backend::kRc ? "rc" : "ud"; }

}  // namespace

bool set_link(int index, bool up) {
  return run("ip -n " + Namespaces::name(index % 2) + " link set tv0 " + (up ? "up" : "down")) == 0;
}

void enter_place(Backend backend, int index) {
  if (backend != Backend::kNamespaces) {
    return;
  }
  FILE* file = std::fopen(("/var/run/netns/" + Namespaces::name(index % 2)).c_str(), "r");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::setns(fileno(file), CLONE_NEWNET), 0);
  std::fclose(file);
}

std::string backend_name(Backend backend) {
  switch (backend) {
    case Backend::kThreads:
      return "Threads";
    case Backend::kProcesses:
      return "Processes";
    case Backend::kTcpThreads:
      return "TcpThreads";
    case Backend::kTcp:
      return "Tcp";
    case Backend::kNamespaces:
      return "Namespaces";
    case Backend::kRc:
      return "Rc";
    case Backend::kUd:
      return "Ud";
  }
  return "";
}

std::vector<Backend> all_backends() {
  std::vector<Backend> backends{Backend::kThreads, Backend::kProcesses, Backend::kTcpThreads, Backend::kTcp,
                                Backend::kNamespaces};
  if (has_rdma_adapter()) {
    backends.insert(backends.end(), {Backend::kRc, Backend::kUd});
  }
  return backends;
}

std::vector<Backend> process_backends() {
  std::vector<Backend> backends = all_backends();
  std::erase_if(backends, in_one_process);
  return backends;
}

std::string why_not_verbs() { return why_no_rdma({"rc", ""}); }

std::string why_not(Backend backend) {
  if (kUnderThreadSanitizer && !in_one_process(backend)) {
    return "ThreadSanitizer does not see what processes agree on";
  }
  if (backend == Backend::kNamespaces && (::geteuid() != 0 || !namespaces().up())) {
    return "network namespaces need root and the ip command";
  }
  return "";
}

void Meeting::arrive(int index) {
  const std::uint32_t round = arrived_[index].fetch_add(1) + 1;
  const Deadline end = in(std::chrono::seconds(60));
  for (int other = 0; other < peers_; ++other) {
    while (arrived_[other].load() < round) {
      if (Clock::now() > end) {
        std::fprintf(stderr, "peer %d waits for peer %d in vain\n", index, other);
        std::abort();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void Meeting::publish(int index, const std::string& address) {
  std::strncpy(addresses_[index], address.c_str(), sizeof(addresses_[index]) - 1);
  published_[index].store(true);
}

std::string Meeting::address(int index) {
  while (!published_[index].load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return addresses_[index];
}

DeviceOptions options_for(Backend backend, int index) {
  DeviceOptions options;
  options.name = "worker " + std::to_string(index);
  options.run = 7;
  if (backend == Backend::kTcp || backend == Backend::kTcpThreads) {
    options.paths = Paths::kTcpOnly;
  } else if (backend == Backend::kNamespaces) {
    options.listen = "10.99.0." + std::to_string(index % 2 + 1) + ":0";
  } else if (is_verbs(backend)) {
    options.paths = Paths::kUcxOnly;
    options.ucx_transports = transports_of(backend);
  }
  if (kUnderSanitizer) {
    options.silence = std::chrono::seconds(20);
  }
  return options;
}

bool small_tests() { return std::getenv("TESSER_SMALL_TESTS") != nullptr; }

int many_peers(Backend backend) { return is_verbs(backend) && small_tests() ? 5 : Meeting::kMostPeers; }

std::chrono::seconds patience(Backend backend) { return is_verbs(backend) ? kGroupTime : kConnectTime; }

Outcome<std::shared_ptr<Channel>> connect_to(Backend backend, Device& device, const std::string& address) {
  constexpr int kMostTries = 4;
  const std::chrono::seconds time = is_verbs(backend) ? kVerbsConnectTime : kConnectTime;
  auto channel = device.connect(address, in(time));
  for (int i = 1; is_verbs(backend) && !channel && channel.error().kind == FailureKind::kTimeout && i < kMostTries;
       ++i) {
    std::fprintf(stderr, "connecting again: %s\n", channel.error().message.c_str());
    channel = device.connect(address, in(time));
  }
  return channel;
}

Peer join(Backend backend, Meeting& meeting, int index, int count, DeviceOptions options) {
  Peer peer;
  peer.index = index;
  peer.count = count;
  peer.meeting = &meeting;
  peer.channels.resize(count);
  auto device = Device::open(std::move(options));
  if (!device) {
    ADD_FAILURE() << device.error().message;
    std::abort();
  }
  peer.device = std::move(*device);
  if (is_verbs(backend)) {
    // The guest with the software adapter is slow: neither UCX's start nor many at once fit into a handshake's time.
    if (const auto opened = peer.device->core().open_ucx(); !opened) {
      ADD_FAILURE() << opened.error().message;
      std::abort();
    }
  }
  meeting.publish(index, peer.device->address());
  while (is_verbs(backend) && meeting.joined().load() < index) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (int other = 0; other < index; ++other) {
    auto channel = connect_to(backend, *peer.device, meeting.address(other));
    if (!channel) {
      ADD_FAILURE() << channel.error().message;
      std::abort();
    }
    peer.channels[other] = *channel;
  }
  meeting.joined().fetch_add(1);
  for (int other = index + 1; other < count; ++other) {
    auto channel = peer.device->accept(in(patience(backend)));
    if (!channel) {
      ADD_FAILURE() << channel.error().message;
      std::abort();
    }
    peer.channels[std::stoi((*channel)->peer().substr(7))] = *channel;
  }
  const Path expected = backend == Backend::kThreads     ? Path::kSameProcess
                        : backend == Backend::kProcesses ? Path::kSharedMemory
                        : is_verbs(backend)              ? Path::kUcx
                                                         : Path::kTcp;
  for (const auto& channel : peer.channels) {
    if (channel != nullptr) {
      EXPECT_EQ(channel->path().path, expected) << channel->path().reason;
    }
  }
  return peer;
}

void run_peers(Backend backend, int count, const std::function<void(Peer&)>& body,
               const std::function<void(DeviceOptions&)>& adjust) {
  const auto run_one = [&](Meeting& meeting, int index) {
    DeviceOptions options = options_for(backend, index);
    if (small_tests()) {
      options.silence =
          kSlowSilence;  // an emulated processor may stand still for seconds; faults have tests of their own
    }
    if (adjust) {
      adjust(options);
    }
    Peer peer = join(backend, meeting, index, count, std::move(options));
    body(peer);
    meeting.arrive(index);  // nobody leaves while another still works
  };
  if (in_one_process(backend)) {
    Meeting meeting(count);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] { run_one(meeting, i); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return;
  }
  void* memory = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* meeting = new (memory) Meeting(count);
  std::vector<int> children;
  for (int i = 0; i < count; ++i) {
    children.push_back(fork_child([&] {
      enter_place(backend, i);
      run_one(*meeting, i);
    }));
  }
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(wait_child(children[i], kGroupTime), 0) << "worker " << i;
  }
  ::munmap(memory, sizeof(Meeting));
}

int fork_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const int child = ::fork();
  if (child != 0) {
    return child;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  std::fflush(nullptr);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

int wait_child(int child, std::chrono::seconds time) {
  const Deadline end = in(time);
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tesser::transport::testing
