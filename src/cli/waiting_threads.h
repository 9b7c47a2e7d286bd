// How long threads of kernels wait for one another before they sleep.
#pragma once

namespace tesser::cli {

// Lets waiting threads of programs that this process becomes or starts spin for 0.1 ms, where the environment does not
// say otherwise (docs/runtime.md, waiting threads). OpenMP reads it when its library is loaded.
void bound_spinning();

}  // namespace tesser::cli
