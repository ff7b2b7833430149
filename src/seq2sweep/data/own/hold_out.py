"""Pairs of the training text that validation and the final score get, without a leak.

Which they are follows from the text of each pair alone: pairs are ranked by a digest of both
sentences, and the test set takes the lowest, validation the highest, of those that share no
sentence with the test set. So the order of the lines does not matter, nor to the test set the size
of validation, and a corpus that grows keeps most of them. What training loses is what `prepare`
drops as contamination: every pair with one of their sentences.

A corpus is known by 8 bytes a sentence. Of connected components of pairs, which would part all
sentences for good, the largest of a real corpus holds most of it: "Yes." has hundreds of partners.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2sweep import console
from seq2sweep.config import DataConfig, PrepareConfig
from seq2sweep.data.clean import Cleaner, Pair
from seq2sweep.data.own import own_files
from seq2sweep.data.reading import chunks
from seq2sweep.errors import UserError
from seq2sweep.parallel import Mapper, Processes, serial

Digests = NDArray[np.uint64]

BYTES_WORTH_PROCESSES = 20_000_000
"""Of both texts: less is read before other processes have started."""
MOST_PARTNERS = 100
"""A pair whose sentences occur in more pairs is not held out: training would lose all of those."""
CASE = np.uint64(16)
"""The lowest bits of a digest, in which case counts."""
LEAST_LEFT = 0.5
"""Share of the pairs that training must keep."""
BLOCK = 1 << 20

# What the defaults of params.yaml drop is no test of anything. These are not the user's settings:
# those may change without another test set.
_CLEANING = PrepareConfig(
    normalise=("invisible", "unicode", "whitespace"),
    lowercase=False,
    drop=("empty", "too_long", "ratio", "copied", "script"),
    max_words=250,
    max_ratio=4.0,
)
# Validation and tests of the user's own stay whole.
_WHOLE = dataclasses.replace(_CLEANING, drop=())


class TooFewError(UserError):
    """So many pairs cannot be held out; fewer may."""


@dataclass(frozen=True, eq=False)
class Sentences:
    """The pairs of a corpus, of training those that are clean: digests of both sentences, and where
    each pair is, from 0.

    pairs: all that were read; characters: of a clean side, on average, source and target;
    different_characters: of both clean sides.
    """

    source: Digests
    target: Digests
    positions: NDArray[np.uint32]
    pairs: int
    characters: tuple[float, float]
    different_characters: int

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def sides(self) -> tuple[Digests, Digests]:
        return self.source, self.target

    @property
    def different(self) -> int:
        """Different sentences, of the side that has fewer."""
        return min(len(np.unique(side)) for side in self.sides)

    @property
    def repeated(self) -> int:
        """Pairs that came before."""
        return len(self) - len(np.unique(self.ranks))

    @property
    def ranks(self) -> Digests:
        """A number for each pair, as good as random, and the same for the same pair."""
        with np.errstate(over="ignore"):
            mixed = self.source * np.uint64(0x9E3779B97F4A7C15) + self.target
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return mixed ^ (mixed >> np.uint64(31))

    def of(self, rows: NDArray[np.int64]) -> Sentences:
        """Some of the pairs."""
        source, target = (side[rows] for side in self.sides)
        return dataclasses.replace(
            self, source=source, target=target, positions=self.positions[rows], pairs=len(rows)
        )

    def at(self, positions: NDArray[np.uint32]) -> Sentences:
        """The pairs at places of the corpus."""
        return self.of(np.searchsorted(self.positions, positions))

    def sharing(self, others: Sentences, *, but_for_case: bool = False) -> NDArray[np.bool_]:
        """Which pairs have a sentence that the others have on the same side, bool [pairs]."""
        shift = CASE if but_for_case else np.uint64(0)
        sides = zip(self.sides, others.sides, strict=True)
        source, target = (_among(side >> shift, other >> shift) for side, other in sides)
        return source | target


class _Digester:
    """A chunk of pairs as digests; what comes of it does not depend on the chunks."""

    def __init__(self, source: str, target: str, cleaning: PrepareConfig) -> None:
        self._clean = Cleaner(cleaning, source, target)

    def __call__(
        self, pairs: Sequence[Pair]
    ) -> tuple[Digests, Digests, NDArray[np.uint32], Any, set[str]]:
        """Of the clean pairs, their places, how many pairs and characters a side there are, and
        which characters."""
        cleaned = self._clean(pairs)
        lines = cleaned.lines
        source, target = (side.decode() for side in (cleaned.source, cleaned.target))
        counts = len(pairs), len(source) - len(lines), len(target) - len(lines)
        characters = {*source, *target} - {"\n"}
        return _digests(source), _digests(target), lines, np.array(counts), characters


def sentences(
    pairs: Iterable[Pair],
    source: str,
    target: str,
    mapper: Mapper = serial,
    *,
    whole: bool = False,
) -> Sentences:
    """Read a corpus through. source, target: codes of the languages; mapper: shares out the work;
    whole: with pairs that are not clean, which training would leave out.

    Raises UserError as reading the pairs does.
    """
    nothing = np.empty(0, np.uint64)
    sources, targets, positions = [nothing], [nothing], [np.empty(0, np.uint32)]
    counts, characters = np.zeros(3, np.int64), set[str]()
    digester = _Digester(source, target, _WHOLE if whole else _CLEANING)
    for some_sources, some_targets, lines, more, these in mapper(digester, chunks(pairs)):
        sources.append(some_sources)
        targets.append(some_targets)
        positions.append(lines + np.uint32(counts[0]))
        counts += more
        characters |= these
    kept = np.concatenate(positions)
    means = (counts[1:] / max(1, len(kept))).tolist()
    both = np.concatenate(sources), np.concatenate(targets)
    return Sentences(*both, kept, int(counts[0]), (means[0], means[1]), len(characters))


def held_out(
    corpus: Sentences, valid: int, test: int, given: Iterable[Sentences] = ()
) -> dict[str, NDArray[np.uint32]]:
    """Positions, rising, of so many pairs for validation and for the test.

    No sentence of one is in the other, twice in one, or in the splits that are `given`, not even in
    another case; nor is it in another case in what is left. What is left may have it as it is: see
    `Config` on `prepare.drop`. Raises TooFewError where there are not so many.
    """
    free = np.ones(len(corpus), np.bool_)
    for split in given:
        free &= ~corpus.sharing(split, but_for_case=True)
    rows = np.flatnonzero(free)
    ranks = corpus.ranks[rows]
    taken: tuple[set[int], set[int]] = (set(), set())
    found = {
        "test": _lowest(corpus, rows, ranks, test, taken, "test"),
        "valid": _lowest(corpus, rows, ~ranks, valid, taken, "valid"),
    }
    rows = np.concatenate([*found.values()])
    lost = int(np.count_nonzero(corpus.sharing(corpus.of(rows))))
    if lost > (1 - LEAST_LEFT) * len(corpus):
        raise TooFewError(
            f"{valid + test:,} pairs that are held out share sentences with {lost:,} of "
            f"{len(corpus):,}, and training would lose those: lower data.files.valid_pairs and "
            "data.files.test_pairs, or name files of their own"
        )
    return {split: np.sort(corpus.positions[rows]) for split, rows in found.items()}


def _lowest(
    corpus: Sentences,
    rows: NDArray[np.int64],
    ranks: Digests,
    count: int,
    taken: tuple[set[int], set[int]],
    split: str,
) -> NDArray[np.int64]:
    """Of rows of the corpus those of the lowest ranks without a sentence that is taken; theirs are
    taken then."""
    most, chosen = min(len(rows), 4 * count + 100), list[int]()
    while count and most:
        threshold = np.partition(ranks, most - 1)[most - 1]
        pool = np.flatnonzero(ranks <= threshold)
        pool = pool[np.unique(ranks[pool], return_index=True)[1]]  # by rank, each pair once
        chosen = _without_repeats(corpus, rows[pool], count, taken)
        if len(chosen) == count or most == len(rows):
            break
        most = min(len(rows), 4 * most)
    if len(chosen) < count:
        raise TooFewError(
            f"data.files.{split}_pairs is {count:,}, but only {len(chosen):,} of {corpus.pairs:,} "
            "training pairs can be held out (clean ones, whose sentences no other split has, few "
            f"other pairs and none in another case): lower it, or name files in data.files.{split}"
        )
    for side, digests in zip(taken, corpus.sides, strict=True):
        side.update((digests[chosen] >> CASE).tolist())
    return np.array(chosen, np.int64)


def _without_repeats(
    corpus: Sentences, rows: NDArray[np.int64], count: int, taken: tuple[set[int], set[int]]
) -> list[int]:
    """The first rows, at most `count`, that have no sentence in common, none taken, few partners,
    and no sentence that occurs in another case."""
    pool, chosen = corpus.of(rows), list[int]()
    sources, targets = (set(side) for side in taken)
    as_they_are = sum(map(_counts, pool.sides, corpus.sides), start=np.zeros(len(rows), np.int64))
    source, target = (side >> CASE for side in pool.sides)
    for_any_case = _counts(source, corpus.source >> CASE) + _counts(target, corpus.target >> CASE)
    fit = (for_any_case <= MOST_PARTNERS + 2) & (for_any_case == as_they_are)
    columns = (array[fit].tolist() for array in (rows, source, target))
    for row, its_source, its_target in zip(*columns, strict=True):
        if its_source not in sources and its_target not in targets:
            sources.add(its_source)
            targets.add(its_target)
            chosen.append(row)
            if len(chosen) == count:
                break
    return chosen


def _counts(wanted: Digests, digests: Digests) -> NDArray[np.int64]:
    """How often each of the wanted digests is there."""
    rising, back = np.unique(wanted, return_inverse=True)
    counts = np.zeros(len(rising), np.int64)
    for start in range(0, len(digests) if len(rising) else 0, BLOCK):
        part = digests[start : start + BLOCK]
        places = np.minimum(np.searchsorted(rising, part), len(rising) - 1)
        counts += np.bincount(places[rising[places] == part], minlength=len(rising))
    return counts[back]


def _among(digests: Digests, wanted: Digests) -> NDArray[np.bool_]:
    """Whether each digest is one of the wanted."""
    rising, flags = np.unique(wanted), np.zeros(len(digests), np.bool_)
    for start in range(0, len(digests) if len(rising) else 0, BLOCK):
        part = digests[start : start + BLOCK]
        places = np.minimum(np.searchsorted(rising, part), len(rising) - 1)
        flags[start : start + len(part)] = rising[places] == part
    return flags


def _digests(text: str) -> Digests:
    """8 bytes a line: among 36 million different ones two meet with a probability of 4e-5. The
    upper 6 are the same for lines that differ in case alone; there two or three may meet, which are
    then not held out."""
    digests = []
    for line in text.split("\n")[:-1]:
        raw, lower = line.encode(), line.lower().encode()
        digests.append(hashlib.blake2b(raw, digest_size=2).digest())
        digests.append(hashlib.blake2b(lower, digest_size=6).digest())
    return np.frombuffer(b"".join(digests), "<u8")


def of_files(
    data: DataConfig, named: Mapping[str, Sequence[own_files.Corpus]]
) -> dict[str, list[Pair]]:
    """The pairs that `data.files` holds out of train, as they are there, by split.

    named: `own_files.named(data)`. Reads train twice, and other splits once.
    """
    read = {split: of_split(data, split, corpora) for split, corpora in named.items()}
    train = read.pop("train")
    asked = {"valid": 0, "test": 0} | data.files.held_out
    positions = held_out(train, asked["valid"], asked["test"], read.values())
    splits = {place: split for split, places in positions.items() for place in places.tolist()}
    found: dict[str, list[Pair]] = {split: [] for split in data.files.held_out}
    for place, pair in enumerate(own_files.pairs(named["train"])):
        if place in splits:
            found[splits[place]].append(pair)
    return found


def of_split(data: DataConfig, split: str, corpora: Sequence[own_files.Corpus]) -> Sentences:
    """The sentences of a split, read through with a progress bar."""
    pairs = console.progress(own_files.pairs(corpora), f"compare {split}", "pairs")
    paths = (text.path for texts in corpora for text in texts)
    size = sum(path.stat().st_size for path in paths if path.exists())  # else reading says so
    mapper: Mapper = Processes() if size > BYTES_WORTH_PROCESSES else serial
    return sentences(pairs, data.source, data.target, mapper, whole=split != "train")
