"""The folder of weights that training leaves (models/train): which to use, and what made them.

Its `receipt.json` lists the checkpoints with their steps, validation losses (null: not known) and
sha256 sums, and what made them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2sweep.config import EvaluateConfig
from seq2sweep.data.files import CHECKPOINTS, RECEIPT
from seq2sweep.errors import UserError
from seq2sweep.paths import mismatch, read_json
from seq2sweep.project_files import MODEL, STUDENT, TEACHER
from seq2sweep.storage.atomic import sha256


@dataclass(frozen=True)
class Weights:
    """One checkpoint's weights: the step they are of, their safetensors file and its sum."""

    step: int
    file: Path
    sha256: str


def read_receipt(folder: Path) -> dict[str, Any]:
    """The receipt of a folder of weights: `config`, `lineage`, `checkpoints`, `run`.

    Raises UserError when it is missing or damaged.
    """
    path = folder / RECEIPT
    receipt: dict[str, Any] = read_json(path)
    remedy = "remove it and run `dvc repro`"
    if not receipt.get("checkpoints"):
        raise UserError(f"{path} lists no weights: {remedy}")
    entry = {"step": int, "file": str, "sha256": str}
    if wrong := mismatch(receipt, {"config": {}, "lineage": {}, "checkpoints": [entry]}):
        raise UserError(f"{path}: {wrong}: {remedy}")
    return receipt


def trained_by(folder: Path) -> str:
    """The stage that trains the weights of a folder, by its name; train if that is no stage's."""
    return folder.name if folder.name in (TEACHER.name, STUDENT.name) else MODEL.name


def choose(folder: Path, config: EvaluateConfig) -> list[Weights]:
    """The checkpoints to average, oldest first, their sums verified.

    The newest or best `average_checkpoints` (fewer when fewer were kept), or those of exactly
    `checkpoint_steps`. Raises UserError when a step was not kept, no loss is known to say which are
    best, or a file is not as written.
    """
    receipt, again = read_receipt(folder), f"`dvc repro -f -s {trained_by(folder)}`"
    entries = {int(entry["step"]): entry for entry in receipt["checkpoints"]}
    if config.checkpoint_steps:
        steps = sorted(set(config.checkpoint_steps))
    elif config.checkpoints == "best":
        from seq2sweep.runs.layout import best  # it loads torch, and others are here to compare

        losses = {step: entry.get("valid_loss") for step, entry in entries.items()}
        steps = sorted(best(losses, config.average_checkpoints))
        if not steps:
            raise UserError(
                f"{folder} has no validation losses to tell evaluate.checkpoints which are best: "
                f"set it to newest, or run {again}"
            )
    else:
        steps = sorted(entries)[-config.average_checkpoints :]
    for step in steps:
        if step not in entries:
            raise UserError(
                f"evaluate.checkpoint_steps names step {step}, but {folder} holds steps "
                f"{', '.join(map(str, sorted(entries)))}: name one of these, or remove the "
                f"checkpoints after step {step} from {receipt.get('run', 'the run')} in "
                f"cluster.storage, and run {again} to train these steps again"
            )
    chosen = []
    for step in steps:
        file, written = folder / CHECKPOINTS / entries[step]["file"], entries[step]["sha256"]
        if not file.is_file() or sha256(file) != written:
            raise UserError(
                f"{file} is missing or differs from its receipt: run `dvc checkout {folder}` "
                f"or {again}"
            )
        chosen.append(Weights(step, file, written))
    return chosen
