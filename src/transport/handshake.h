// How two devices become acquainted (docs/transport.md, wire formats). Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/channel.h"
#include "transport/device_core.h"
#include "transport/socket.h"

namespace tesser::transport {

constexpr std::uint32_t kProtocolVersion = 3;
constexpr std::chrono::seconds kHandshakeTime{5};  // for one that comes in
// For what follows where it goes by RDMA: the adapters of many peers that start at once take their time to meet.
constexpr std::chrono::seconds kFabricTime{15};

// Blocks, to the deadline at most. expected_nonce 0: whoever listens there.
Outcome<std::shared_ptr<Channel>> connect_peer(const std::shared_ptr<DeviceCore>& core, const HostPort& address,
                                               std::uint64_t expected_nonce, Deadline deadline);
// Answers a connection that came in, TCP or Unix. Blocks for kHandshakeTime, then kFabricTime at most. A failure has
// been told to the peer.
void serve_peer(const std::shared_ptr<DeviceCore>& core, Descriptor socket);
void serve_attachment(const std::shared_ptr<DeviceCore>& core, Descriptor socket);

// The body of a region frame.
std::string region_frame(const MemoryRegion& region, const std::string& ucx_key);

}  // namespace tesser::transport
