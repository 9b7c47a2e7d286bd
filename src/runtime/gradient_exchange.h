// What the executor of a replica needs to hand gradients to a hub and to read the weights that the hub updates. No ATen
// type and no hub type appears here.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "runtime/passes/push_gradients.h"

namespace tesser::runtime {

// `number` counts the parameters of updates(). All functions belong to the executor's thread; after an error the
// exchange is of no more use.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  virtual const Updates& updates() const = 0;
  // Where the gradient is put, by kernels or as a copy: as many elements as the parameter has, in the order in which
  // the executor keeps it, and always the same memory. It may change from wait() until push().
  virtual std::span<float> gradient(std::size_t number) = 0;
  // The gradient is there, and the weights are no longer read. Does not block.
  virtual Result<void> push(std::size_t number) = 0;
  // Blocks until the weights of the last step that was pushed are there.
  virtual Result<void> wait(std::size_t number) = 0;
};

}  // namespace tesser::runtime
