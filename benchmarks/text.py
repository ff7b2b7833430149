"""Aligned text of any size for measurements: halves of real sentence pairs put together anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import phrasebook
from seq2sweep.data import reading

BASE_PAIRS = 50_000
JOINED_EVERY = 40
"""One word in so many is two words in one: real text never runs out of words never seen."""


def pairs(
    count: int, text: tuple[Path, Path] | None = None, seed: int = 1
) -> Iterator[tuple[str, str]]:
    """`count` pairs, hardly two of them the same.

    text: two aligned files to take them from, plain or .gz; the phrasebook if None.
    """
    if text is None:
        generated = phrasebook.generate("train", BASE_PAIRS, seed)
        base = [(pair.source.split(), pair.target.split()) for pair in generated]
    else:
        read = islice(reading.read_pairs(*text), 500_000)
        base = [(source.split(), target.split()) for source, target in read]
    draw = random.Random(seed)
    for _ in range(count):
        first, second = draw.choice(base), draw.choice(base)
        yield _spliced(draw, first[0], second[0]), _spliced(draw, first[1], second[1])


def _spliced(draw: random.Random, first: list[str], second: list[str]) -> str:
    words = first[: (len(first) + 1) // 2] + second[len(second) // 2 :]
    for place in range(draw.randrange(JOINED_EVERY), len(words) - 1, JOINED_EVERY):
        words[place] += words[place + 1].lower()
    return " ".join(words)
