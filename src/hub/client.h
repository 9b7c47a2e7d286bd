// A worker's side of a job: its gradients go to the job's hubs, and the new weights come back without being asked for
// (Parameter Hub, section 3.1: connect, init, push, pull in one).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/chunk_map.h"
#include "hub/job_settings.h"
#include "hub/messages.h"
#include "hub/queue_pair.h"
#include "hub/wire.h"
#include "transport/device.h"

namespace tesser::control {
class ControlClient;
}

namespace tesser::hub {

struct ClientOptions {
  // "http://HOST:PORT" of each, in the same order for every worker; with several racks those of the first rack, then
  // as many of the next, and so on.
  std::vector<std::string> hubs;
  std::string token;  // of the hubs; empty: none
  std::string job;
  std::string nonce;  // known to the job's workers only
  std::int64_t rank = 0;
  JobSettings settings;
  std::chrono::milliseconds patience{60'000};  // for hubs to answer and for the other workers to start
  bool through_network = false;                // never shared memory, for tests
  bool huge_pages = true;                      // for gradients, where the system has them
};

// One step is: push() or push_none() of every tensor and commit(), in this order where weights change at the step and
// in any where they change at once; then wait() or wait_all() before a tensor's weights are read. A gradient must not
// change from its push until its weights are there.
//
// push, push_none and commit belong to one thread at a time, wait, is_current and wait_all to one thread at a time,
// which may be another. A failure is final and names who failed.
class Client {
 public:
  // Joins every hub, which creates the job where it is new, and allocates the worker's memory. Blocks.
  static Result<std::unique_ptr<Client>> join(ClientOptions options);
  ~Client();

  // Where the gradient of a tensor is put: elements of settings.wire, row-major, zeros at first. Lives as long as the
  // client.
  std::span<std::byte> gradient(std::int64_t key) const;
  // Before start(), of rank 0: the weights that the job begins with. `values`: as many as the tensor has.
  void set_initial(std::int64_t key, std::span<const float> values);
  // State of the optimizer that a job goes on with, likewise; tensor 0 is momentum_buffer or exp_avg.
  Result<void> set_initial_state(std::int64_t key, int tensor, std::span<const float> values);
  // How many updates that state has seen; Adam's correction and SGD's first momentum depend on it.
  void set_initial_updates(std::int64_t key, std::int64_t updates);
  // Waits until every worker has started. From then on weights() can be read. Blocks.
  Result<void> start();

  // The tensor's weights, in this worker's memory or the hub's; the same place all the time.
  std::span<float> weights(std::int64_t key) const;
  // Steps that this worker has committed.
  std::int64_t step() const { return step_; }
  // Whether it came back to a job that had lost it: the data of step() is to be computed (again).
  bool is_return() const { return is_return_; }

  Result<void> push(std::int64_t key);
  // Of a tensor with row_elements: the gradient of these rows, ascending and each once; all others are zero. `values`:
  // rows.size() * row_elements elements of the wire's type, which are copied.
  Result<void> push_rows(std::int64_t key, std::span<const std::int64_t> rows, std::span<const std::byte> values);
  // The tensor has no gradient in this step. Without one of any worker it keeps weights and state, as in PyTorch.
  Result<void> push_none(std::int64_t key);
  // As if these tensors had not been pushed in this step, which must not be committed yet: each is pushed anew, and its
  // gradient may change before. Only where weights change at the step. Blocks for a round trip; belongs to the thread
  // that pushes, while none waits.
  Result<void> withdraw(std::span<const std::int64_t> keys);
  // `groups`: numbers of each parameter group, the same for every worker.
  Result<void> commit(std::span<const Hyperparameters> groups);

  // Whether the weights of every step pushed are there. Does not block.
  Result<bool> is_current(std::int64_t key);
  // Waits for that; fails when the hub, or whoever it waits for, is lost.
  Result<void> wait(std::int64_t key);
  Result<void> wait_all();
  // wait() for no longer than that; whether the weights are there.
  Result<bool> wait_for(std::int64_t key, std::chrono::milliseconds most);

  // State of the optimizer, when wait_all() has returned and no worker has committed a further step.
  Result<void> read_state(std::int64_t key, int tensor, std::span<float> values);
  Result<std::int64_t> read_updates(std::int64_t key);

  // What one of its hubs says of the job: "gathering", "running", "ended" (all workers have left); fails when the job
  // has failed, with the reason. Blocks.
  Result<std::string> state(std::size_t hub);

  // Tells the hubs that this worker is done. Without it they take the end of the process for a loss.
  Result<void> leave();

  // Ends without a word, as a process that is killed does.
  void abandon() { has_left_ = true; }

  const ChunkMap& map() const { return map_; }
  // Whether weights() are the hub's own, once started.
  bool shares_weights() const { return shares_weights_; }
  // How each hub is reached, for people.
  std::vector<std::string> paths() const;

 private:
  struct Hub {
    std::string url;
    std::vector<std::string> urls_of_racks;  // of the hub of this place in each rack; none with one rack
    std::unique_ptr<control::ControlClient> control;
    JoinAnswer joined;
    std::shared_ptr<transport::Channel> channel;
    std::shared_ptr<const transport::RemoteRegion> memory;
    std::shared_ptr<const transport::RemoteRegion> inbox;  // null where the hub maps this worker's memory
    std::vector<QueuePair> cores;                          // to each: pushes are sent, pulls arrive
  };

  Client(ClientOptions options, ChunkMap map);
  Result<void> open_hubs();
  // Whether hubs and workers share this machine's processors, so that whoever waits must not spin.
  Result<bool> waits_at_once() const;
  Result<void> join_hub(std::size_t index, const std::vector<std::int64_t>& cores);
  Result<void> connect_hub(Hub& hub);
  template <typename Answer, typename Read>
  Result<Answer> ask_until_ready(Hub& hub, const std::string& path, const WorkerRequest& request, const Read& read);
  Result<void> give_initial(Hub& hub);
  Result<void> give_weights_and_state();
  Result<void> open_queues(Hub& hub, std::uint32_t index);
  Result<void> push(std::int64_t key, Notice kind);
  Result<void> take_pull(std::uint32_t hub, std::uint32_t core, std::uint32_t number);
  Result<void> flush(Hub& hub, transport::Completion& completion);
  template <typename Use>
  Result<void> for_chunks_of(std::int64_t key, const Use& use);
  void wake_hubs();
  bool has_arrivals() const;  // or the news that a hub is lost
  Result<void> take_pulls();
  std::string reason_at(Hub& hub);  // why the job has failed; empty: it has not, or the hub does not answer
  tl::unexpected<Error> explain(Hub& hub, const transport::Failure& failure);  // asks the hub why
  Result<void> fetch_state();                                                  // from other racks to this one's hubs
  WorkerRequest request() const;

  ClientOptions options_;
  const ChunkMap map_;
  const WorkerMemory layout_;
  const JobMemory job_layout_;
  std::unique_ptr<transport::Device> device_;
  std::shared_ptr<transport::MemoryRegion> region_;
  std::vector<Hub> hubs_;
  bool shares_weights_ = false;
  bool is_return_ = false;
  bool has_left_ = false;
  float* weights_ = nullptr;
  struct InitialState {
    std::int64_t key = 0;
    int tensor = 0;
    std::vector<float> values;
  };
  std::vector<InitialState> initial_state_;
  std::vector<std::int64_t> initial_updates_;  // by key; empty: all 0
  std::int64_t step_ = 0;
  std::int64_t fetched_step_ = -1;
  std::unique_ptr<std::atomic<std::int64_t>[]> pending_;  // chunks pushed and not pulled, by key
  std::int64_t withdrawing_ = 0;                          // cores that have not answered
  transport::Completion sent_;
  std::mutex explaining_;
};

}  // namespace tesser::hub
