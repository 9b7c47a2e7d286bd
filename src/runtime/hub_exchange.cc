#include "runtime/hub_exchange.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

namespace tesser::runtime {
namespace {

// How often a waiting worker asks whether it is still wanted.
constexpr std::chrono::milliseconds kWaitSlice{100};
// For the other replicas to prepare; a run that ends ends this worker too.
constexpr std::chrono::minutes kPatience{10};

std::span<float> floats(std::span<std::byte> memory) {
  return {reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float)};
}

hub::ParameterGroup group_of(const UpdateRule& rule) {
  hub::ParameterGroup group;
  group.algorithm = rule.is_adam ? hub::Algorithm::kAdam : hub::Algorithm::kSgd;
  group.has_momentum = rule.momentum != 0;
  group.nesterov = rule.nesterov;
  group.decoupled_weight_decay = rule.decoupled_weight_decay;
  group.amsgrad = rule.amsgrad;
  group.maximize = rule.maximize;
  return group;
}

hub::Hyperparameters numbers_of(const UpdateRule& rule, double learning_rate) {
  return {learning_rate, rule.momentum, rule.dampening, rule.weight_decay, rule.beta1, rule.beta2, rule.eps};
}

}  // namespace

HubExchange::HubExchange(const graph::Program& program, Updates updates, HubExchangeOptions options)
    : schedules_(program.schedules), updates_(std::move(updates)), options_(std::move(options)) {
  for (const graph::ValueId id : program.inputs) {
    names_.resize(std::max(names_.size(), static_cast<std::size_t>(id) + 1));
    elements_.resize(names_.size());
    names_[static_cast<std::size_t>(id)] = program.value(id).name;
    elements_[static_cast<std::size_t>(id)] = program.value(id).elements();
  }
  for (const UpdatedParameter& each : updates_.parameters) {
    bytes_ += program.value(each.parameter).bytes();
  }
}

hub::JobSettings HubExchange::settings() const {
  hub::JobSettings settings;
  settings.replicas = options_.replicas;
  for (const UpdateRule& rule : updates_.rules) {
    settings.groups.push_back(group_of(rule));
  }
  for (const UpdatedParameter& each : updates_.parameters) {
    settings.keys.push_back({name(each.parameter), elements_[static_cast<std::size_t>(each.parameter)],
                             static_cast<std::int64_t>(each.rule)});
    settings.keys.back().in_norm = options_.clip_parts == 1 || options_.clip_values.contains(name(each.parameter));
  }
  settings.clip_norm = options_.clip_norm;
  if (options_.clip_norm > 0 && options_.clip_parts > 1) {
    settings.norm_group = options_.clip_group;
    settings.norm_jobs = options_.clip_parts;
    settings.norm_job = options_.clip_part;
  }
  settings.update_time = hub::UpdateTime::kAtOnce;
  settings.on_loss = hub::OnLoss::kStop;
  return settings;
}

Result<void> HubExchange::connect(Executor& executor, std::int64_t step) {
  if (updates_.parameters.empty()) {
    return {};
  }
  hub::ClientOptions client_options;
  client_options.hubs = {options_.hub};
  client_options.token = options_.token;
  client_options.job = options_.job;
  client_options.nonce = options_.nonce;
  client_options.rank = options_.replica;
  client_options.settings = settings();
  client_options.through_network = options_.network;
  client_options.patience = kPatience;
  TESSER_ASSIGN_OR_RETURN(client_, hub::Client::join(std::move(client_options)));
  const bool is_first = options_.replica == 0;
  for (std::size_t number = 0; number < updates_.parameters.size(); ++number) {
    const UpdatedParameter& updated = updates_.parameters[number];
    const auto key = static_cast<std::int64_t>(number);
    if (is_first) {
      client_->set_initial(key, floats(executor.state_memory(name(updated.parameter))));
      client_->set_initial_updates(key, step);
    }
    for (std::size_t i = 0; i < updated.state.size(); ++i) {
      if (is_first && step > 0) {  // before the first step it is zeros, as the hub's is
        TESSER_RETURN_IF_ERROR(client_->set_initial_state(key, static_cast<int>(i),
                                                          floats(executor.state_memory(name(updated.state[i])))));
      }
    }
  }
  TESSER_RETURN_IF_ERROR(client_->start());
  for (std::size_t number = 0; number < updates_.parameters.size(); ++number) {
    const std::span<float> weights = client_->weights(static_cast<std::int64_t>(number));
    executor.place_state(name(updates_.parameters[number].parameter), reinterpret_cast<std::byte*>(weights.data()));
    bytes_ += client_->shares_weights() ? 0 : static_cast<std::int64_t>(weights.size_bytes());
  }
  forget_state(executor);
  return {};
}

Result<void> HubExchange::begin_step(std::int64_t step) {
  if (client_ == nullptr) {
    return {};
  }
  // The numbers are there before the gradients, so a chunk is updated as soon as all replicas have given theirs.
  std::vector<hub::Hyperparameters> numbers;
  for (const UpdateRule& rule : updates_.rules) {
    numbers.push_back(numbers_of(rule, schedules_[static_cast<std::size_t>(rule.schedule)].at(step)));
  }
  const Result<void> outcome = client_->commit(numbers);
  has_failed_ = !outcome;
  return outcome;
}

Result<void> HubExchange::wait_all() {
  for (std::size_t number = 0; client_ != nullptr && number < updates_.parameters.size(); ++number) {
    TESSER_RETURN_IF_ERROR(wait(number));
  }
  return {};
}

Result<void> HubExchange::fetch_state(Executor& executor) {
  for (std::size_t number = 0; client_ != nullptr && number < updates_.parameters.size(); ++number) {
    const UpdatedParameter& updated = updates_.parameters[number];
    for (std::size_t i = 0; i < updated.state.size(); ++i) {
      TESSER_RETURN_IF_ERROR(client_->read_state(static_cast<std::int64_t>(number), static_cast<int>(i),
                                                 floats(executor.state_memory(name(updated.state[i])))));
    }
  }
  return {};
}

void HubExchange::forget_state(Executor& executor) {
  for (const UpdatedParameter& updated : updates_.parameters) {
    for (const graph::ValueId state : updated.state) {
      executor.forget_state(name(state));
    }
  }
}

Result<void> HubExchange::leave() { return client_ == nullptr ? Result<void>() : client_->leave(); }

void HubExchange::abandon() {
  if (client_ != nullptr) {
    client_->abandon();
  }
}

std::string HubExchange::path() const {
  if (client_ == nullptr) {
    return "";
  }
  std::string path = client_->paths().front().substr(options_.hub.size() + 2);  // without the hub's address
  return path.insert(std::min(path.find(" ("), path.size()), " to the hub");
}

ExchangeReport HubExchange::take_report() { return std::exchange(report_, {}); }

std::span<float> HubExchange::gradient(std::size_t number) {
  return floats(client_->gradient(static_cast<std::int64_t>(number)));
}

Result<void> HubExchange::push(std::size_t number) {
  const auto begin = std::chrono::steady_clock::now();
  const Result<void> outcome = client_->push(static_cast<std::int64_t>(number));
  has_failed_ = !outcome;
  report_.transfer_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report_.sent_bytes += static_cast<std::int64_t>(client_->gradient(static_cast<std::int64_t>(number)).size_bytes());
  return outcome;
}

Result<void> HubExchange::wait(std::size_t number) {
  const auto begin = std::chrono::steady_clock::now();
  Result<void> outcome;
  while (true) {
    const Result<bool> current = client_->wait_for(static_cast<std::int64_t>(number), kWaitSlice);
    if (!current) {
      outcome = tl::unexpected<Error>(current.error());
      has_failed_ = true;
      break;
    }
    if (*current) {
      break;
    }
    if (options_.cancelled()) {
      outcome = failed("the run has ended");
      break;
    }
  }
  report_.waiting_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

}  // namespace tesser::runtime
