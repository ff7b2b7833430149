"""Scores by the length of the source sentence, up to the longest trained on and beyond it.

Section 3.5 chose sinusoids since they "may allow the model to extrapolate to sequence lengths
longer than the ones encountered during training". So lengths are counted as the encoder has
positions for them: in tokens, the end of the sentence among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2sweep.evaluate.bleu import rounded
from seq2sweep.evaluate.scorers import Scorer

BINS = 4
"""Of the usual lengths: quarters of the sentences that are scored."""
USUAL = 0.99
"""Share of the training data whose sources are of a usual length. A few sentences are far longer
than all others, and teach a model next to nothing about their last positions."""

Lengths = NDArray[np.int32]


@dataclass(frozen=True)
class TrainedOn:
    """Source tokens that USUAL of the training data have at most, and those of its longest."""

    usual: int
    longest: int

    @classmethod
    def of(cls, lengths: Lengths) -> TrainedOn:
        """lengths: [sentences] of the sources of the training data."""
        usual = np.quantile(lengths, USUAL, method="inverted_cdf")
        return cls(int(usual), int(lengths.max()))


def edges(lengths: Lengths, trained_on: TrainedOn | None = None) -> list[tuple[int, int]]:
    """Shortest and longest of each bin, in tokens, in rising order; no bin is empty.

    lengths: [sentences], at least one. trained_on: None where every length counts as usual. Those
    of a usual length are cut at their quantiles, so that bins hold about equally many; those that
    are longer, and those longer than any that was trained on, are one bin more each.
    """
    usual, longest = (None, None) if trained_on is None else astuple(trained_on)
    known = np.sort(lengths if usual is None else lengths[lengths <= usual])
    found = []
    if len(known):
        # The last sentence of each quarter; a length that many share closes one bin only.
        quantiles = [-(-len(known) * k // BINS) - 1 for k in range(1, BINS + 1)]
        ends = sorted({int(known[place]) for place in quantiles})
        starts = [int(known[0]), *(end + 1 for end in ends[:-1])]
        found = list(zip(starts, ends, strict=True))
    if usual is not None and longest is not None:
        for above, limit in ((usual, longest), (longest, int(lengths.max()))):
            inside = lengths[(lengths > above) & (lengths <= limit)]
            if len(inside):
                found.append((above + 1, int(inside.max())))
    return found


class ScoresByLength:
    """Scores translations of one set of sentences, bin by bin.

    By the same score as all of them together, of the same signature. Where not even the
    references score, as in BLEU those of fewer than four tokens do not, a bin of usual lengths is
    one with the one before it, and the first with the next.
    """

    def __init__(
        self, scorer: Scorer, lengths: Lengths, *, trained_on: TrainedOn | None = None
    ) -> None:
        """lengths: [sentences] of the sources in the order of the scorer's references.

        Raises ValueError where there are none, or unequal numbers of them.
        """
        if scorer.sentences != len(lengths) or not len(lengths):
            raise ValueError(f"{scorer.sentences} references, {len(lengths)} lengths")
        self._scorer = scorer

        def places(shortest: int, longest: int) -> NDArray[np.intp]:
            return np.flatnonzero((lengths >= shortest) & (lengths <= longest))

        usual = max(lengths) if trained_on is None else trained_on.usual
        self._edges: list[tuple[int, int]] = []
        perfect = scorer.counts(scorer.references)

        def barren(end: tuple[int, int]) -> bool:
            return not scorer.score(perfect[places(*end)].sum(axis=0))

        for end in edges(lengths, trained_on):
            before = self._edges[-1:] if end[1] <= usual else []
            joined = bool(before) and any(map(barren, [*before, end]))
            shortest = self._edges.pop()[0] if joined else end[0]
            self._edges.append((shortest, end[1]))
        self._bins = list(itertools.starmap(places, self._edges))
        within = [end for end in self._edges if end[1] <= usual]
        self._within = places(within[0][0], within[-1][1]) if within else None

    @property
    def bins(self) -> list[dict[str, int]]:
        """Of each bin: `shortest` and `longest` length in tokens, and how many `sentences`."""
        return [
            {"shortest": shortest, "longest": longest, "sentences": len(places)}
            for (shortest, longest), places in zip(self._edges, self._bins, strict=True)
        ]

    def score(self, translations: Sequence[str]) -> dict[str, Any]:
        """Of translations in the order of the references.

        `bins`: the score of each bin; `within`: of all sentences of a usual length together, None
        where there are none. A score of a corpus is no mean of its parts'. Raises ValueError for
        another number of translations than of references.
        """
        counts = self._scorer.counts(translations)

        def score(places: NDArray[np.intp]) -> float:
            return rounded(self._scorer.score(counts[places].sum(axis=0)))

        return {
            "bins": [score(places) for places in self._bins],
            "within": None if self._within is None else score(self._within),
        }
