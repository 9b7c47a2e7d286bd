// The same test over threads of one process, over processes with shared memory, and over TCP.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/device.h"

namespace tesser::transport::testing {

enum class Backend : std::uint8_t {
  kThreads,     // one process
  kProcesses,   // shared memory
  kTcpThreads,  // TCP inside one process, as ThreadSanitizer can see it
  kTcp,         // TCP between processes
  kNamespaces,  // TCP between processes in two network namespaces
  kRc,          // UCX over verbs, reliable connections: the adapter writes and reads memory
  kUd,          // UCX over verbs, datagrams: all in messages
};
// rc and ud only where there is an adapter, as in the guest of ./x test --rdma.
std::vector<Backend> all_backends();
std::vector<Backend> process_backends();  // those of them whose peers are processes
std::string why_not_verbs();              // empty when there is an adapter
std::string backend_name(Backend backend);
// Empty when this machine and build can run it, else why not.
std::string why_not(Backend backend);

#if defined(__SANITIZE_THREAD__)
constexpr bool kUnderThreadSanitizer = true;
#else
constexpr bool kUnderThreadSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kUnderSanitizer = true;
#else
constexpr bool kUnderSanitizer = false;
#endif

// Shared by all peers of a group, in shared memory where they are processes.
class Meeting {
 public:
  static constexpr int kMostPeers = 16;
  explicit Meeting(int peers) : peers_(peers) {}

  // Returns when all peers have come here as often as this one. Aborts the peer after a minute.
  void arrive(int index);
  void publish(int index, const std::string& address);
  std::string address(int index);
  std::atomic<int>& joined() { return joined_; }                     // peers that have connected to all before them
  std::atomic<std::uint64_t>& number(int i) { return numbers_[i]; }  // for tests, 0 at first

 private:
  const int peers_;
  std::atomic<std::uint32_t> arrived_[kMostPeers] = {};
  std::atomic<int> joined_{0};
  std::atomic<bool> published_[kMostPeers] = {};
  char addresses_[kMostPeers][128] = {};
  std::atomic<std::uint64_t> numbers_[16] = {};
};

// One peer's side of a test.
struct Peer {
  int index = 0;
  int count = 0;
  Meeting* meeting = nullptr;
  std::unique_ptr<Device> device;
  std::vector<std::shared_ptr<Channel>> channels;  // by the other's index; own: nullptr

  void arrive() { meeting->arrive(index); }
  Channel& channel() const { return *channels[1 - index]; }  // in a group of two
  std::shared_ptr<Channel> shared_channel() const { return channels[1 - index]; }
};

// Moves this process to where the back end has peer `index`: into its network namespace, if it has one.
void enter_place(Backend backend, int index);
// Takes the link between the namespaces down or up again, at the side of peer `index`. By the test's first process.
bool set_link(int index, bool up);

// Connects to a peer of the back end that listens or is about to. More than once over verbs, whose software adapter in
// the guest loses a connection now and then.
Outcome<std::shared_ptr<Channel>> connect_to(Backend backend, Device& device, const std::string& address);
// TESSER_SMALL_TESTS: in a guest that is too slow for large sizes, many rounds and many peers.
bool small_tests();
int many_peers(Backend backend);
// How long a peer may take to come.
std::chrono::seconds patience(Backend backend);

DeviceOptions options_for(Backend backend, int index);
// Opens the device of peer `index` and connects it with all others.
Peer join(Backend backend, Meeting& meeting, int index, int count, DeviceOptions options);

// Runs `body` once for each of `count` peers, which are connected with one another, and waits for all of them. Failed
// expectations of any of them fail the test.
void run_peers(Backend backend, int count, const std::function<void(Peer&)>& body,
               const std::function<void(DeviceOptions&)>& adjust = {});

// A child process that runs `body`; its failed expectations are its exit code 1.
int fork_child(const std::function<void()>& body);
// Exit code; 128 + signal when it was killed; -1, and it is killed, when it runs longer.
int wait_child(int child, std::chrono::seconds time);

}  // namespace tesser::transport::testing
