#define TESSER_TILE_SET portable
#include "runtime/kernels_fused_tile.inc"

#include <ATen/Version.h>

#include <string>

namespace tesser::runtime {

#ifdef TESSER_X86
namespace avx2 {
TileFunction function();
}
namespace avx512 {
TileFunction function();
}
#endif

TileFunction tile_function() {
#ifdef TESSER_X86
  // ATen's own choice, so that ATEN_CPU_CAPABILITY limits both alike.
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") return avx512::function();
  if (capability == "AVX2") return avx2::function();
#endif
  return portable::function();
}

}  // namespace tesser::runtime
