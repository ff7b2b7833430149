"""Which figures of a training's journal are the curves of its run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Point = tuple[float, int, Mapping[str, float]]

# The figures of each kind of journal entry that become curves; the others are of the moment.
CURVES: dict[str, Sequence[str]] = {
    "logged": (
        "loss",
        "perplexity",
        "gradient_norm",
        "learning_rate",
        "tokens_per_second",
        "rss_bytes",
        "peak_rss_bytes",
        "peak_gpu_bytes",
    ),
    "validated": ("valid_loss", "valid_perplexity"),
}


def new_points(
    entries: Sequence[Mapping[str, Any]], last: Mapping[str, int]
) -> tuple[list[Point], dict[str, int]]:
    """(unix seconds, step, metrics) of journal entries, and the last step of each kind with them.

    last: the last step of each kind that was recorded before. A training that goes on from an
    older checkpoint repeats steps: those are passed over.
    """
    points: list[Point] = []
    newest = dict(last)
    for entry in entries:
        kind, step = entry["kind"], entry["step"]
        if kind in CURVES and step > newest.get(kind, -1):
            # The journal writes null for what is no number.
            figures = {
                name: math.nan if entry[name] is None else entry[name]
                for name in CURVES[kind]
                if name in entry
            }
            points.append((entry["time"], step, figures))
            newest[kind] = step
    return points, newest
