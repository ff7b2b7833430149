"""Removes the checkpoints of a run that nobody needs any more; `train.retention` says which."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from seq2sweep.cluster.storage import checkpoint_step, checkpoints, is_regular, resume_point
from seq2sweep.config import TrainConfig
from seq2sweep.train import state
from seq2sweep.train.retention import to_keep


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
    known = [p for p in checkpoints(folder) if checkpoint_step(p) <= checkpoint_step(newest)]
    regular = [path for path in known if is_regular(path)]
    losses = {checkpoint_step(path): _valid_loss(path) for path in regular}
    keep = to_keep(losses, settings, named)
    for path in known:
        if path != newest and not (path in regular and checkpoint_step(path) in keep):
            _remove(path)


def _valid_loss(path: Path) -> float | None:
    try:
        return state.read_progress(path).valid_loss
    except state.CheckpointError:
        return None


def _remove(path: Path) -> None:
    """Gone at once for whoever looks for checkpoints, then from the disk."""
    hidden = path.with_name(f".{path.name}.removed")
    path.rename(hidden)
    shutil.rmtree(hidden)
