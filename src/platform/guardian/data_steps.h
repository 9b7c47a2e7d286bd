// What a guardian does with a job's data stores: fetches them before the commands begin, and stores the results after.
//
// Both may be repeated after a death at any moment, and end soon after `stop` is set, with kFailed. kFailed when
// another try may help (the network, a full disk); other errors are final: what is named in the manifest is not there,
// or is refused.
#pragma once

#include <atomic>

#include "base/result.h"
#include "platform/job/manifest.h"
#include "platform/job/volume.h"

namespace tesser::platform {

// Makes DATA/STORE for each data store: of a host directory a link, since all nodes see it.
Result<void> fetch_stores(const Manifest& manifest, const Volume& volume, const std::atomic<bool>& stop);

// Copies RESULT_DIR where the manifest's `results` says; without it they stay on the volume.
Result<void> store_results(const Manifest& manifest, const Volume& volume, const std::atomic<bool>& stop);

}  // namespace tesser::platform
