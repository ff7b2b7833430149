"""Is one system better than another, or was the test set kind to it? Paired bootstrap resampling.

The test set is drawn anew many times, sentences with replacement, and both systems are scored on
every draw (Koehn 2004). sacreBLEU's own implementation does it, so its command gives the same
figures for the same files: `sacrebleu REFERENCE -i BASELINE SYSTEM -m bleu chrf --paired-bs` (with
the tokeniser of the signature, and of text that was not in tokens already).

The paper's BLEU is drawn in the same way, from n-gram counts of its own tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from seq2sweep.errors import UserError
from seq2sweep.evaluate.bleu import (
    BOOTSTRAP_SAMPLES,
    base_language,
    bootstrap_seed,
    paper_tokens,
    paper_tokens_name,
    plain_texts,
    rounded,
    rounded_chance,
    sacrebleu_metric,
    token_metric,
    token_signature,
)
from seq2sweep.evaluate.references import read_texts
from seq2sweep.evaluate.significance import least_chance

# sacreBLEU holds the counts of all samples at once: 80 bytes a drawn sentence, 2 GB at this size.
DRAWN_SENTENCES = 25_000_000


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    target_language: str,
    *,
    samples: int = BOOTSTRAP_SAMPLES,
) -> dict[str, Any]:
    """Scores of two systems on one reference, their difference, and whether it is chance.

    Args:
        baseline: translations of one system, one sentence each, as for `bleu.score`.
        system: those of the other, in the same order.
        references: the same number of reference sentences.
        target_language: code such as `de`.
        samples: how often the test set is drawn.

    Returns:
        `bleu.sacrebleu`, `bleu.paper` and `chrf`: each {baseline, system, difference, p_value,
        signature}; beside them `samples`, `seed` and `sentences`. `baseline` and `system` are
        {score, confidence}, the latter the 95 % interval `mean` ± `margin` of the samples.
        `difference` is the system's score less the baseline's. `p_value` is sacreBLEU's estimate
        of how often chance alone would make a difference as large as the measured one: of the
        differences' sizes, their mean subtracted, the share above the measured size. Its smallest
        value is 1 / (samples + 1). As in `bleu.score`, `detokenised` names what `plain_text` took
        back.

    Raises:
        ValueError: no sentences, or unequal numbers of them.
        UserError: `samples` is below one or more than memory should hold, or $SACREBLEU_SEED is
            not a seed.
    """
    counts = [len(lines) for lines in (baseline, system, references)]
    if len(set(counts)) > 1 or not counts[0]:
        raise ValueError("{} and {} hypotheses, {} references".format(*counts))
    seed = bootstrap_seed()
    _check(samples, len(references), seed)
    language = base_language(target_language)
    plain, detokenised = plain_texts(
        {"baseline": baseline, "system": system, "reference": references}, language
    )
    tokens = {name: paper_tokens(lines, language) for name, lines in plain.items()}
    standard, standard_signature = _paired(
        plain, sacrebleu_metric(language, plain["reference"]), samples
    )
    paper, paper_signature = _paired(tokens, token_metric(tokens["reference"]), samples)
    chrf, chrf_signature = _paired(plain, CHRF(references=[plain["reference"]]), samples)
    return {
        "bleu": {
            "sacrebleu": standard | {"signature": str(standard_signature)},
            "paper": paper | token_signature(paper_signature, paper_tokens_name(language)),
        },
        "chrf": chrf | {"signature": str(chrf_signature)},
        "samples": samples,
        "seed": seed,
        "sentences": len(references),
        **detokenised,
    }


def compare_files(
    baseline: Path,
    system: Path,
    reference: Path | str,
    target_language: str,
    source_language: str | None = None,
    *,
    samples: int = BOOTSTRAP_SAMPLES,
) -> dict[str, Any]:
    """`compare` of text files, as `score_files` takes them."""
    texts = read_texts([baseline, system], reference, target_language, source_language)
    first, second = texts.hypotheses
    result = compare(first, second, texts.references, target_language, samples=samples)
    return result | texts.test_set


def _check(samples: int, sentences: int, seed: str) -> None:
    if samples < 1:
        raise UserError(f"--samples must be a whole number from 1, not {samples}")
    if samples * sentences > DRAWN_SENTENCES:
        raise UserError(
            f"--samples {samples} of {sentences} sentences need more than 2 GB of memory: at most "
            f"{DRAWN_SENTENCES:,} sentences can be drawn in all"
        )
    if seed != "none" and int(seed) == 0:
        # sacreBLEU's paired test takes 0 for "no seed": the figures could not be had again.
        raise UserError("SACREBLEU_SEED=0 does not fix the paired test: set a number from 1")


def _paired(
    texts: dict[str, Sequence[str]] | dict[str, list[str]], metric: Metric, samples: int
) -> tuple[dict[str, Any], Signature]:
    """One metric's figures, and sacreBLEU's signature of the test (`bs:1000|seed:12345`)."""
    systems = [(name, texts[name]) for name in ("baseline", "system")]
    # None: the metric holds the reference's counts already, and needs them for both systems.
    test = PairedTest(systems, {"metric": metric}, None, test_type="bs", n_samples=samples)
    signatures, results = test()
    (name,) = signatures
    baseline, system = scored = cast(list[Any], results[name])
    difference = system.score - baseline.score
    p_value = system.p_value
    if difference == 0 and p_value == 1 / (samples + 1):
        # No sample strays from a difference of 0. sacreBLEU takes that for the rarest chance of
        # all and prints its smallest p-value, as if systems that are alike differed for certain.
        p_value = 1.0
    p_value = max(p_value, least_chance(len(texts["system"])))
    figures = [
        {
            "score": rounded(result.score),
            "confidence": {"mean": rounded(result.mean), "margin": rounded(result.ci)},
        }
        for result in scored
    ]
    return {
        "baseline": figures[0],
        "system": figures[1],
        "difference": rounded(difference),
        "p_value": rounded_chance(p_value),
    }, signatures[name]
