"""Duplicates found in parts are those that a set would find."""

from __future__ import annotations

import contextlib
import tempfile
import tracemalloc
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from seq2sweep.data.deduplicate import leave_out, lines_at, lowest, repeated

DIGESTS = st.lists(st.one_of(st.integers(0, 30), st.integers(0, 2**64 - 1)), max_size=200)


def naive(values: list[int]) -> list[bool]:
    seen: set[int] = set()
    flags = []
    for value in values:
        flags.append(value in seen)
        seen.add(value)
    return flags


def array(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, np.uint64)


@contextlib.contextmanager
def written(*blocks: NDArray[np.uint64]) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as stream:
        for block in blocks:
            stream.write(block.tobytes())
        yield stream


@settings(max_examples=200)
@given(DIGESTS, st.integers(1, 250), st.integers(1, 250))
def test_repeated_is_what_a_set_says(values: list[int], part: int, block: int) -> None:
    with written(array(values)) as digests:
        flags = repeated(digests, part, block)
        assert flags.tolist() == naive(values)
        # The first position at which each of the lowest repeated digests is repeated.
        expected: dict[int, int] = {}
        for position in np.flatnonzero(flags).tolist():
            expected.setdefault(values[position], position)
        found = lowest(digests, flags, 5, block)
        assert list(found.items()) == sorted(expected.items())[:5]


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_characters="\n", codec="utf-8")), st.booleans())
    )
)
def test_flagged_lines_are_left_out(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, bool]]
) -> None:
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes("".join(text + "\n" for text, _ in lines).encode())
    positions = [position for position, (_, flag) in enumerate(lines) if flag]
    assert list(lines_at(path, positions)) == [lines[position][0] for position in positions]
    leave_out(path, np.array([flag for _, flag in lines], np.bool_))
    assert path.read_bytes() == "".join(text + "\n" for text, flag in lines if not flag).encode()
    assert list(path.parent.iterdir()) == [path]


def test_memory_does_not_grow_with_the_digests() -> None:
    pairs = 2_000_000
    draw = np.random.default_rng(0)
    values = draw.integers(0, 2**63, pairs, np.uint64)
    values[::2] = 7  # half of all are the same pair, and so of the same part
    with written(values) as digests:
        del values
        tracemalloc.start()
        flags = repeated(digests, part=100_000, block=50_000)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert flags.sum() == pairs // 2 - 1
    # The flags are 2 MB; all digests would be 16 MB, those of half the pairs 8 MB.
    assert peak < 6_000_000
