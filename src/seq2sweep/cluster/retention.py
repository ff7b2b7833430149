"""Removes the checkpoints of a run that nobody needs any more; `train.retention` says which."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from seq2sweep.cluster.storage import checkpoint_step, resume_point
from seq2sweep.config import TrainConfig
from seq2sweep.train import state
from seq2sweep.train.retention import to_keep


def prune(folder: Path, settings: TrainConfig, named: Collection[int] = ()) -> None:
    """Remove what a run's folder need not keep; a kill in between leaves the rest to the next call.

    named: steps to keep besides. The newest whole checkpoint stays, whatever the settings. Newer
    ones are damaged and will be written again: they count for nothing yet. Only one process may
    do this in a folder at a time. Raises OSError, after which it may be called again.
    """
    for leftover in folder.glob(".*.removed"):
        shutil.rmtree(leftover)
    newest = resume_point(folder)
    if newest is None:
        return
    regular = {
        step: path
        for path in folder.glob("step-*")
        if (step := checkpoint_step(path)) <= checkpoint_step(newest)
    }
    losses = {step: _valid_loss(path) for step, path in regular.items()}
    keep = to_keep(losses, settings, named)
    passed = [path for step, path in regular.items() if step not in keep]
    for path in [*passed, *folder.glob("interrupted-*")]:
        if path != newest:
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
