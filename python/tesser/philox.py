"""Counter-based random numbers, Philox4x32-10, as docs/formats/operators.md lays them out: the reference the C++
kernels are tested against.

Every function fills elements ``0 .. count - 1`` of one operator's tensor in row-major order, from (seed, step, id)
alone.
"""

from __future__ import annotations

import numpy as np

MULTIPLIER_0 = 0xD2511F53
MULTIPLIER_1 = 0xCD9E8D57
WEYL_0 = 0x9E3779B9
WEYL_1 = 0xBB67AE85
ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
# Blocks per pass: its temporaries stay inside the cache.
_CHUNK = 1 << 14


def philox_blocks(counters: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Philox4x32-10 of counters, uint32[N, 4], under one key of two 32-bit words; returns uint32[N, 4]."""
    c0, c1, c2, c3 = (counters[:, word].astype(np.uint64) for word in range(4))
    key_0, key_1 = key
    for _ in range(ROUNDS):
        product_0 = c0 * np.uint64(MULTIPLIER_0)
        product_1 = c2 * np.uint64(MULTIPLIER_1)
        c0 = (product_1 >> _SHIFT) ^ c1 ^ np.uint64(key_0)
        c1 = product_1 & _LOW
        c2 = (product_0 >> _SHIFT) ^ c3 ^ np.uint64(key_1)
        c3 = product_0 & _LOW
        key_0 = (key_0 + WEYL_0) & 0xFFFFFFFF
        key_1 = (key_1 + WEYL_1) & 0xFFFFFFFF
    return np.stack((c0, c1, c2, c3), axis=1).astype(np.uint32)


def words(count: int, seed: int, step: int, operator: int) -> np.ndarray:
    """The first `count` words of an operator's stream: word i mod 4 of block i div 4; uint32[count]."""
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    block_count = (count + 3) // 4
    stream = np.empty((block_count, 4), dtype=np.uint32)
    for begin in range(0, block_count, _CHUNK):
        end = min(begin + _CHUNK, block_count)
        block = np.arange(begin, end, dtype=np.uint64)
        counters = np.empty((end - begin, 4), dtype=np.uint32)
        counters[:, 0] = block & _LOW
        counters[:, 1] = block >> _SHIFT
        counters[:, 2] = operator & 0xFFFFFFFF
        counters[:, 3] = step & 0xFFFFFFFF
        stream[begin:end] = philox_blocks(counters, key)
    return stream.reshape(-1)[:count]


def uniforms(count: int, seed: int, step: int, operator: int) -> np.ndarray:
    """float32[count] in [0, 1), multiples of 2^-24."""
    return (words(count, seed, step, operator) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normals(count: int, mean: float, std: float, seed: int, step: int, operator: int) -> np.ndarray:
    """float32[count]: Box-Muller in double precision, rounded once."""
    pairs = words(2 * ((count + 1) // 2), seed, step, operator).reshape(-1, 2) >> np.uint32(8)
    u1 = (pairs[:, 0].astype(np.float64) + 1.0) * 2.0**-24
    angle = (2.0 * np.pi) * (pairs[:, 1].astype(np.float64) * 2.0**-24)
    radius = std * np.sqrt(-2.0 * np.log(u1))
    values = np.stack((mean + radius * np.cos(angle), mean + radius * np.sin(angle)), axis=1)
    return values.reshape(-1)[:count].astype(np.float32)


def integers(count: int, low: int, high: int, seed: int, step: int, operator: int) -> np.ndarray:
    """int64[count] in [low, high); high - low must be 1 .. 2^32."""
    scaled = (words(count, seed, step, operator).astype(np.uint64) * np.uint64(high - low)) >> _SHIFT
    return scaled.astype(np.int64) + np.int64(low)
