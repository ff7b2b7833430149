"""Attention heads of a sweep's variants, from reports/sweep.json: what explains row (A) of Table 3.

A sweep of an earlier version says nothing of them; then there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seq2sweep.paths import mismatch
from seq2sweep.report.aggregate import Variant, by_variant, over_seeds, with_margin
from seq2sweep.report.markdown import Table
from seq2sweep.report.number_format import MISSING, fixed, percent, plain

NUMBER = (float, type(None))
SHAPE = {
    "heads": int,
    "cross_attention_entropy": NUMBER,
    "positional": int,
    "loss_without": NUMBER,
    "removable": NUMBER,
}
"""Of a trial's `heads`, for `seq2sweep.paths.mismatch`."""


def problem(sweep: Mapping[str, Any]) -> str | None:
    """What of the trials' `heads` is not as `trial_heads` says it, in words; None if nothing."""
    found = (
        mismatch(trial["heads"], SHAPE, f"trials[{number}].heads")
        for number, trial in enumerate(sweep.get("trials", ()))
        if trial.get("heads") is not None
    )
    return next(filter(None, found), None)


def section(sweep: Mapping[str, Any], variants: Sequence[Variant]) -> dict[str, Any] | None:
    """For section.html; None where no trial says anything. variants: of the same sweep."""
    measured = by_variant(one for one in sweep["trials"] if one.get("heads") is not None)
    if not measured:
        return None
    rows, reasons = [], []
    for variant in variants:
        cells, reason = _cells(variant, measured.get(variant.name, []))
        settings = (variant.settings.get(key) for key in ("heads", "d_k"))
        sizes = [MISSING if value is None else plain(value) for value in settings]
        label = variant.label + variant.unfinished
        rows.append([label, *sizes, with_margin(variant.scored, 1), *cells])
        reasons += [f"{variant.label}: {reason}"] * bool(reason)
    score = variants[0].score.label
    table = Table(
        "Heads by variant",
        ("row", "h", "d_k", f"{score} (dev)", *HEADINGS),
        rows,
        [*NOTES, *([f"{MISSING}: {'; '.join(reasons)}."] * bool(reasons))],
    )
    return {"where": WHERE, "tables": [table], "plots": []}


HEADINGS = ("heads in all", "entropy over the source", "positional", "loss without", "removable")
WHERE = (
    "On sentences of the validation set and their references, of the checkpoint that was scored; "
    "heads of encoder, decoder, and decoder to source."
)
NOTES = (
    "Entropy over the source: of the decoder's attention over the source, the mean of its heads, "
    "divided by the logarithm of how many tokens there are: 1 is even, 0 one token.",
    "Positional: heads with at least 90\u202f% of their weight on one offset (Voita et al. 2019).",
    "Loss without: what the loss rises by when a head gives nothing, the mean of all heads, in "
    "nats a token (Michel et al. 2019). Removable: the share of heads for which that is less than "
    "0.01.",
)


def _cells(variant: Variant, trials: Sequence[Mapping[str, Any]]) -> tuple[list[str], str]:
    """Under HEADINGS, over the seeds by which the variant is compared, and why some are missing."""
    finished = [trial for trial in trials if trial["status"] == "finished"]
    found = [trial["heads"] for trial in finished or trials]
    if not found:
        return [MISSING] * len(HEADINGS), f"not measured ({variant.status})"
    if not found[0]["heads"]:
        architecture = variant.settings.get("architecture", "the model")
        return [MISSING] * len(HEADINGS), f"{architecture} has no attention"
    numbers = {name: over_seeds(found, name) for name in SHAPE}
    mean = {name: known.mean if known else None for name, known in numbers.items()}
    cells = [
        fixed(mean["heads"], 0),
        with_margin(numbers["cross_attention_entropy"], 2),
        fixed(mean["positional"], 0 if len(found) == 1 else 1),
        with_margin(numbers["loss_without"], 3),
        percent(mean["removable"], 0),
    ]
    reason = (
        "" if numbers["removable"] else "its heads are not joined by W^O, and none can be left out"
    )
    return cells, reason
