// Hubs of several racks exchange their racks' sums (Parameter Hub, section 3.4): each chunk has one owner among the
// racks, to which the others send their sums and which gives the new weights to all of them. Internal to this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

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

// The rack whose hubs own a chunk; racks own the same number, but for one.
inline std::int64_t owner_rack(std::uint32_t chunk, std::int64_t racks) { return chunk % racks; }

// Another rack's hub of the same place in its rack. Does not change while cores use it.
struct RackEnd {
  std::int64_t rack = 0;
  std::shared_ptr<transport::Channel> channel;
  std::shared_ptr<const transport::RemoteRegion> memory;  // its weights
  std::shared_ptr<const transport::RemoteRegion> inbox;   // of sums, one layout of all tensors for each rack
};

// One core's way to the core of the same number there.
struct RackLink {
  std::shared_ptr<const RackEnd> end;
  QueuePair queues;
};

struct RackPlace {
  std::string job;
  std::string nonce;
  std::string token;  // of the hubs
  std::int64_t rack = 0;
  std::int64_t hub = 0;           // in its rack
  std::vector<std::string> urls;  // of the hub of the same place in each rack
  std::vector<ChunkMap::Load> cores;
  std::function<Result<void>(const std::string&)> check_hub;  // of an address that another hub has told
};

// Finds the hubs of other racks and makes links to them. One thread at a time.
class Racks {
 public:
  Racks(RackPlace place, transport::Device& device, std::shared_ptr<transport::MemoryRegion> memory,
        std::shared_ptr<transport::MemoryRegion> inbox);
  ~Racks();

  // One attempt at those hubs that this one is to connect to: those of racks with a larger number. Blocks for requests
  // and connections. Hubs that have not heard of the job are asked again at the next look; a failure is final.
  Result<void> look();
  // A request of a hub of a rack with a smaller number, before it connects.
  Result<RackAnswer> introduce(const RackRequest& request);
  // Takes a channel of a hub that has introduced itself; false: it is somebody else's.
  Result<bool> take_channel(const std::shared_ptr<transport::Channel>& channel);

  bool are_linked() const { return links_.size() + 1 == place_.urls.size(); }
  std::string missing() const;  // "rack 1"
  // Links of a core to every other rack; once all are linked. They are given away.
  std::vector<RackLink> take_links(std::size_t core);
  // Of the first rack: its hub's whole memory becomes that of the others', which are told so. Blocks.
  Result<void> give_memory();
  // Reads the optimizer's state of chunks that other racks own from them into this hub's memory. Blocks.
  Result<void> fetch(const ChunkMap& map, const JobMemory& layout);

 private:
  Result<RackEnd> import(std::int64_t rack, std::shared_ptr<transport::Channel> channel,
                         const transport::RegionHandle& memory, const transport::RegionHandle& inbox);
  Result<void> open_links(RackEnd end);
  Result<control::ControlClient*> control_of(std::int64_t rack);

  const RackPlace place_;
  transport::Device& device_;
  const std::shared_ptr<transport::MemoryRegion> memory_;
  const std::shared_ptr<transport::MemoryRegion> inbox_;
  std::map<std::int64_t, std::unique_ptr<control::ControlClient>> controls_;
  std::map<std::int64_t, RackRequest> introduced_;
  std::map<std::int64_t, std::shared_ptr<const RackEnd>> ends_;
  std::map<std::int64_t, std::vector<RackLink>> links_;  // by rack, of each core
};

}  // namespace tesser::hub
