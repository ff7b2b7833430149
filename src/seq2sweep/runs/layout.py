"""Where runs lie on disk: `<cluster.storage>/<run>/` with its journal and checkpoints."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from seq2sweep.config import ClusterConfig
from seq2sweep.train import checkpointing

JOURNAL_NAME = "journal.jsonl"
_CHECKPOINT = re.compile(r"(step|interrupted)-\d{8,}")


def run_folder(config: ClusterConfig, project: Path, name: str) -> Path:
    """A run's folder on the driver's machine, where a run in an object store is downloaded to.

    Absolute, because Ray's workers have working directories of their own.
    """
    return (project / config.folder / name).resolve()


def checkpoint_name(step: int) -> str:
    """`step-00001000`: names sort by step."""
    return f"step-{step:08d}"


def interrupted_name(step: int) -> str:
    """`interrupted-00001000`: to resume from after an interruption, and never averaged."""
    return f"interrupted-{step:08d}"


def checkpoint_step(folder: Path) -> int:
    """The step in a name that `checkpoint_name` or `interrupted_name` made."""
    return int(folder.name.rpartition("-")[2])


def is_regular(checkpoint: Path) -> bool:
    """Whether it is one that every run of these settings has, not what an interruption left."""
    return checkpoint.name.startswith("step-")


def is_checkpoint_name(name: str) -> bool:
    """Whether it is one that `checkpoint_name` or `interrupted_name` made."""
    return _CHECKPOINT.fullmatch(name) is not None


def whole_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder whose files match their manifests, oldest first."""
    return [path for path in checkpoints(folder) if is_regular(path) and _is_whole(path)]


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest of `whole_checkpoints`."""
    return _newest_whole([path for path in checkpoints(folder) if is_regular(path)])


def resume_point(folder: Path) -> Path | None:
    """Where training resumes: the newest whole checkpoint, also one that an interruption left."""
    return _newest_whole(checkpoints(folder))


def checkpoints(folder: Path) -> list[Path]:
    """All of them by step, whether whole or not, also those that an interruption left.

    Raises OSError where the folder is not there or cannot be read: that says nothing of them.
    """
    # Not Path.glob(), which finds nothing then.
    found = [folder / name for name in os.listdir(folder) if is_checkpoint_name(name)]
    return sorted(found, key=lambda path: (checkpoint_step(path), path.name))


def remove_damaged(folder: Path, tell: Callable[[str], None] = lambda damage: None) -> list[Path]:
    """Remove checkpoints that do not match their manifests; returns the others, oldest first.

    Nothing can resume from them, and none may be counted among those that are kept. Only whoever
    holds `only_writer` may do this.
    tell: gets what was wrong with each.
    """
    whole = []
    for path in checkpoints(folder):
        try:
            checkpointing.verify(path)
        except checkpointing.CheckpointError as error:
            shutil.rmtree(path)
            tell(str(error))
        else:
            whole.append(path)
    return whole


def _newest_whole(oldest_first: list[Path]) -> Path | None:
    return next((path for path in reversed(oldest_first) if _is_whole(path)), None)


def _is_whole(path: Path) -> bool:
    try:
        checkpointing.verify(path)
    except checkpointing.CheckpointError:
        return False
    return True
