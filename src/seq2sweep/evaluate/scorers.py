"""How the sentences of one set are scored together: sufficient statistics, summed over a corpus.

Of these sums any choice of sentences can be scored: those of one length, or a bootstrap's draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seq2sweep.config.datasets import TREES
from seq2sweep.config.scores import BLEU, F1
from seq2sweep.evaluate import brackets
from seq2sweep.evaluate.bleu import base_language, plain_text, sacrebleu_metric

Counts = NDArray[np.int64]


class Scorer(Protocol):
    """Of one set of references.

    name: as `data.score` has it; signature: how it is counted; references: themselves, as lines;
    sentences: how many there are.
    """

    name: str
    signature: str
    references: Sequence[str]
    sentences: int

    def counts(self, hypotheses: Sequence[str]) -> Counts:
        """[sentences, k]: the statistics of each, in the order of the references.

        Raises ValueError for another number of hypotheses than of references.
        """

    def score(self, totals: Counts) -> float:
        """In percent, of sums over sentences: [k]."""


def scorer(references: Sequence[str], target: str, *, lowercase: bool = False) -> Scorer:
    """What `data.target` is scored by: a code of a language, or trees.

    lowercase: compare lower-cased text, as `bleu.score` does; trees are compared as they are.
    Raises UserError where `target` is neither, or a reference is no tree.
    """
    if target == TREES:
        return TreeScorer(references)
    return BleuScorer(references, target, lowercase=lowercase)


class BleuScorer:
    """sacreBLEU's BLEU: lengths and n-grams, `bleu.sacrebleu` of `seq2sweep.evaluate.bleu.score`.

    Raises UserError where `language` is no code of one.
    """

    name = BLEU.name

    def __init__(
        self, references: Sequence[str], language: str, *, lowercase: bool = False
    ) -> None:
        self._language = base_language(language)
        self.references = references
        plain = plain_text(references, self._language)
        self._metric = sacrebleu_metric(self._language, plain, lowercase)
        self.signature = str(self._metric.get_signature())
        self.sentences = len(references)

    def counts(self, hypotheses: Sequence[str]) -> Counts:
        _check(hypotheses, self.sentences)
        plain = plain_text(hypotheses, self._language, self.references)
        return np.array(self._metric._extract_corpus_statistics(plain, None))

    def score(self, totals: Counts) -> float:
        return float(self._metric._compute_score_from_stats(totals.tolist()).score)


class TreeScorer:
    """F1 of tree lines `(TOP (S ...))` by EVALB's rules: brackets matched, of gold and found.

    All are 0 of a sentence that could not be compared. Raises UserError for a reference that is no
    tree.
    """

    name = F1.name
    signature = brackets.SIGNATURE

    def __init__(self, references: Sequence[str]) -> None:
        self.references = references
        self._gold = brackets.parse_gold(references, "references")
        self.sentences = len(references)

    def counts(self, hypotheses: Sequence[str]) -> Counts:
        _check(hypotheses, self.sentences)
        found = map(brackets.tree_or_none, hypotheses)
        rows = [brackets.bracket_counts(*pair) for pair in zip(found, self._gold, strict=True)]
        return np.array(rows, dtype=np.int64)

    def score(self, totals: Counts) -> float:
        return brackets.f1(*totals.tolist())


def _check(hypotheses: Sequence[str], sentences: int) -> None:
    if len(hypotheses) != sentences:
        raise ValueError(f"{len(hypotheses)} translations, {sentences} references")
