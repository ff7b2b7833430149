"""Have the C library keep the memory that it has."""

from __future__ import annotations

import ctypes
import sys

# Of mallopt(3), in glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
TOP_PAD = 64 << 20


def keep_memory() -> bool:
    """Never give freed memory back to the system, for the whole process; whether that took effect.

    glibc takes each block of more than 128 KiB to 32 MiB, a tensor that is, from the system and
    gives it back when it is freed, and the system clears every page of it for the next tensor. On
    2 cores our update was 7 % faster for it, a plain loop over torch.nn.Transformer a tenth to a
    fifth (docs/performance.md). Has no effect where the C library is another.
    """
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    # The greatest threshold stands for "never"; all of it comes from the heap, none by mmap.
    options = {_TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: TOP_PAD, _MMAP_MAX: 0}
    return all(set_option(option, value) for option, value in options.items())
