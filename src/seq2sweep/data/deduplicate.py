"""Pairs that came before, found among any number of them in bounded memory.

Each pair is known by a 64-bit digest. Digests wait in a temporary file; then one part of them
after another, by their remainder, is looked through from the beginning to the end. The text is
written meanwhile, and a last pass leaves the repeated lines out.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

Digests64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]

PART = 4_000_000
"""Different digests in memory at once, about: 8 bytes each, three times while they are merged."""
BLOCK = 1_000_000
"""Digests read at once."""


class DigestFile:
    """Digests of pairs in the order of the text, in a temporary file without a name."""

    def __init__(self, folder: Path) -> None:
        """The file is on the disk of `folder` and gone with the process, however that ends."""
        self._stream = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._count = 0

    def __enter__(self) -> DigestFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stream.close()

    def __len__(self) -> int:
        return self._count

    def add(self, digests: Digests64) -> None:
        """Append the digests [n] of the next n pairs."""
        self._stream.seek(0, 2)
        self._stream.write(digests.astype("<u8").tobytes())
        self._count += len(digests)

    def blocks(self, block: int = BLOCK) -> Iterator[tuple[int, Digests64]]:
        """All digests, `block` at a time, each block with the position of its first."""
        for start in range(0, self._count, block):
            self._stream.seek(8 * start)
            size = min(block, self._count - start)
            yield start, np.frombuffer(self._stream.read(8 * size), "<u8")

    def repeated(self, part: int = PART, block: int = BLOCK) -> Flags:
        """Which pairs came before: bool [pairs], one byte each.

        Neither `part` nor `block` changes the result.
        """
        flags = np.zeros(self._count, np.bool_)
        parts = -(-self._count // part)
        for remainder in range(parts):
            seen = np.empty(0, np.uint64)
            for start, digests in self.blocks(block):
                positions = np.flatnonzero(digests % np.uint64(parts) == remainder)
                different, first = np.unique(digests[positions], return_index=True)
                new = ~_contains(seen, different)
                flags[start + positions] = True
                flags[start + positions[first[new]]] = False
                # Two sorted runs, which a stable sort merges.
                seen = np.sort(np.concatenate([seen, different[new]]), kind="stable")
        return flags

    def lowest(self, flags: Flags, most: int, block: int = BLOCK) -> list[tuple[int, int]]:
        """Digest and position of the `most` lowest different flagged digests, rising.

        The position is that of the first flagged pair of that digest.
        """
        lowest: dict[int, int] = {}
        for start, digests in self.blocks(block):
            positions = np.flatnonzero(flags[start : start + len(digests)])
            different, first = np.unique(digests[positions], return_index=True)
            for digest, position in zip(
                different[:most].tolist(), (start + positions[first[:most]]).tolist(), strict=True
            ):
                lowest.setdefault(digest, position)
            lowest = dict(sorted(lowest.items())[:most])
        return list(lowest.items())


def leave_out(path: Path, flags: Flags) -> None:
    """Write a text anew without its flagged lines; bytes are copied, nothing is decoded."""
    beside = path.with_name(path.name + ".rest")
    with path.open("rb") as lines, beside.open("wb") as rest:
        rest.writelines(itertools.compress(lines, _kept(flags)))
    beside.replace(path)


def lines_at(path: Path, positions: Sequence[int]) -> Iterator[str]:
    """The lines at rising positions (from 0), without their ends."""
    with path.open("rb") as stream:
        passed = 0
        for position in positions:
            line = next(itertools.islice(stream, position - passed, None))
            passed = position + 1
            yield line.decode().removesuffix("\n")


def _contains(rising: Digests64, values: Digests64) -> Flags:
    """Whether each value is among the rising ones, bool [values]."""
    if len(rising) == 0:
        return np.zeros(len(values), np.bool_)
    places = np.searchsorted(rising, values)
    return np.asarray(rising[np.minimum(places, len(rising) - 1)] == values)


def _kept(flags: Flags) -> Iterator[int]:
    """0 for a flagged line, 1 for another; a block at a time is in memory."""
    blocks = (flags[start : start + BLOCK] for start in range(0, len(flags), BLOCK))
    return itertools.chain.from_iterable((~block).tobytes() for block in blocks)
