// One core's share of a job at a hub: it owns its chunks from end to end, from the arrival of gradients over sum and
// update to the new weights at every worker ("tall aggregation", Parameter Hub, section 3.2.2). Internal to this
// folder.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hub/chunk_map.h"
#include "hub/clipping.h"
#include "hub/job_settings.h"
#include "hub/norm_exchange.h"
#include "hub/queue_pair.h"
#include "hub/racks.h"
#include "hub/rate_limit.h"
#include "hub/update.h"
#include "hub/wire.h"
#include "transport/completion.h"
#include "transport/device.h"

namespace tesser::hub {

// A worker as a hub reaches it. Does not change while cores use it.
struct WorkerEnd {
  std::int64_t rank = 0;
  std::shared_ptr<transport::Channel> channel;
  std::shared_ptr<const transport::RemoteRegion> memory;  // the worker's
  std::shared_ptr<transport::MemoryRegion> inbox;         // here; null where the worker's memory is mapped
  bool shares_weights = false;                            // reads the hub's own: nothing is written to it

  const std::byte* gradients(const WorkerMemory& layout) const {
    return inbox != nullptr ? inbox->data() + Inbox::gradients(rank) : memory->mapped() + layout.gradients(rank);
  }
  const RowNumber* rows(const WorkerMemory& layout, const Inbox& inbox_layout) const {
    return reinterpret_cast<const RowNumber*>(inbox != nullptr ? inbox->data() + inbox_layout.rows
                                                               : memory->mapped() + layout.rows);
  }
};

// One core's way to one worker.
struct Link {
  std::shared_ptr<const WorkerEnd> worker;
  QueuePair queues;  // pushes arrive, pulls are sent
};

// What has been done, for metrics. Any thread reads.
struct CoreCounters {
  std::atomic<std::uint64_t> updates{0};         // of chunks
  std::atomic<std::uint64_t> gradient_bytes{0};  // taken in
  std::atomic<std::uint64_t> rack_bytes{0};      // sent to other racks
  std::atomic<std::uint64_t> weight_bytes{0};    // given out: a share for each worker, also where they are shared
};

// What the cores of one job share.
struct JobContext {
  JobContext(JobSettings job_settings, ChunkMap chunk_map, std::uint32_t this_hub, std::int64_t this_rack)
      : settings(std::move(job_settings)),
        map(std::move(chunk_map)),
        worker_memory(map, settings),
        inbox(map, settings, static_cast<int>(map.loads[this_hub].size())),
        hub(this_hub),
        rack(this_rack),
        workers(settings.replicas / settings.racks),
        first_rank(rack * workers) {}

  const JobSettings settings;
  const ChunkMap map;
  const WorkerMemory worker_memory;
  const Inbox inbox;
  const std::uint32_t hub;  // in its rack
  const std::int64_t rack;
  const std::int64_t workers;  // of this rack
  const std::int64_t first_rank;
  transport::Device* device = nullptr;
  float* weights = nullptr;                         // of all tensors
  std::shared_ptr<transport::MemoryRegion> region;  // holds weights (unless they live at another hub) and state
  std::array<float*, kMostStateTensors> state{};    // each in the layout of the weights; null where none has it
  std::int64_t* updates = nullptr;                  // that each chunk has had
  // With several racks: sums of this rack's gradients, and those of other racks, a layout of all tensors for each.
  std::shared_ptr<transport::MemoryRegion> sums;
  std::shared_ptr<transport::MemoryRegion> rack_inbox;
  std::unique_ptr<Clipping> clipping;  // null without
  // With clipping, once this hub's chunks of the step are summed: sees to it that the total of all hubs is published.
  std::function<void(double squares)> combine;
  // Whether this machine has processors for all cores of hubs and all workers that are on it: a core that waits has
  // then nothing better to do than to merge ahead, which moves more bytes than one sum of all does.
  bool has_spare_processors = false;
  std::shared_ptr<RateLimit> rate_limit;  // of the tenant; null without
  std::unique_ptr<NormExchange> norms;    // with clipping and several hubs; looked at by the first core
  // A core has lost a worker, or found that it does not keep to the protocol. Called on the core's thread; quick.
  std::function<void(const WorkerEnd& worker, const std::string& reason)> lost;
  // Replicas disagree, or another error that ends the job. Likewise.
  std::function<void(const std::string& reason)> broken;
};

// Ranks and racks as bits.
inline std::uint64_t bit(std::int64_t number) { return std::uint64_t{1} << number; }

class JobCore {
 public:
  JobCore(JobContext& context, std::uint32_t core);

  // The body of the core's thread, until stop().
  void run();
  void stop();

  // From the control thread. Taken up by the core's thread soon.
  void attach(Link link);
  void attach(RackLink link);
  // Takes what had arrived from the worker and forgets it; returns, once that is done, how many steps it has committed.
  std::int64_t detach(std::int64_t rank);
  // A lost worker had committed so many steps. What it gave for later steps is forgotten. The job goes on without it,
  // or else waits for it.
  void settle(std::int64_t rank, std::int64_t commits, bool without);
  // The worker is done. Another that goes on to a further step would wait for it for ever, which breaks the job.
  void leave(std::int64_t rank);
  // The step that every chunk has reached.
  std::int64_t settled_step();

  const CoreCounters& counters() const { return counters_; }

 private:
  struct ChunkState {
    std::uint64_t given = 0;       // ranks, as bits
    std::uint64_t none = 0;        // those that have no gradient in this step
    std::uint32_t merged = 0;      // ranks below this one are in the merge buffer
    std::uint64_t rack_given = 0;  // racks, of chunks that this rack owns
    std::uint64_t rack_none = 0;
    bool is_queued = false;  // for merging ahead
    bool is_summed = false;  // into the merge buffer, for clipping
    std::int64_t step = 0;
  };
  struct Peer {
    std::optional<Link> link;
    bool is_lost = false;
    bool has_left = false;
    std::int64_t commits = 0;
    transport::Completion sent;
  };

  bool take_arrivals();
  bool take_arrivals_of(std::int64_t rank);
  bool take_from_rack(RackLink& link);
  void take_sum(std::int64_t rack, std::uint32_t chunk, bool none);
  void lose(const RackLink& link, const std::string& reason);
  void take(std::int64_t rank, std::uint32_t number);
  void take_commit(std::int64_t rank);
  void take_chunk(std::int64_t rank, std::uint32_t chunk, bool none);
  void take_tensor(std::int64_t rank, std::uint32_t key);
  void take_withdrawal(std::int64_t rank, std::uint32_t key);
  std::string uneven_steps(std::size_t going, std::size_t left) const;
  bool agrees_with_others(std::int64_t rank, std::int64_t step);
  void lose(std::int64_t rank, const std::string& reason);
  void run_commands();
  template <typename Function>
  void command(Function function);  // runs it on the core's thread and waits for it

  bool is_complete(const ChunkState& state) const { return (state.given & required_) == required_; }
  void consider(std::uint32_t chunk);
  void update_committed();
  bool work();
  void wake_workers();
  bool merge_ahead();
  void finish(std::uint32_t chunk);
  void sum_for_clipping(std::uint32_t chunk);
  bool add_rows(std::uint32_t chunk, float* sum);  // of all ranks; false when the chunk keeps weights and state
  std::int64_t row_elements(std::uint32_t chunk) const {
    return context_.settings.keys[context_.map.chunks[chunk].key].row_elements;
  }
  bool sum_up(std::uint32_t chunk);  // into the merge buffer; false when nobody has a gradient
  void finish_in_rack(std::uint32_t chunk);
  void update_from_racks(std::uint32_t chunk);
  void update(std::uint32_t chunk, float scale);
  void apply(std::uint32_t chunk, const float* first, std::span<const void* const> sources, WireElement element,
             float scale);
  void end_step(std::uint32_t chunk, bool changed);
  void give_weights(std::uint32_t chunk, bool changed);
  transport::Outcome<void> give_weights(Peer& peer, std::uint32_t chunk, bool changed, bool ends_tensor);
  std::vector<const void*>& sources_of(std::uint32_t chunk, std::uint32_t from, std::uint32_t until);
  static bool holds_sum(const ChunkState& state);  // whether the merge buffer has one
  float* merge_buffer(std::uint32_t chunk);
  bool is_worth_merging() const;  // before all gradients are there

  JobContext& context_;
  const std::uint32_t core_;
  const WireElement element_;
  std::vector<std::uint32_t> own_;         // chunks of this core, in their order
  std::vector<std::size_t> own_begin_;     // of each key in own_; one more at the end
  std::vector<std::uint32_t> done_of_;     // by key: chunks of own_ that have ended a step which others have not
  std::vector<std::int64_t> merge_begin_;  // of each chunk in merge_
  std::int64_t merge_elements_ = 0;
  std::vector<float> merge_;                         // empty until it is needed
  std::vector<float> row_sum_;                       // of one chunk given by rows
  std::vector<ChunkState> states_;                   // by chunk; only those of this core are used
  std::vector<Peer> peers_;                          // by rank, from the rack's first
  std::vector<std::optional<RackLink>> rack_links_;  // by rack
  transport::Completion rack_sent_;
  std::uint64_t required_ = 0;  // ranks whose gradients an update needs
  std::int64_t committed_ = 0;  // steps that all of them have committed
  std::vector<Hyperparameters> numbers_[kStepSlots];

  std::vector<std::uint32_t> ready_;      // complete and committed
  std::vector<std::uint32_t> waiting_;    // complete, for the commit
  std::vector<std::uint32_t> mergeable_;  // worth merging ahead
  std::size_t ended_ = 0;                 // steps of chunks, all together
  std::size_t summed_ = 0;                // chunks of this core, for clipping
  std::vector<const void*> sources_;
  bool unwoken_ = false;  // workers that sleep may have been sent something
  std::chrono::steady_clock::time_point woken_{};
  CoreCounters counters_;

  std::atomic<bool> stops_{false};
  std::atomic<bool> has_commands_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> commands_;
};

}  // namespace tesser::hub
