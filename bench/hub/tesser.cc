#include "hub/tesser.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "hub/client.h"
#include "hub/hub.h"

namespace tesser::bench {
namespace {

hub::JobSettings settings_of(const Exchange& exchange, bool colocated) {
  hub::JobSettings settings;
  settings.replicas = exchange.workers;
  settings.groups.push_back(
      {.algorithm = exchange.optimizer == Optimizer::kSgd ? hub::Algorithm::kSgd : hub::Algorithm::kAdam,
       .has_momentum = exchange.optimizer == Optimizer::kSgd});
  for (std::size_t key = 0; key < exchange.elements.size(); ++key) {
    settings.keys.push_back({"tensor " + std::to_string(key), exchange.elements[key], 0});
  }
  settings.one_machine = colocated;
  settings.chunk_bytes = exchange.chunk_bytes;
  return settings;
}

hub::HubOptions hub_options(const Exchange& exchange, std::string processors, bool network = false) {
  hub::HubOptions options;
  options.huge_pages = exchange.huge_pages;
  options.through_network = network;
  options.processors = std::move(processors);
  return options;
}

class TesserWorker final : public Worker {
 public:
  static Result<std::unique_ptr<Worker>> open(const Exchange& exchange, int rank, std::vector<std::string> hubs,
                                              std::unique_ptr<hub::Hub> own, bool network) {
    hub::ClientOptions options;
    options.through_network = network;
    options.huge_pages = exchange.huge_pages;
    const bool colocated = own != nullptr;
    options.hubs = std::move(hubs);
    options.job = "bench";
    options.nonce = "of the bench";
    options.rank = rank;
    options.settings = settings_of(exchange, colocated);
    std::unique_ptr<TesserWorker> worker(new TesserWorker(exchange, std::move(own)));
    TESSER_ASSIGN_OR_RETURN(worker->client_, hub::Client::join(std::move(options)));
    std::vector<float> values;
    for (std::size_t key = 0; key < exchange.elements.size(); ++key) {
      const auto number = static_cast<std::int64_t>(key);
      values.resize(static_cast<std::size_t>(exchange.elements[key]));
      for (std::size_t element = 0; element < values.size(); ++element) {
        values[element] = gradient_value(rank, static_cast<std::int64_t>(element));
      }
      std::memcpy(worker->client_->gradient(number).data(), values.data(), values.size() * sizeof(float));
    }
    TESSER_RETURN_IF_ERROR(worker->client_->start());
    return worker;
  }

  Result<void> exchange() override {
    for (std::size_t key = 0; key < exchange_.elements.size(); ++key) {
      TESSER_RETURN_IF_ERROR(client_->push(static_cast<std::int64_t>(key)));
    }
    TESSER_RETURN_IF_ERROR(client_->commit({&numbers_, 1}));
    return client_->wait_all();
  }

  float weight(std::size_t tensor, std::int64_t element) const override {
    return client_->weights(static_cast<std::int64_t>(tensor))[static_cast<std::size_t>(element)];
  }

 private:
  TesserWorker(const Exchange& exchange, std::unique_ptr<hub::Hub> own) : exchange_(exchange), hub_(std::move(own)) {
    numbers_.learning_rate = kLearningRate;
    numbers_.momentum = exchange.optimizer == Optimizer::kSgd ? kMomentum : 0;
    numbers_.beta1 = kBeta1;
    numbers_.beta2 = kBeta2;
    numbers_.eps = kEps;
  }

  const Exchange& exchange_;
  std::unique_ptr<hub::Hub> hub_;  // colocated; ends after the client
  std::unique_ptr<hub::Client> client_;
  hub::Hyperparameters numbers_;
};

Result<void> tell_address(Meeting& meeting, int place, const std::string& url) {
  if (url.size() >= sizeof(meeting.addresses[0])) {
    return failed("the hub's address is too long: " + url);
  }
  std::memcpy(meeting.addresses[place], url.c_str(), url.size() + 1);
  return {};
}

}  // namespace

int measure_dedicated(const Exchange& exchange, bool network) {
  const Serve serve = [&exchange, network](Meeting& meeting, const std::function<void()>& ready,
                                           const std::function<void()>& is_over) -> Result<void> {
    TESSER_ASSIGN_OR_RETURN(const std::unique_ptr<hub::Hub> server, hub::Hub::open(hub_options(exchange, "", network)));
    TESSER_RETURN_IF_ERROR(tell_address(meeting, 0, server->url()));
    ready();
    is_over();
    return {};
  };
  return measure(exchange, serve, [&](int rank, Meeting& meeting) {
    return TesserWorker::open(exchange, rank, {meeting.addresses[0]}, nullptr, network);
  });
}

int measure_colocated(const Exchange& exchange) {
  return measure(exchange, nullptr, [&](int rank, Meeting& meeting) -> Result<std::unique_ptr<Worker>> {
    const int processors = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    TESSER_ASSIGN_OR_RETURN(std::unique_ptr<hub::Hub> own,
                            hub::Hub::open(hub_options(exchange, std::to_string(rank % processors))));
    TESSER_RETURN_IF_ERROR(tell_address(meeting, rank, own->url()));
    meeting.meet();
    std::vector<std::string> hubs;
    for (int worker = 0; worker < exchange.workers; ++worker) {
      hubs.emplace_back(meeting.addresses[worker]);
    }
    return TesserWorker::open(exchange, rank, std::move(hubs), std::move(own), false);
  });
}

}  // namespace tesser::bench
