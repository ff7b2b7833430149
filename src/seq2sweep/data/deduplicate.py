"""Pairs that came before, found among any number of them in bounded memory.

Each pair is known by a 64-bit digest. Digests lie in a file; one part of them after another, by
their remainder, is looked through from the beginning to the end. The text is written meanwhile, and
a last pass leaves the repeated lines out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

Digests64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]

PART = 4_000_000
"""Different digests in memory at once, about: 8 bytes each, three times while they are merged."""
BLOCK = 1_000_000
"""Digests read at once."""


def repeated(digests: BinaryIO, part: int = PART, block: int = BLOCK) -> Flags:
    """Which pairs came before: bool [pairs], one byte each.

    digests: uint64 of each pair in the order of the text, in a file of the system. Neither `part`
    nor `block` changes the result.
    """
    count = digests.seek(0, 2) // 8
    flags = np.zeros(count, np.bool_)
    parts = -(-count // part)
    for remainder in range(parts):
        seen = np.empty(0, np.uint64)
        for start, values in _blocks(digests, block):
            positions = np.flatnonzero(values % np.uint64(parts) == remainder)
            different, first = np.unique(values[positions], return_index=True)
            new = ~_contains(seen, different)
            flags[start + positions] = True
            flags[start + positions[first[new]]] = False
            # Two sorted runs, which a stable sort merges.
            seen = np.sort(np.concatenate([seen, different[new]]), kind="stable")
    return flags


def lowest(digests: BinaryIO, flags: Flags, most: int, block: int = BLOCK) -> dict[int, int]:
    """The `most` lowest different flagged digests, rising, and the first position of each."""
    found: dict[int, int] = {}
    for start, values in _blocks(digests, block):
        positions = np.flatnonzero(flags[start : start + len(values)])
        different, first = np.unique(values[positions], return_index=True)
        places = (start + positions[first[:most]]).tolist()
        found = dict(zip(different[:most].tolist(), places, strict=True)) | found
        found = dict(sorted(found.items())[:most])
    return found


def leave_out(path: Path, flags: Flags) -> None:
    """Write a text anew without its flagged lines; bytes are copied, nothing is decoded."""
    beside = path.with_name(path.name + ".rest")
    with path.open("rb") as lines, beside.open("wb") as rest:
        rest.writelines(itertools.compress(lines, (~flags).tobytes()))
    beside.replace(path)


def lines_at(path: Path, positions: Sequence[int]) -> Iterator[str]:
    """The lines at rising positions (from 0), without their ends."""
    with path.open("rb") as stream:
        passed = 0
        for position in positions:
            line = next(itertools.islice(stream, position - passed, None))
            passed = position + 1
            yield line.decode().removesuffix("\n")


def _blocks(digests: BinaryIO, block: int) -> Iterator[tuple[int, Digests64]]:
    """All digests, `block` at a time, each block with the position of its first."""
    start = 0
    digests.seek(0)
    while len(values := np.fromfile(digests, "<u8", block)):
        yield start, values
        start += len(values)


def _contains(rising: Digests64, values: Digests64) -> Flags:
    """Whether each value is among the rising ones, bool [values]."""
    if len(rising) == 0:
        return np.zeros(len(values), np.bool_)
    places = np.searchsorted(rising, values)
    return np.asarray(rising[np.minimum(places, len(rising) - 1)] == values)
