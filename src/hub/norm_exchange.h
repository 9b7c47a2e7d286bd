// Clipping with several hubs: the first adds the squares of all hubs' gradients, in the order of the hubs, and tells
// the others the total. A number of 64 bits goes as three notifications of 22. Internal to this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "hub/queue_pair.h"
#include "transport/device.h"

namespace tesser::hub {

class NormExchange {
 public:
  // Of hub `hub` of so many. `publish` is given each total; `broken` is told when another hub is lost.
  NormExchange(std::uint32_t hub, std::size_t hubs, std::function<void(double)> publish,
               std::function<void(const std::string&)> broken);

  // The channel to a hub: of the first hub to each other one, of another to the first. Control thread, before the job
  // runs.
  Result<void> add(std::uint32_t other, const std::shared_ptr<transport::Channel>& channel);
  bool is_linked() const;
  // Blocks until the queues are open on both sides.
  Result<void> finish(transport::Device& device, transport::Deadline deadline);

  // This hub's squares of a step, by the core that was last.
  void give(double squares);
  // A core's look at what others have sent; true when something had come. One thread at a time.
  bool take();
  bool has_news() const;

 private:
  static constexpr int kParts = 3;
  struct Link {
    std::uint32_t hub;
    QueuePair queues;
    std::shared_ptr<transport::Channel> channel;
    std::uint64_t bits = 0;
    int parts = 0;  // of the number under way
    bool is_lost = false;
    std::optional<double> squares;  // of the step, at the first hub
  };

  void send(Link& link, double number);
  void lose(Link& link, const std::string& reason);
  void add_up();

  const std::uint32_t hub_;
  const std::size_t others_;
  const std::function<void(double)> publish_;
  const std::function<void(const std::string&)> broken_;
  mutable std::mutex mutex_;             // what follows
  std::map<std::uint32_t, Link> links_;  // by hub
  std::optional<double> own_;
};

}  // namespace tesser::hub
