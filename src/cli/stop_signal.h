#pragma once

#include <atomic>

namespace tesser::cli {

// Gives SIGHUP back what it had when the process began. UCX takes it for its debug mode before main(), which would
// freeze a run whose terminal closes.
void restore_hangup();

// Whether whoever started this process has made it ignore the signal, as nohup does with SIGHUP.
bool is_ignored(int signal);

// Makes the first SIGINT, SIGTERM or SIGHUP set the returned flag and say on standard error what follows ("stopping
// after this step", a literal). A second SIGINT or SIGTERM ends the process at once, as if it were not handled; SIGHUP
// never does, since whoever ends a session sends it several times and beside SIGTERM. A SIGHUP that is ignored from the
// start, as nohup has it, stays so. From now on a command outlives its output (output.h), and a file-size limit is an
// error of the write (SIGXFSZ is ignored). Call once, before other threads start.
const std::atomic<bool>& stop_on_signal(const char* what_follows);

}  // namespace tesser::cli
