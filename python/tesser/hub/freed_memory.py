"""What becomes of the memory of tensors that are no longer needed."""

from __future__ import annotations

import ctypes
import os

# Of glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MOST_KEPT = 2**31 - 1
LARGEST_KEPT = 1 << 28
# With which users say themselves what shall happen.
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def keep() -> None:
    """Lets malloc keep what is freed for what is allocated next, up to 2 GiB in blocks of at most 256 MiB.

    A backward pass allocates each gradient anew, and each is free again once it has been copied for the hub. By default
    glibc gives such blocks back to the system, so that every step has all its pages made, zeroed and mapped again: 20
    to 50 ms a step of ResNet-18. The process is as large as at its largest then, and no larger. Where the user has set
    malloc's variables, or another allocator is there, nothing happens.
    """
    if any(name in os.environ for name in VARIABLES):
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_TRIM_THRESHOLD, MOST_KEPT)
        set_option(M_MMAP_THRESHOLD, LARGEST_KEPT)
