#define TESSER_TILE_SET avx2
#include "runtime/kernels_fused_tile.inc"
