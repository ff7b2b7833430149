"""Training text written, counted and rid of duplicates across chunks and corpora."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.config import PrepareConfig
from seq2sweep.data.clean import NORMALISERS, REASONS, SAMPLES, Cleaned, Cleaner, Pair
from seq2sweep.data.clean_writer import as_table, write_training

CONFIG = PrepareConfig(
    normalise=NORMALISERS, lowercase=False, drop=REASONS, max_words=20, max_ratio=3.0
)


def chunks(cleaner: Cleaner, pairs: Sequence[Pair], size: int) -> Iterator[Cleaned]:
    return (cleaner(pairs[i : i + size]) for i in range(0, len(pairs), size))


def written(
    folder: Path, corpora: dict[str, list[Pair]], size: int = 3, drop: Sequence[str] = REASONS
) -> tuple[list[Pair], dict[str, Any], list[list[str]]]:
    """The pairs that are left, their metrics, and the rows of the table of samples."""
    cleaner = Cleaner(PrepareConfig(**{**vars(CONFIG), "drop": drop}), "en", "de")
    paths = folder / "source", folder / "target"
    texts = ((name, chunks(cleaner, pairs, size)) for name, pairs in corpora.items())
    metrics, samples = write_training(paths, texts, cleaner)
    assert sorted(folder.iterdir()) == sorted(paths)
    source, target = (path.read_bytes().decode().split("\n") for path in paths)
    assert source.pop() == target.pop() == ""
    rows = as_table(samples).split("\n")
    assert rows.pop() == ""
    return (
        list(zip(source, target, strict=True)),
        metrics,
        [row.split("\t") for row in rows],
    )


CORPORA: dict[str, list[Pair]] = {
    "one": [("a", "A"), ("b", "B"), ("a ", "A"), ("", "C"), ("c", "D"), ("b", "B"), ("b", "X")],
    "two": [("a", "A"), ("", "")],
    "three": [("d", "E"), ("c", "D"), ("d", "E")],
}


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_duplicates_are_found_across_chunks_and_corpora(tmp_path: Path, size: int) -> None:
    pairs, metrics, rows = written(tmp_path, CORPORA, size)
    assert pairs == [("a", "A"), ("b", "B"), ("c", "D"), ("b", "X"), ("d", "E")]
    none = dict.fromkeys(REASONS, 0)
    assert metrics == {
        "read": 12,
        "kept": 5,
        "dropped": {**none, "empty": 2, "duplicate": 5},
        "changed": {"invisible": 0, "unicode": 0, "whitespace": 1},
        "corpora": {
            "one": {"read": 7, "kept": 4, "dropped": {**none, "empty": 1, "duplicate": 2}},
            "two": {"read": 2, "kept": 0, "dropped": {**none, "empty": 1, "duplicate": 1}},
            "three": {"read": 3, "kept": 1, "dropped": {**none, "duplicate": 2}},
        },
    }
    # Each text once, at the place where it is dropped first.
    assert rows == [
        ["reason", "corpus", "line", "source", "target"],
        ["empty", "one", "4", "", "C"],
        ["empty", "two", "2", "", ""],
        ["duplicate", "one", "3", "a", "A"],
        ["duplicate", "one", "6", "b", "B"],
        ["duplicate", "three", "2", "c", "D"],
        ["duplicate", "three", "3", "d", "E"],
    ]


def test_duplicates_may_stay(tmp_path: Path) -> None:
    pairs, metrics, rows = written(tmp_path, CORPORA, drop=("empty",))
    assert len(pairs) == metrics["kept"] == 10
    assert metrics["dropped"] == {"empty": 2}
    assert len(rows) == 3


def test_nothing_read_and_nothing_left(tmp_path: Path) -> None:
    for corpora in ({}, {"none": []}, {"empty": [("", "")]}):
        pairs, metrics, _ = written(tmp_path, corpora)
        assert pairs == []
        assert metrics["kept"] == 0


def test_many_random_pairs_are_those_of_a_dictionary(tmp_path: Path) -> None:
    draw = random.Random(0)
    corpora = {
        name: [(str(draw.randrange(300)), str(draw.randrange(5))) for _ in range(2000)]
        for name in ("one", "two")
    }
    pairs, metrics, rows = written(tmp_path, corpora, size=37)
    everything = [*corpora["one"], *corpora["two"]]
    assert pairs == list(dict.fromkeys(everything))
    assert metrics["dropped"]["duplicate"] == len(everything) - len(pairs)
    assert len(rows) == 1 + SAMPLES
    for _, corpus, line, source, target in rows[1:]:
        position = (corpus == "two") * 2000 + int(line) - 1
        assert everything[position] == (source, target)
        assert everything[:position].count((source, target)) == 1
    assert written(tmp_path, corpora, size=1000) == (pairs, metrics, rows)


def test_a_table_has_one_row_a_sample_whatever_is_in_it(tmp_path: Path) -> None:
    cleaner = Cleaner(PrepareConfig((), False, ("too_long",), 1, 3.0), "en", "de")
    chunk = cleaner([("a\tb\x85c\r\u2028d", "x" * 5000)])
    paths = tmp_path / "s", tmp_path / "t"
    _, samples = write_training(paths, [("one", [chunk])], cleaner)
    header, row = as_table(samples).splitlines()
    assert row.split("\t") == ["too_long", "one", "1", "a b c d", "x" * 299 + "…"]
    assert header.count("\t") == row.count("\t")
