"""Which checkpoints of a run are kept, by their steps and validation losses alone.

What is dropped once would never be kept later: so it makes no difference whether this is asked
after every checkpoint, or once after several.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from seq2sweep.config import TrainConfig

Losses = Mapping[int, float | None]
"""Validation loss at the step of each checkpoint; None: not known."""


def to_keep(losses: Losses, settings: TrainConfig, named: Collection[int] = ()) -> set[int]:
    """Of the steps in `losses`: the newest, the best, every n-th, and those that are named."""
    return {
        *sorted(losses)[-settings.keep_checkpoints :],
        *best(losses, settings.keep_best),
        *(step for step in losses if settings.keep_every and step % settings.keep_every == 0),
        *(step for step in losses if step in named),
    }


def best(losses: Losses, count: int) -> list[int]:
    """The `count` steps of lowest known loss, best first; of equals the newer is better."""
    known = {step: loss for step, loss in losses.items() if loss is not None}
    return sorted(known, key=lambda step: (known[step], -step))[:count]
