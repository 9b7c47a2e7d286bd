"""The order of the samples of an epoch, as ``docs/formats/data.md`` defines it and the runtime computes it."""

from __future__ import annotations

import numpy as np

from tesser import philox

_STREAM = 0xFFFFFFFF


def order(seed: int, epoch: int, samples: int) -> np.ndarray:
    """Returns the permutation of ``range(samples)``, int64, in which ``tesser train --seed SEED`` visits an epoch.

    Epochs count from 0. Batch b of size B takes elements ``b * B`` to ``b * B + B - 1``; elements that do not fill a
    batch are left out of the epoch.
    """
    permutation = list(range(samples))
    words = philox.words(2 * max(samples - 1, 0), seed, epoch, _STREAM).astype(np.uint64)
    numbers = (words[0::2] | (words[1::2] << np.uint64(32))).tolist()
    for number, i in zip(numbers, range(samples - 1, 0, -1), strict=True):
        j = (number * (i + 1)) >> 64
        permutation[i], permutation[j] = permutation[j], permutation[i]
    return np.array(permutation, dtype=np.int64)
