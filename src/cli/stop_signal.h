#pragma once

#include <atomic>

namespace tesser::cli {

// Makes the first SIGINT or SIGTERM set the returned flag and say on standard error what follows ("stopping after this
// step", a literal); a second one ends the process at once, as if it were not handled. Also ignores SIGXFSZ, so that a
// file-size limit is an error of the write and not the end of the process. Call once, before other threads start.
const std::atomic<bool>& stop_on_signal(const char* what_follows);

}  // namespace tesser::cli
