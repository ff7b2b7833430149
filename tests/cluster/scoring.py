"""Importable in Ray's processes: stands in for decoding and BLEU."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.decode.beam import NO_NUMBERS
from seq2sweep.errors import UserError


def score(config: Config, checkpoint: Path, encoded: Path) -> dict[str, Any]:
    """Figures that show what was scored, and a line in a file that shows how often."""
    step = json.loads((checkpoint / "state.json").read_text())["progress"]["step"]
    with (checkpoint.parent / "scored.txt").open("a") as stream:
        stream.write(f"{step}\n")
    sentences = len(Bitext.open(encoded, "valid"))
    return {
        "bleu": float(step),
        "signature": f"{config.evaluate.beam} {sentences}",
        "translations": [f"step {step}"] * sentences,
    }


def refuse(config: Config, checkpoint: Path, encoded: Path) -> dict[str, Any]:
    """What scoring does when the user has something to mend."""
    raise UserError("data/clean/valid.source.txt is missing")


def diverged(config: Config, checkpoint: Path, encoded: Path) -> dict[str, Any]:
    """What scoring does of a model whose outputs are NaN."""
    raise UserError(NO_NUMBERS)


def crash(config: Config, checkpoint: Path, encoded: Path) -> dict[str, Any]:
    """What scoring does when it has a bug."""
    raise ZeroDivisionError("no sentences")


def no_room(config: Config, checkpoint: Path, encoded: Path) -> dict[str, Any]:
    """What scoring does where the node has no room for a checkpoint."""
    raise OSError(errno.ENOSPC, "No space left on device")
