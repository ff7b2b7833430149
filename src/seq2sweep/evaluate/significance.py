"""Does a variant of a sweep differ from the base, or was the set it is scored on kind to it?

Paired bootstrap resampling over sentences, as in compare.py, of variants that may have been trained
with several seeds: each draw of sentences is the same one for both variants and for all their
seeds, and a variant's BLEU on it is the mean of its seeds'. It tells what chance the choice of
sentences leaves. What another seed would have changed is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from seq2sweep.evaluate.bleu import (
    BOOTSTRAP_SAMPLES,
    base_language,
    bootstrap_seed,
    plain_text,
    rounded,
    sacrebleu_metric,
)

SEEN = 0.05
"""A difference is seen where chance alone makes one as large less often than this."""

Counts = npt.NDArray[np.int64]
Translations = Sequence[Sequence[str]]


def against_base(
    base: Translations,
    system: Translations,
    references: Sequence[str],
    to: str,
    *,
    lowercase: bool = False,
    samples: int = BOOTSTRAP_SAMPLES,
) -> dict[str, float | bool]:
    """The difference in sacreBLEU's BLEU between a variant and the base, and whether it is chance.

    Args:
        base: translations of the base variant, one list a seed, each in the references' order.
        system: those of the other variant; it may have another number of seeds.
        references: one a sentence.
        to: their language, a code such as `de`.
        lowercase: compare lower-cased text, as `bleu.score` does.
        samples: how often the sentences are drawn.

    Returns:
        `bleu_difference`: the system's BLEU less the base's, each the mean over its seeds; `low`
        and `high`: the middle 95 % of that difference on the draws; `p`: twice the share of draws
        on which the difference is 0 or on the other side of it, at least 2 / (samples + 1) and at
        most 1; `seen`: whether p is below 0.05. Draws come from sacreBLEU's seed, so the same texts
        give the same figures.

    Raises:
        ValueError: no seeds, no sentences, or unequal numbers of sentences.
        UserError: $SACREBLEU_SEED is not a seed, or `to` no code of a language.
    """
    lengths = {len(lines) for lines in (*base, *system, references)}
    if not base or not system or len(lengths) > 1 or not references:
        raise ValueError(
            f"{[len(lines) for lines in base]} and {[len(lines) for lines in system]} "
            f"translations, {len(references)} references"
        )
    language = base_language(to)
    metric = sacrebleu_metric(language, plain_text(references, language), lowercase)

    def counts_of(translations: Translations) -> list[Counts]:
        # Lengths and n-grams of each sentence; BLEU is made of their sums.
        return [
            np.array(metric._extract_corpus_statistics(plain_text(lines, language), None))
            for lines in translations
        ]

    ours, theirs = counts_of(system), counts_of(base)

    def difference(times: Counts) -> float:
        """Between the mean scores when each sentence is there so many times."""
        means = [
            sum(
                metric._compute_score_from_stats((times @ counts).tolist()).score
                for counts in seeds
            )
            / len(seeds)
            for seeds in (ours, theirs)
        ]
        return means[0] - means[1]

    seed = bootstrap_seed()
    chance = np.random.default_rng(None if seed == "none" else int(seed))
    size = len(references)
    measured = difference(np.ones(size, dtype=np.int64))
    drawn = np.array(
        [
            difference(np.bincount(chance.integers(size, size=size), minlength=size))
            for _ in range(samples)
        ]
    )
    fewer = int(min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0)))
    p = min(1.0, 2 * (fewer + 1) / (samples + 1))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {
        "bleu_difference": rounded(measured),
        "p": rounded(p),
        "low": rounded(low),
        "high": rounded(high),
        "seen": bool(p < SEEN),
    }
