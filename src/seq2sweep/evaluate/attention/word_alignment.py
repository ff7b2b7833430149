"""How well attention aligns words: the alignment error rate (Och and Ney 2003) against gold links.

A gold file has a line a sentence pair, words counted from 0 and parted by blanks: `0-0 1-2 3p4`
links source word 0 to target word 0 surely, and word 3 to word 4 possibly. A line without links is
of a pair that nobody has aligned, and is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2sweep.data.archives import Text
from seq2sweep.data.reading import read_lines
from seq2sweep.errors import UserError
from seq2sweep.evaluate.attention.attention_maps import Maps, place

Links = frozenset[tuple[int, int]]
"""Source word, target word, from 0."""
_LINK = re.compile(r"(\d{1,6})([-p])(\d{1,6})")


@dataclass(frozen=True)
class Gold:
    """Of one pair: what must be linked, what may be, which holds the former, and its line."""

    sure: Links
    possible: Links
    where: str


def read(file: Text, pairs: int) -> list[Gold]:
    """A gold file of so many pairs. Raises UserError naming the line for anything else."""
    lines = list(read_lines(file))
    if len(lines) != pairs:
        raise UserError(
            f"attention.alignments: {file} has {len(lines)} lines for {pairs} test sentences: it "
            "needs one each"
        )
    return [_gold(line, f"{file} line {number}") for number, line in enumerate(lines, start=1)]


def _gold(line: str, where: str) -> Gold:
    of: dict[str, set[tuple[int, int]]] = {"-": set(), "p": set()}
    for text in line.split():
        match = _LINK.fullmatch(text)
        if match is None:
            raise UserError(f"{where}: {text[:40]!r} is no link such as 3-4 (sure) or 3p4")
        of[match[2]].add((int(match[1]), int(match[3])))
    return Gold(frozenset(of["-"]), frozenset(of["-"] | of["p"]), where)


def error_rate(found: Iterable[Links], gold: Iterable[Gold]) -> float | None:
    """Of all pairs together, A found, S sure, P possible: 1 - (|A n S| + |A n P|) / (|A| + |S|).
    None where there is nothing to count."""
    hits = links = 0
    for one, of in zip(found, gold, strict=True):
        hits += len(one & of.sure) + len(one & of.possible)
        links += len(one) + len(of.sure)
    return 1 - hits / links if links else None


def strongest(weights: NDArray[np.float32]) -> Links:
    """Each target word linked to the source word with most of its weight [target, source], the
    first of several."""
    return frozenset((int(j), i) for i, j in enumerate(weights.argmax(axis=1)))


class Aligner:
    """Hears the maps of pairs one by one, and says at the end how well each head aligned them.

    A row of the memory's map is a target word that is predicted there; </s> is left out of both
    sides. A layer's links are those of its heads' mean weights, `mean` those of all layers' mean.
    """

    def __init__(self, gold: Sequence[Gold]) -> None:
        """gold: of the pairs, in the order in which they will come."""
        self._waiting = iter(gold)
        self.gold: list[Gold] = []
        self._of_heads: dict[tuple[str, int], list[Links]] = {}
        self._of_layers: dict[str, list[Links]] = {}
        self._mean: list[Links] = []

    def hear(self, one: Maps) -> None:
        """The next pair's maps. Raises UserError where gold links a word that is not there."""
        gold = next(self._waiting)
        layers = [layer for layer in one.weights if place(layer)[0] == "memory"]
        if not gold.possible or not layers:
            return
        sizes = [one.words(side)[-1] for side in (one.source, one.predicted)]
        for link in sorted(gold.possible):
            for side, word, size in zip(("source", "target"), link, sizes, strict=True):
                if word >= size:
                    raise UserError(
                        f"{gold.where} links {side} word {word}, but there are {size}, counted "
                        "from 0 and parted by blanks"
                    )
        self.gold.append(gold)
        means = []
        for layer in layers:
            words = one.by_word(layer)[:, :-1, :-1]
            for head, weights in enumerate(words):
                self._of_heads.setdefault((layer, head), []).append(strongest(weights))
            means.append(words.mean(axis=0))
            self._of_layers.setdefault(layer, []).append(strongest(means[-1]))
        self._mean.append(strongest(np.mean(means, axis=0)))

    def of_head(self, layer: str, head: int) -> float | None:
        """The error rate of a head; None of one that does not look at the source."""
        return (
            error_rate(found, self.gold) if (found := self._of_heads.get((layer, head))) else None
        )

    def result(self) -> dict[str, Any] | None:
        """The error rates of the best head and of the best layer, with their names, and of the mean
        of all; and of how many `sentences` and links. None where none was aligned."""
        if not self.gold:
            return None
        layers = {layer: error_rate(found, self.gold) for layer, found in self._of_layers.items()}
        heads = {place: self.of_head(*place) for place in self._of_heads}
        (layer, head), best = min(heads.items(), key=_by_rate)
        best_layer, of_layer = min(layers.items(), key=_by_rate)
        return {
            "sentences": len(self.gold),
            "sure": sum(len(of.sure) for of in self.gold),
            "possible": sum(len(of.possible) for of in self.gold),
            "best_head": {"layer": layer, "head": head, "aer": best},
            "best_layer": {"layer": best_layer, "aer": of_layer},
            "mean": error_rate(self._mean, self.gold),
        }


def _by_rate(item: tuple[Any, float | None]) -> float:
    assert item[1] is not None  # each target word has a link
    return item[1]
