"""Which checkpoints of a run are kept, by their steps and validation losses alone.

What is dropped once would never be kept later: so it makes no difference whether this is asked
after every checkpoint, or once after several.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from seq2sweep.config import TrainConfig
from seq2sweep.runs.layout import checkpoint_step, checkpoints, is_regular, resume_point
from seq2sweep.train import checkpointing


def always_kept(settings: TrainConfig, named: Collection[int] = ()) -> set[int]:
    """Steps whose checkpoints a finished run has, whatever their losses. named: as of `prune`."""
    often = settings.checkpoint_every
    steps = {*range(often, settings.steps + 1, often), settings.steps}
    return to_keep(dict.fromkeys(steps), settings, named)


def prune(
    folder: Path,
    settings: TrainConfig,
    named: Collection[int] = (),
    newest: Path | None = None,
) -> None:
    """Remove what a run's folder need not keep; a kill in between leaves the rest to the next call.

    named: steps to keep besides. newest: the newest whole checkpoint, where that is known; it
    stays, whatever the settings. Newer ones will be written again: they count for nothing yet, and
    stay. Only whoever holds `only_writer` may do this. Raises OSError, after which it may be called
    again.
    """
    for leftover in folder.glob(".*.removed"):
        shutil.rmtree(leftover)
    newest = newest or resume_point(folder)
    if newest is None:
        return
    for path in superfluous(checkpoints(folder), valid_loss, settings, named, newest):
        _remove(path)


def superfluous(
    known: Collection[Path],
    loss: Callable[[Path], float | None],
    settings: TrainConfig,
    named: Collection[int],
    newest: Path,
) -> list[Path]:
    """Which of the `known` checkpoints of a run `prune` would remove.

    loss: says the validation loss of one.
    """
    older = [path for path in known if checkpoint_step(path) <= checkpoint_step(newest)]
    regular = [path for path in older if is_regular(path)]
    keep = to_keep({checkpoint_step(path): loss(path) for path in regular}, settings, named)
    return [
        path
        for path in older
        if path != newest and not (path in regular and checkpoint_step(path) in keep)
    ]


def valid_loss(path: Path) -> float | None:
    """A checkpoint's validation loss, where that is known."""
    try:
        return checkpointing.read_progress(path).valid_loss
    except checkpointing.CheckpointError:
        return None


def _remove(path: Path) -> None:
    """Gone at once for whoever looks for checkpoints, then from the disk."""
    hidden = path.with_name(f".{path.name}.removed")
    path.rename(hidden)
    shutil.rmtree(hidden)


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
