// What the pod of a learner leaves on the job's volume once nothing of the learner runs in it any more, so that nobody
// has to wait until the node's kubelet has seen that, which looks once a second:
//
//   attempts/N/kubernetes/ended-UID   of the pod with this identity: the learner's exit code, and how many of its
//                                     processes the system has killed for memory
//
// Learners may write there, to their own harm: a pod that is said to have ended is deleted without waiting for it.
// One thread at a time per object.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/json.h"

namespace tesser::platform {

std::filesystem::path marks_directory(const std::filesystem::path& volume, int attempt);

// Why the learner of this pod has ended, in the words of Kubernetes and mostly none; nothing as long as it is not
// marked, or where the pod is no learner's. Asks the file system anew, also where that is another machine's.
std::optional<std::string> marked_end(const Json& pod);

// Pods whose marks are waited for.
class AwaitedMarks {
 public:
  void clear() { names_.clear(); }
  void add(const Json& pod);
  // Whether one of the marks is there.
  bool is_any_there() const;

 private:
  std::map<std::filesystem::path, std::set<std::string>> names_;  // by directory
};

}  // namespace tesser::platform
