"""Which points of a journal become curves."""

from __future__ import annotations

import math
from typing import Any

from seq2sweep.tracking.curves import CURVES, new_points


def entry(kind: str, step: int, **figures: float | None) -> dict[str, Any]:
    return {"kind": kind, "step": step, "time": 1000.0 + step, **figures}


def test_curves_and_nothing_else() -> None:
    entries = [
        entry("logged", 1, loss=2.0, perplexity=4.0, seconds_left=3.0, epoch=1),
        entry("validated", 1, valid_loss=1.0, valid_perplexity=2.0),
        entry("checkpoint", 1, loss=99.0, valid_loss=99.0),
        entry("finished", 1, wall_seconds=3.0, loss=99.0),
    ]
    points, last = new_points(entries, {})
    assert points == [
        (1001.0, 1, {"loss": 2.0, "perplexity": 4.0}),
        (1001.0, 1, {"valid_loss": 1.0, "valid_perplexity": 2.0}),
    ]
    assert last == {"logged": 1, "validated": 1}


def test_steps_that_are_repeated_are_passed_over() -> None:
    first = [entry("logged", step, loss=1.0) for step in (1, 2, 3)]
    again = [entry("logged", step, loss=1.0) for step in (2, 3, 4)]
    before = {"logged": 2}
    points, last = new_points([*first, *again], before)
    assert [step for _, step, _ in points] == [3, 4]
    assert last == {"logged": 4}
    assert before == {"logged": 2}


def test_null_is_not_a_number() -> None:
    ((_, _, figures),), _ = new_points([entry("logged", 1, loss=None, perplexity=1.0)], {})
    assert math.isnan(figures["loss"])
    assert figures["perplexity"] == 1.0


def test_names_of_the_curves() -> None:
    """The names that reports and the README rely on."""
    assert [name for names in CURVES.values() for name in names] == [
        "loss",
        "perplexity",
        "gradient_norm",
        "learning_rate",
        "tokens_per_second",
        "rss_bytes",
        "peak_rss_bytes",
        "peak_gpu_bytes",
        "valid_loss",
        "valid_perplexity",
    ]
