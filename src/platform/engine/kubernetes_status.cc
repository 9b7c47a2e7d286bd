#include "platform/engine/kubernetes_status.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "platform/engine/kubernetes_api.h"
#include "platform/engine/kubernetes_objects.h"

namespace tesser::platform {
namespace {

const Json* condition(const Json& object, std::string_view type) {
  if (const Json* all = json_at(object, {"status", "conditions"}); all != nullptr && all->array() != nullptr) {
    for (const Json& each : *all->array()) {
      if (string_at(each, {"type"}) == type) {
        return &each;
      }
    }
  }
  return nullptr;
}

std::string words_of(const Json& object) {
  const std::string reason = string_at(object, {"reason"});
  const std::string message = string_at(object, {"message"});
  return reason.empty() || message.empty() ? reason + message : reason + ": " + message;
}

Resources resources_of(const Json* amounts) {
  Resources resources;
  resources.millicpus = 0;
  if (amounts == nullptr || amounts->object() == nullptr) {
    return resources;
  }
  for (const auto& [name, value] : *amounts->object()) {
    const std::string text = value.string() != nullptr    ? *value.string()
                             : value.integer() != nullptr ? std::to_string(*value.integer())
                                                          : "";
    if (name == "cpu") {
      resources.millicpus = quantity_in_thousandths(text).value_or(0);
    } else if (name == "memory") {
      resources.memory_bytes = quantity(text).value_or(0);
    } else if (name.find('/') != std::string::npos && !name.starts_with("hugepages") &&
               !name.starts_with("attachable-volumes")) {
      resources.accelerators[name] = quantity(text).value_or(0);
    }
  }
  return resources;
}

}  // namespace

std::optional<std::int64_t> quantity_in_thousandths(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) {
    return std::nullopt;
  }
  static const std::map<std::string_view, double> kFactors{{"n", 1e-6},
                                                           {"u", 1e-3},
                                                           {"m", 1},
                                                           {"", 1e3},
                                                           {"k", 1e6},
                                                           {"M", 1e9},
                                                           {"G", 1e12},
                                                           {"T", 1e15},
                                                           {"P", 1e18},
                                                           {"Ki", 1e3 * 0x1p10},
                                                           {"Mi", 1e3 * 0x1p20},
                                                           {"Gi", 1e3 * 0x1p30},
                                                           {"Ti", 1e3 * 0x1p40},
                                                           {"Pi", 1e3 * 0x1p50}};
  const auto factor = kFactors.find(text.substr(static_cast<std::size_t>(end - text.data())));
  if (factor == kFactors.end()) {
    return std::nullopt;
  }
  // Rounded up, but not for what the double above is off by.
  const double value = number * factor->second;
  const double nearest = std::nearbyint(value);
  const double whole = std::abs(value - nearest) <= 1e-12 * value ? nearest : std::ceil(value);
  return whole < 9e18 ? std::optional(static_cast<std::int64_t>(whole)) : std::nullopt;
}

std::optional<std::int64_t> quantity(std::string_view text) {
  const auto thousandths = quantity_in_thousandths(text);
  return thousandths ? std::optional((*thousandths + 999) / 1000) : std::nullopt;
}

KubernetesNode read_node(const Json& object) {
  KubernetesNode result;
  Node& node = result.node;
  node.name = string_at(object, {"metadata", "name"});
  node.capacity = resources_of(json_at(object, {"status", "allocatable"}));
  const auto not_ready = [&](const std::string& why) {
    node.is_ready = false;
    node.not_ready = node.not_ready.empty() ? why : node.not_ready;
  };
  const Json* ready = condition(object, "Ready");
  const std::string status = ready != nullptr ? string_at(*ready, {"status"}) : "Unknown";
  result.is_lost = status != "True" && status != "False";
  if (status != "True") {
    const std::string words = ready != nullptr ? words_of(*ready) : "";
    not_ready(words.empty() ? "its kubelet has not answered yet" : words);
  }
  if (const Json* cordoned = json_at(object, {"spec", "unschedulable"});
      cordoned != nullptr && cordoned->get<bool>() != nullptr && *cordoned->get<bool>()) {
    not_ready("is cordoned");
  }
  if (const Json* taints = json_at(object, {"spec", "taints"}); taints != nullptr && taints->array() != nullptr) {
    for (const Json& taint : *taints->array()) {
      const std::string key = string_at(taint, {"key"});
      if (string_at(taint, {"effect"}) == "PreferNoSchedule" ||
          std::find(std::begin(kToleratedTaints), std::end(kToleratedTaints), key) != std::end(kToleratedTaints)) {
        continue;
      }
      result.is_for_learners = result.is_for_learners && key.starts_with("node.kubernetes.io/");
      not_ready("has the taint " + key);
    }
  }
  // An administrator names the type of a node's accelerators by a label; else the resource's own name is the type.
  const std::string type = string_at(object, {"metadata", "labels", "tesser/accelerator"});
  std::map<std::string, std::int64_t> by_type;
  for (const auto& [name, count] : node.capacity.accelerators) {
    const std::string named = name.ends_with("/gpu") && !type.empty() ? type : name;
    by_type[named] = count;
    result.accelerators[named] = name;
  }
  node.capacity.accelerators = std::move(by_type);
  return result;
}

Resources requested_by(const Json& pod) {
  Resources sum;
  sum.millicpus = 0;
  if (const Json* containers = json_at(pod, {"spec", "containers"});
      containers != nullptr && containers->array() != nullptr) {
    for (const Json& each : *containers->array()) {
      const Resources one = resources_of(json_at(each, {"resources", "requests"}));
      sum.millicpus += one.millicpus;
      sum.memory_bytes += one.memory_bytes;
      for (const auto& [name, count] : one.accelerators) {
        sum.accelerators[name] += count;
      }
    }
  }
  return sum;
}

std::optional<int> integer_label(const Json& object, const char* label) {
  const std::string text = string_at(object, {"metadata", "labels", label});
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

bool has_not_begun(const Json& pod) {
  constexpr std::string_view kReasons[] = {"ErrImagePull",     "ImagePullBackOff",           "ErrImageNeverPull",
                                           "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"};
  const Json* all = json_at(pod, {"status", "containerStatuses"});
  if (all == nullptr || all->array() == nullptr || all->array()->empty()) {
    return false;
  }
  const std::string reason = string_at(all->array()->front(), {"state", "waiting", "reason"});
  return std::find(std::begin(kReasons), std::end(kReasons), reason) != std::end(kReasons);
}

std::string reason_of(const Json& pod) {
  if (const Json* all = json_at(pod, {"status", "containerStatuses"});
      all != nullptr && all->array() != nullptr && !all->array()->empty()) {
    const Json& first = all->array()->front();
    for (const char* state : {"waiting", "terminated"}) {
      const Json* found = json_at(first, {"state", state});
      if (found == nullptr) {
        continue;
      }
      const std::string words = words_of(*found);
      if (words != "Completed" && words != "ContainerCreating") {
        return words == "Error" || words.empty() ? "" : words;
      }
    }
  }
  const Json* status = pod.find("status");
  if (const std::string words = status != nullptr ? words_of(*status) : ""; !words.empty()) {
    return words;  // evicted, or refused by the node
  }
  const Json* scheduled = condition(pod, "PodScheduled");
  return scheduled != nullptr && string_at(*scheduled, {"status"}) == "False" ? words_of(*scheduled) : "";
}

std::optional<LearnerStatus> read_learner(const Json& pod) {
  const auto attempt = integer_label(pod, kAttemptLabel);
  const auto rank = integer_label(pod, kRankLabel);
  if (!attempt || !rank) {
    return std::nullopt;
  }
  LearnerStatus status;
  status.attempt = *attempt;
  status.rank = *rank;
  status.node = string_at(pod, {"spec", "nodeName"});
  status.reason = reason_of(pod);
  const std::string phase = string_at(pod, {"status", "phase"});
  if (phase == "Running") {
    status.state = LearnerState::kRunning;
  } else if (phase == "Succeeded" || phase == "Failed") {
    status.state = LearnerState::kEnded;
  } else if (phase == "Unknown") {
    status.state = LearnerState::kLost;
  }
  return status;
}

}  // namespace tesser::platform
