"""Causes of a BLEU difference one after the other, each with its share, adding up exactly.

The share of a cause is BLEU after undoing it less BLEU before: the same output, the same signature,
all causes before it undone already. Shares depend on the order, as causes hide each other: the case
of lines that are shifted against their references matters nothing. So the cause that moves BLEU
most is undone first, then of the others the one that moves it most then. The first is the single
mend that does most, and each next one is what is left to gain after those before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from seq2sweep.evaluate.bleu import rounded

SEEN = 0.05
"""Points of BLEU; what moves it less is named as tested, and is no cause."""


@dataclass(frozen=True)
class Texts:
    """Translations and their references, line by line; of a file as given their numbers may differ:
    then a line that is missing counts as empty, one too many not at all."""

    hypotheses: Sequence[str]
    references: Sequence[str]

    def aligned(self) -> Texts:
        """As many translations as references."""
        missing = len(self.references) - len(self.hypotheses)
        if not missing:
            return self
        given = [*self.hypotheses[: len(self.references)], *[""] * max(0, missing)]
        return Texts(given, self.references)


@dataclass(frozen=True)
class Cause:
    """Something that the texts show to have happened.

    evidence: what was counted. undo: aligned texts without it. estimate: the text as it would be is
    lost, and what stands in its place is taken from the references. of_lines: `undo` takes texts
    that are not aligned.
    """

    name: str
    evidence: str
    undo: Callable[[Texts], Texts]
    estimate: bool = False
    of_lines: bool = False


@dataclass(frozen=True)
class Waterfall:
    """steps: {cause, share, bleu, evidence, estimate} in the order in which they are undone, bleu
    after each; what moves BLEU by less than SEEN is none, unless it hides another."""

    bleu: float
    steps: list[dict[str, Any]]
    texts: Texts

    @property
    def end(self) -> float:
        """BLEU with all steps undone."""
        return float(self.steps[-1]["bleu"]) if self.steps else self.bleu


def waterfall(
    given: Callable[[Collection[str]], Texts],
    causes: Sequence[Cause],
    score: Callable[[Texts], float],
) -> Waterfall:
    """Undo causes, those that move the score most first.

    given: texts as they were found, where the causes of these names are undone in how they are
    made. causes: in the order in which a text is mended, whichever of them are chosen, so that what
    is found does not depend on the order of the steps. score: BLEU of aligned texts.
    """

    def texts(undone: frozenset[str]) -> Texts:
        found = given(undone)
        for cause in causes:
            if cause.name in undone:
                found = cause.undo(found if cause.of_lines else found.aligned())
        return found.aligned()

    @functools.cache  # of the texts, which may be large, none is kept
    def bleu(undone: frozenset[str]) -> float:
        return rounded(score(texts(undone)))

    everything = frozenset(cause.name for cause in causes)
    undone: frozenset[str] = frozenset()
    steps: list[dict[str, Any]] = []
    while left := [cause for cause in causes if cause.name not in undone]:
        before = bleu(undone)
        gains = {cause.name: bleu(undone | {cause.name}) - before for cause in left}
        first = max(left, key=lambda cause: abs(gains[cause.name]))
        share = rounded(gains[first.name])
        if abs(share) < SEEN and abs(bleu(everything) - before) < SEEN:
            break
        undone |= {first.name}
        about = {"evidence": first.evidence, "estimate": first.estimate}
        steps.append({"cause": first.name, "share": share, "bleu": bleu(undone), **about})
    # A small one stays where a larger one that it had hidden follows.
    while steps and abs(steps[-1]["share"]) < SEEN:
        undone -= {steps.pop()["cause"]}
    return Waterfall(bleu(frozenset()), steps, texts(undone))
