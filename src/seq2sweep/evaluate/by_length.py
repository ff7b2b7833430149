"""BLEU by the length of the source sentence, up to the longest trained on and beyond it.

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

from seq2sweep.evaluate.bleu import base_language, plain_text, rounded, sacrebleu_metric

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


@dataclass(frozen=True)
class _Part:
    """Some sentences of a set, by their places in it, and BLEU against their references."""

    places: list[int]
    metric: Any

    def score(self, translations: Sequence[str]) -> float:
        some = [translations[place] for place in self.places]
        return rounded(self.metric.corpus_score(some, None).score)


class ScoresByLength:
    """Scores translations of one set of sentences, bin by bin.

    BLEU is `bleu.sacrebleu` of `seq2sweep.evaluate.bleu.score`, of the same signature, over the
    sentences of a bin instead of all.
    """

    def __init__(
        self,
        references: Sequence[str],
        lengths: Lengths,
        language: str,
        *,
        trained_on: TrainedOn | None = None,
        lowercase: bool = False,
    ) -> None:
        """references: one a sentence; lengths: [sentences] of the sources in the same order.

        Raises ValueError where there are none, or unequal numbers of them.
        """
        if len(references) != len(lengths) or not len(lengths):
            raise ValueError(f"{len(references)} references, {len(lengths)} lengths")
        self.trained_on = trained_on
        self._language = base_language(language)
        self._sentences = len(lengths)
        plain = plain_text(references, self._language)

        def part(shortest: int, longest: int) -> _Part:
            places = np.flatnonzero((lengths >= shortest) & (lengths <= longest)).tolist()
            some = [plain[place] for place in places]
            return _Part(places, sacrebleu_metric(self._language, some, lowercase))

        self._edges = edges(lengths, trained_on)
        self._bins = list(itertools.starmap(part, self._edges))
        usual = max(lengths) if trained_on is None else trained_on.usual
        within = [end for end in self._edges if end[1] <= usual]
        self._within = part(within[0][0], within[-1][1]) if within else None
        # The tokeniser and the like, which no choice of sentences changes.
        self.signature = str(self._bins[0].metric.get_signature())

    @property
    def bins(self) -> list[dict[str, int]]:
        """Of each bin: `shortest` and `longest` length in tokens, and how many `sentences`."""
        return [
            {"shortest": shortest, "longest": longest, "sentences": len(part.places)}
            for (shortest, longest), part in zip(self._edges, self._bins, strict=True)
        ]

    def score(self, translations: Sequence[str]) -> dict[str, Any]:
        """Of translations in the order of the references.

        `bins`: BLEU of each bin; `within`: of all sentences of a usual length together, None where
        there are none. Corpus BLEU is no mean of its parts.
        """
        if len(translations) != self._sentences:
            raise ValueError(f"{len(translations)} translations, {self._sentences} references")
        plain = plain_text(translations, self._language)
        return {
            "bins": [part.score(plain) for part in self._bins],
            "within": self._within and self._within.score(plain),
        }
