"""Checkpoints of no training, for tests of what becomes of folders of them."""

from __future__ import annotations

from pathlib import Path

import torch

from seq2sweep.runs.layout import checkpoints, is_regular
from seq2sweep.train import checkpointing
from seq2sweep.train.metrics import Progress


def save(place: Path, step: int, loss: float | None = None, **identity: str) -> Path:
    """Write a whole one of a model of two numbers; its folder is made.

    loss: of a validation at its step; else there is one of the step before.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    model = torch.nn.Linear(1, 1)
    progress = Progress(step, newest={"valid_loss": 0.5}, validated=step - 1)
    if loss is not None:
        progress.newest["valid_loss"], progress.validated = loss, step
    checkpointing.capture(model, torch.optim.SGD(model.parameters()), progress, identity).write(
        place
    )
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
