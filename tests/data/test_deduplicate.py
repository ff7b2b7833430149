"""Duplicates found in parts are those that a set would find."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from seq2sweep.data.deduplicate import DigestFile, leave_out, lines_at

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


@settings(max_examples=200)
@given(DIGESTS, st.integers(1, 250), st.integers(1, 250), st.integers(0, 200))
def test_repeated_is_what_a_set_says(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], part: int, block: int, cut: int
) -> None:
    with DigestFile(tmp_path_factory.getbasetemp()) as digests:
        digests.add(array(values[:cut]))
        digests.add(array(values[cut:]))
        assert len(digests) == len(values)
        flags = digests.repeated(part, block)
        assert flags.tolist() == naive(values)
        # The first position at which each of the lowest repeated digests is repeated.
        expected: dict[int, int] = {}
        for position in np.flatnonzero(flags).tolist():
            expected.setdefault(values[position], position)
        assert digests.lowest(flags, 5, block) == sorted(expected.items())[:5]


def test_digests_can_be_added_after_they_were_read(tmp_path: Path) -> None:
    with DigestFile(tmp_path) as digests:
        digests.add(array([1, 2]))
        assert not digests.repeated().any()
        digests.add(array([2, 3]))
        assert digests.repeated().tolist() == [False, False, True, False]


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    with DigestFile(tmp_path) as digests:
        digests.add(array([1, 1]))
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="closed"):
        digests.add(array([1]))


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


def test_memory_does_not_grow_with_the_digests(tmp_path: Path) -> None:
    pairs, block = 2_000_000, 50_000
    draw = np.random.default_rng(0)
    with DigestFile(tmp_path) as digests:
        for _ in range(0, pairs, block):
            values = draw.integers(0, 2**63, block, np.uint64)
            values[::2] = 7  # half of all are the same pair, and so of the same part
            digests.add(values)
        tracemalloc.start()
        flags = digests.repeated(part=100_000, block=block)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert flags.sum() == pairs // 2 - 1
    # The flags are 2 MB; all digests would be 16 MB, those of half the pairs 8 MB.
    assert peak < 6_000_000
