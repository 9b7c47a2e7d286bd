#define TESSER_TILE_SET avx512
#include "runtime/kernels_fused_tile.inc"
