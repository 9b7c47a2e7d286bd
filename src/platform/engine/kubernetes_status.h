// What Kubernetes' objects say: quantities, and what a node's and a pod's status mean for learners.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "platform/engine/engine.h"

namespace tesser::platform {

// Taints of nodes that are for learners all the same, who tolerate them.
inline constexpr std::string_view kToleratedTaints[] = {"nvidia.com/gpu", "amd.com/gpu", "tesser"};

// "250m", "1.5", "16Gi", "1e3" in thousandths, rounded up; nothing when it is no quantity or does not fit.
std::optional<std::int64_t> quantity_in_thousandths(std::string_view text);
std::optional<std::int64_t> quantity(std::string_view text);  // rounded up

struct KubernetesNode {
  Node node;
  bool is_lost = false;                             // its kubelet does not answer
  bool is_for_learners = true;                      // not tainted for others
  std::map<std::string, std::string> accelerators;  // by type, the resource's name
};
// Of a Node object. Capacity is what is allocatable.
KubernetesNode read_node(const Json& object);
// What the containers of a pod request together.
Resources requested_by(const Json& pod);
// Whether nothing of a pod runs or can begin to, since its container cannot be made: there is no image, say.
bool has_not_begun(const Json& pod);
// Of a learner's pod, whose node's state is known apart; nothing when labels are missing.
std::optional<LearnerStatus> read_learner(const Json& pod);
std::optional<int> integer_label(const Json& object, const char* label);
// Why a pod waits or has ended, in the words of Kubernetes; may be empty.
std::string reason_of(const Json& pod);

}  // namespace tesser::platform
