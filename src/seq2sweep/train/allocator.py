"""Have the C library and oneDNN keep the memory that they need, and no more."""

from __future__ import annotations

import ctypes
import os
import sys

CHANGES_NO_RESULT = "where memory comes from"

# Of mallopt(3), in glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
TOP_PAD = 64 << 20
CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "16"}
"""Entries of the two caches by shape: oneDNN's primitives, a fifth of a megabyte each or with AMX a
whole one, and ideep's descriptions of them, a quarter of a megabyte each in every thread. Both hold
1024 by themselves."""
PROCESS_ENVIRONMENT = CACHES | {
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "384",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_ARENA_MAX": "1",
    "TORCH_FR_BUFFER_SIZE": "64",
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
}
"""For processes that train or score, from their start: threads that are there before `keep_memory`
have arenas of their own by then, and the tunables are read before anything runs. Attention has some
fifteen new shapes an update, whose products take a millisecond each to make on a Xeon with AMX and
a megabyte to keep: with 384 of them instead of 64 the demo's update in bf16 is a fifth faster. Huge
pages (of the kernel, where it lets programs ask for them) save most page faults. The flight
recorder of torch.distributed keeps a record of each of the last 2000 sums over workers otherwise,
and so a small block in each of as many places of the heap: the holes between them fit no tensor.
The last is of a GPU's memory: batches have many shapes, and blocks of fixed size would leave holes
there too."""


def keep_memory() -> bool:
    """Reuse freed memory instead of giving it back, for the whole process; whether that took
    effect.

    Must come before the first product. glibc takes each block of more than 128 KiB to 32 MiB, a
    tensor that is, from the system and gives it back when it is freed, and the system clears every
    page of it for the next tensor. On 2 cores our update was 7 % faster without that, a plain loop
    over torch.nn.Transformer a tenth to a fifth (docs/performance.md). As nothing is given back,
    there is one heap for all threads: each trial of a sweep has a thread of its own, and would
    leave an arena of its own behind. And the caches by shape are bounded: nearly every update
    has new shapes. The allocator's options have no effect where the C library is another;
    what the user has set of the environment stays.
    """
    for name, entries in CACHES.items():
        os.environ.setdefault(name, entries)
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    # -1 stands for "never": the greatest number would be 2 GiB, which at the paper's own size are
    # free after each update. All of it comes from the heap, none by mmap.
    options = {_TRIM_THRESHOLD: -1, _TOP_PAD: TOP_PAD, _MMAP_MAX: 0, _ARENA_MAX: 1}
    return all(set_option(option, value) for option, value in options.items())
