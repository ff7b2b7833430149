"""Does a variant of a sweep differ from the base, or was the set it is scored on kind to it?

Paired bootstrap resampling over sentences, as in compare.py, of variants that may have been trained
with several seeds: each draw of sentences is the same one for both variants and for all their
seeds, and a variant's score on it is the mean of its seeds'. It tells what chance the choice of
sentences leaves. What another seed would have changed is not in it.

Draws come from sacreBLEU's seed, so the same texts give the same figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seq2sweep.evaluate.bleu import BOOTSTRAP_SAMPLES, bootstrap_seed, rounded, rounded_chance
from seq2sweep.evaluate.scorers import Counts, Scorer

SEEN = 0.05
"""A difference is seen where chance alone makes one as large less often than this."""

Translations = Sequence[Sequence[str]]


def against_base(
    base: Translations,
    system: Translations,
    scorer: Scorer,
    *,
    samples: int = BOOTSTRAP_SAMPLES,
) -> dict[str, float | bool]:
    """The difference in score between a variant and the base, and whether it is chance.

    Args:
        base: translations of the base variant, one list a seed, each in the references' order.
        system: those of the other variant; it may have another number of seeds.
        scorer: of the references.
        samples: how often the sentences are drawn.

    Returns:
        `bleu_difference`, or that of the scorer's name: the system's score less the base's, each
        the mean over its seeds; `low` and `high`: the middle 95 % of that difference on the draws;
        `p`: twice the share of draws on which the difference is 0 or on the other side of it, at
        least 2 / (samples + 1) and `least_chance`, at most 1; `seen`: whether p is below 0.05.

    Raises:
        ValueError: no seeds, no sentences, or unequal numbers of sentences.
        UserError: $SACREBLEU_SEED is not a seed.
    """
    if not base or not system or not scorer.sentences:
        raise ValueError(
            f"{len(base)} and {len(system)} seeds' translations, {scorer.sentences} references"
        )
    ours, theirs = ([scorer.counts(lines) for lines in seeds] for seeds in (system, base))

    def difference(times: Counts) -> float:
        """Between the mean scores when each sentence is there so many times."""
        means = [
            sum(scorer.score(times @ counts) for counts in seeds) / len(seeds)
            for seeds in (ours, theirs)
        ]
        return means[0] - means[1]

    measured = difference(np.ones(scorer.sentences, dtype=np.int64))
    drawn = np.array([difference(times) for times in _draws(scorer.sentences, samples)])
    fewer = int(min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0)))
    # Rounded first, so that whoever compares what is kept with 0.05 finds the same.
    p = min(1.0, max(2 * (fewer + 1) / (samples + 1), least_chance(scorer.sentences)))
    p = rounded_chance(p)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {
        f"{scorer.name}_difference": rounded(measured),
        "p": p,
        "low": rounded(low),
        "high": rounded(high),
        "seen": bool(p < SEEN),
    }


def least_chance(sentences: int) -> float:
    """The smallest p that a test of so many pairs of translations can give: that of the sign test
    where one system is better on each. The draws of few sentences are nearly all alike, of one all
    are, and on their own they would take that for certainty."""
    return float(2.0 ** (1 - min(sentences, 100)))


def confidence(
    hypotheses: Sequence[str], scorer: Scorer, *, samples: int = BOOTSTRAP_SAMPLES
) -> dict[str, Any]:
    """The 95 % bootstrap interval of one system's score: `mean` ± `margin`, `samples` and `seed`.

    As `bleu.score` has it of sacreBLEU, whose rule it is: half of what is between the draws that
    a fortieth of all are below and above. Raises ValueError for no sentences, or another number of
    them than of references, and UserError where $SACREBLEU_SEED is not a seed.
    """
    if not scorer.sentences:
        raise ValueError("no references")
    counts = scorer.counts(hypotheses)
    scores = sorted(scorer.score(times @ counts) for times in _draws(scorer.sentences, samples))
    cut = samples // 40
    return {
        "mean": rounded(sum(scores) / samples),
        "margin": rounded((scores[samples - cut - 1] - scores[cut]) / 2),
        "samples": samples,
        "seed": bootstrap_seed(),
    }


def _draws(sentences: int, samples: int) -> Iterator[Counts]:
    """How many times each sentence is there, [sentences], in each draw of as many sentences."""
    seed = bootstrap_seed()
    chance = np.random.default_rng(None if seed == "none" else int(seed))
    for _ in range(samples):
        yield np.bincount(chance.integers(sentences, size=sentences), minlength=sentences)
