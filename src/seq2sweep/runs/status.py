"""How far a run is: what its folder has, and what it should have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, checkpoint_step, is_regular
from seq2sweep.runs.retention import always_kept

Ending = Literal["finished", "stopped early", "failed"]
"""How a training can end, of a run or of a trial. One that was interrupted has not ended."""
Status = Ending | Literal["interrupted"]
"""How a process that trains, evaluates or sweeps can end."""


@dataclass(frozen=True)
class RunStatus:
    """checkpoints: whole ones, oldest first; summary: figures of the loop's Finished, empty before.


    last_step: where the run ends.
    """

    checkpoints: list[Path]
    summary: dict[str, Any]
    last_step: int

    @property
    def step(self) -> int:
        """The step after which training resumes."""
        return max(map(checkpoint_step, self.checkpoints), default=0)

    @property
    def finished(self) -> bool:
        """Whether the run is at its end, with its last checkpoint."""
        regular = filter(is_regular, self.checkpoints)
        return bool(self.summary) and self.last_step in map(checkpoint_step, regular)

    def check_kept(self, config: Config, location: str) -> None:
        """Raise UserError where a finished run lacks a checkpoint that its settings keep."""
        has = {checkpoint_step(path) for path in self.checkpoints if is_regular(path)}
        missing = always_kept(config.train, config.evaluate.checkpoint_steps) - has
        if missing:
            name = checkpoint_name(min(missing))
            raise UserError(
                f"{location}/{name} is missing, and the run has finished: restore it, or remove "
                f"the checkpoints from {name} on, and run `dvc repro` to train these steps again"
            )


def read_summary(folder: Path) -> dict[str, Any]:
    """Figures of the loop's Finished, by the journal in a folder; empty where it has none."""
    found: dict[str, Any] = {}
    for found in journal.entries(folder / JOURNAL_NAME, "finished"):  # noqa: B007 - the last one
        pass
    return {k: v for k, v in found.items() if k not in ("kind", "time")}
