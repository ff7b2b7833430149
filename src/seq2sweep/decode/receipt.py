"""Write a folder of weights: receipt.json says which they are and what made them.

`seq2sweep.decode.exported_weights` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import hardware
from seq2sweep.config import Config
from seq2sweep.storage.atomic import sha256
from seq2sweep.train import checkpointing

COST = ("flops", "device_hours", "energy_kwh")

# Not all of the configuration: addresses of servers may hold passwords.
SECTIONS = ("data", "prepare", "vocabulary", "model", "train")


def weights_entry(checkpoint: Path, file: Path) -> dict[str, Any]:
    """One of the receipt's checkpoints: `file` holds the weights of the folder `checkpoint`."""
    progress = checkpointing.read_progress(checkpoint)
    return {
        "step": progress.step,
        "file": file.name,
        "sha256": sha256(file),
        "valid_loss": progress.valid_loss,
    }


def receipt(
    run: str,
    entries: Sequence[dict[str, Any]],
    config: Config,
    lineage: dict[str, str],
    figures: Mapping[str, Any],
) -> dict[str, Any]:
    """run: the name under which the training is recorded. lineage: of seq2sweep.tracking.

    figures: of the training's journal, from which `trained` says on what it was computed, and
    `cost` what that took; null: not measured.
    """
    values = configuration.to_dict(config)
    return {
        "run": run,
        "checkpoints": sorted(entries, key=lambda entry: entry["step"]),
        "config": {key: values[key] for key in SECTIONS},
        "lineage": lineage,
        "trained": {key: figures.get(key) for key in hardware.ORIGIN},
        "cost": {key: figures.get(key) for key in COST},
    }
