"""Draws distinct sentences from the grammar's derivation spaces, at constant memory.

Every pair of a variant and a focus is a *space*: a finite range of indices, each of which is read
as a mixed-radix number and names at most one derivation.  A space is walked through a seeded
permutation of its indices (a Feistel network with cycle walking), so that no index comes twice;
all that is remembered is one counter a space.  Which space comes next is drawn by fixed weights;
a space that is exhausted drops out, its weight going to the other spaces of its variant.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from math import isqrt
from typing import TypeVar

from . import places, relations, situations, subordinate  # noqa: F401  (they register themselves)
from .clauses import Digits, RejectedError
from .grammar import VARIANTS, Sentence, combinations_reserved

Option = TypeVar("Option")

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_PROBES = 4


def mix(value: int) -> int:
    """SplitMix64: spreads 64 bits over 64 bits, by integer arithmetic only."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def permute(index: int, size: int, key: int) -> int:
    """The image of *index* under a keyed permutation of range(size)."""
    side = isqrt(size - 1) + 1
    keys = [key & 0xFFFFFFFF, key >> 32, mix(key) & 0xFFFFFFFF]
    while True:
        left, right = divmod(index, side)
        for round_key in keys:
            spread = ((right ^ round_key) * _GOLDEN + round_key) & _MASK
            left, right = right, (left + (spread >> 24)) % side
        index = left * side + right
        if index < size:
            return index


class _Probe(Digits):
    """Answers every choice at random and so measures how long an index must be."""

    __slots__ = ("state",)

    def __init__(self, key: int) -> None:
        super().__init__(0)
        self.state = key

    def pick(self, options: Sequence[Option]) -> Option:
        """Any option."""
        count = len(options)
        if not count:
            raise RejectedError
        self.product *= count
        # A linear step is enough here: a probe only needs varied choices.
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & _MASK
        return options[(self.state >> 33) % count]

    def close(self) -> None:
        raise RejectedError


class Spaces:
    """All derivation spaces, and where each of them begins in the flat numbering."""

    def __init__(self) -> None:
        starts = accumulate((len(variant.foci) for variant in VARIANTS), initial=0)
        self.starts = list(starts)
        self.count = self.starts[-1]
        self.cumulative = list(accumulate(variant.weight for variant in VARIANTS))
        self.sizes = array("d", bytes(8 * self.count))

    def size(self, variant: int, focus: int) -> int:
        """How many indices a space has (measured once; the same for every seed)."""
        space = self.starts[variant] + focus
        if not self.sizes[space]:
            largest = 1
            for attempt in range(_PROBES):
                probe = _Probe(mix(space * 64 + attempt))
                with suppress(RejectedError):
                    VARIANTS[variant].build(probe, VARIANTS[variant].foci[focus])
                largest = max(largest, probe.product)
            # A double holds integers to 2**53 exactly; longer spaces are cut there.
            self.sizes[space] = float(min(largest, 1 << 53))
        return int(self.sizes[space])


_SPACES = Spaces()


class Walker:
    """An endless (until exhausted) stream of distinct sentences for one seed."""

    def __init__(self, seed: int, stream: str) -> None:
        digest = hashlib.blake2b(f"{stream}|{seed}".encode(), digest_size=16).digest()
        self.draw_key = int.from_bytes(digest[:8], "big")
        self.walk_key = int.from_bytes(digest[8:], "big")
        self.counters = array("Q", bytes(8 * _SPACES.count))
        self.alive = [array("I", range(len(variant.foci))) for variant in VARIANTS]
        self.cumulative = list(_SPACES.cumulative)
        self.step = 0

    def _drop(self, variant: int, position: int) -> None:
        alive = self.alive[variant]
        alive[position] = alive[-1]
        alive.pop()
        if not alive:
            weights = [v.weight if self.alive[i] else 0 for i, v in enumerate(VARIANTS)]
            self.cumulative = list(accumulate(weights))

    def __iter__(self) -> Iterator[tuple[str, Sentence]]:
        total = self.cumulative[-1]
        while total:
            self.step += 1
            random = mix(self.draw_key ^ mix(self.step))
            variant = bisect_right(self.cumulative, (random >> 32) % total)
            alive = self.alive[variant]
            position = (random & 0xFFFFFFFF) % len(alive)
            focus = alive[position]
            space = _SPACES.starts[variant] + focus
            size = _SPACES.size(variant, focus)
            # A few tries a turn keep the verbs balanced although some indices name nothing.
            for _ in range(8):
                counter = self.counters[space]
                if counter >= size:
                    self._drop(variant, position)
                    total = self.cumulative[-1]
                    break
                self.counters[space] = counter + 1
                index = permute(counter, size, mix(self.walk_key ^ space))
                try:
                    sentence = VARIANTS[variant].build(Digits(index), VARIANTS[variant].foci[focus])
                except RejectedError:
                    continue
                yield VARIANTS[variant].construction, sentence
                break


def bucket(german: str) -> str:
    """The split a sentence belongs to, by its German side and by nothing else.

    Two English sentences may share their German (she and they say "Sie" at the start); keyed by
    the German, both land in the same split, and English determines German, so neither side of a
    pair is ever shared between splits.
    """
    digest = hashlib.blake2b(german.lower().encode(), digest_size=4, key=b"phrasebook").digest()
    percent = int.from_bytes(digest, "big") % 100
    return "train" if percent < 90 else "valid" if percent < 95 else "test"


def _members(split: str, seed: int) -> Iterator[Sentence]:
    for construction, sentence in Walker(seed, split):
        if bucket(sentence.german) != split:
            continue
        if not combinations_reserved(construction, sentence):
            yield sentence


def _held_out(seed: int) -> Iterator[Sentence]:
    for construction, sentence in Walker(seed, "new combinations"):
        if combinations_reserved(construction, sentence):
            sentence.tags.add("new_combination")
            yield sentence


# Which of ten consecutive test sentences show a held-out combination.
_HELD_OUT_POSITIONS = frozenset({1, 4, 8})


def sentences(split: str, seed: int) -> Iterator[Sentence]:
    """The stream of a split."""
    if split != "test":
        yield from _members(split, seed)
        return
    ordinary, held_out = _members(split, seed), _held_out(seed)
    position = 0
    while True:
        source = held_out if position % 10 in _HELD_OUT_POSITIONS else ordinary
        position += 1
        sentence = next(source, None)
        if sentence is None:
            return
        yield sentence
