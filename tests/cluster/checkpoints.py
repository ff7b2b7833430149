"""Checkpoints of no training, for tests of what becomes of folders of them."""

from __future__ import annotations

from pathlib import Path

import torch

from seq2sweep.runs.layout import checkpoints, is_regular
from seq2sweep.train import checkpointing
from seq2sweep.train.metrics import Progress


def snapshot(progress: Progress | None = None, **identity: str) -> checkpointing.Snapshot:
    """Of a model of two numbers."""
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    return checkpointing.capture(model, optimizer, progress or Progress(), identity)


def save(place: Path, step: int, loss: float | None = None, **identity: str) -> Path:
    """Write a whole `snapshot`; its folder is made.

    loss: of a validation at its step; else there is one of the step before.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    progress = Progress(step, newest={"valid_loss": 0.5}, validated=step - 1)
    if loss is not None:
        progress.newest["valid_loss"], progress.validated = loss, step
    snapshot(progress, **identity).write(place)
    return place


def whole_checkpoints(folder: Path) -> list[Path]:
    """Those in a folder that no interruption left, oldest first; each matches its manifest."""
    found = list(filter(is_regular, checkpoints(folder)))
    for path in found:
        checkpointing.verify(path)
    return found


def damage(checkpoint: Path) -> None:
    """Tear off the last byte of its weights."""
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
