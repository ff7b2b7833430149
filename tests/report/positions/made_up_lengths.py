"""A sweep of sinusoidal and learned positions that never ran, with scores by length."""

from __future__ import annotations

from typing import Any

from tests.report.made_up_results import SIGNATURE, seeded_sweep

BINS = [(5, 8, 340), (9, 12, 640), (13, 16, 530), (17, 29, 490)]
"""Usual, usual, rare and beyond."""
BASE, LEARNED = "base", "positions=learned"


def positions_sweep(
    sinusoidal: tuple[float, float] = (40.0, 20.0),
    learned: tuple[float, float] = (40.1, 10.0),
    *,
    spread: float = 0.1,
    seeds: int = 3,
    bins: list[tuple[int, int, int]] = BINS,
    base: str = "sinusoidal",
) -> dict[str, Any]:
    """Of BLEU within the lengths trained on and beyond them, which the last bin is.

    spread: between one seed and the next, of each score, the same in both: it cancels in the
    change of one training, so it is the other way round beyond. base: the positions of the base
    row.
    """
    scores = {"sinusoidal": sinusoidal, "learned": learned}
    other = "learned" if base == "sinusoidal" else "sinusoidal"
    offsets = [spread * (seed - (seeds + 1) / 2) for seed in range(1, seeds + 1)]
    record = seeded_sweep(
        {
            BASE: [scores[base][0] + offset for offset in offsets],
            f"positions={other}": [scores[other][0] + offset for offset in offsets],
        }
    )
    record["base"]["model"] = record["base"]["model"] | {"positions": base}
    bleu = {}
    for trial in record["trials"]:
        kind = base if trial["variant"] == BASE else other
        trial["model"] = trial["model"] | {"positions": kind}
        offset = offsets[trial["seed"] - 1]
        within, beyond = scores[kind][0] + offset, scores[kind][1] - offset
        parts = [within + 5 - place for place in range(len(bins) - 1)]
        bleu[trial["name"]] = {"bins": [*parts, beyond], "within": within}
    record["by_length"] = {
        "trained_on": {"usual": 12, "longest": 16},
        "signature": SIGNATURE,
        "bins": [
            {"shortest": shortest, "longest": longest, "sentences": sentences}
            for shortest, longest, sentences in bins
        ],
        "bleu": bleu,
    }
    return record
