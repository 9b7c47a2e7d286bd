// Stands in for ucx_verbs_worker.cc where UCX is not there at build time.

#include "transport/ucx_worker.h"

namespace tesser::transport {

std::string ucx_description() {
  return "not in this build: UCX was not found when tesser was built (Debian: libucx-dev)";
}

std::vector<std::string> ucx_adapters(const UcxOptions&) { return {}; }

std::string why_no_rdma(const UcxOptions&) { return ucx_description(); }

Outcome<std::shared_ptr<UcxWorker>> UcxWorker::open(const UcxOptions&, UcxEvents) {
  return failure(FailureKind::kUnavailable, "",
                 "this tesser was built without UCX and reaches peers on the same machine only; install libucx-dev and "
                 "build again");
}

}  // namespace tesser::transport
