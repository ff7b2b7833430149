"""Where runs lie on disk: `<cluster.storage>/<run>/` with its journal and checkpoints."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2sweep.config import ClusterConfig
from seq2sweep.data.files import write_whole
from seq2sweep.errors import UserError
from seq2sweep.train import journal, state
from seq2sweep.train.events import Event

JOURNAL_NAME = "journal.jsonl"


def run_folder(config: ClusterConfig, project: Path, name: str) -> Path:
    """Absolute, because Ray's workers have working directories of their own."""
    if "://" in config.storage:
        raise UserError(
            f"cluster.storage must be a folder that all nodes see, not {config.storage}: "
            "mount it and give its path"
        )
    return (project / config.storage / name).resolve()


def checkpoint_name(step: int) -> str:
    """`step-00001000`: names sort by step."""
    return f"step-{step:08d}"


def interrupted_name(step: int) -> str:
    """`interrupted-00001000`: to go on from after an interruption, and never averaged."""
    return f"interrupted-{step:08d}"


def checkpoint_step(folder: Path) -> int:
    """The step in a name that `checkpoint_name` or `interrupted_name` made."""
    return int(folder.name.rpartition("-")[2])


def newest_checkpoints(folder: Path, count: int) -> list[Path]:
    """The newest checkpoints in a folder whose files match their manifests, oldest first."""
    return _whole(sorted(folder.glob("step-*")), count)


def resume_point(folder: Path) -> Path | None:
    """Where training goes on: the newest whole checkpoint, also one that an interruption left."""
    every = sorted([*folder.glob("step-*"), *folder.glob("interrupted-*")], key=checkpoint_step)
    return next(iter(_whole(every, 1)), None)


def remove_damaged(folder: Path) -> None:
    """Remove checkpoints that do not match their manifests: nothing can go on from them."""
    for path in [*folder.glob("step-*"), *folder.glob("interrupted-*")]:
        if not _is_whole(path):
            shutil.rmtree(path)


def _whole(oldest_first: list[Path], count: int) -> list[Path]:
    """The last `count` of those that are whole: whoever asks passes over a torn one."""
    found: list[Path] = []
    for path in reversed(oldest_first):
        if len(found) == count:
            break
        if _is_whole(path):
            found.append(path)
    return found[::-1]


def _is_whole(path: Path) -> bool:
    try:
        state.verify(path)
    except state.CheckpointError:
        return False
    return True


@contextlib.contextmanager
def only_user(folder: Path) -> Iterator[None]:
    """Hold a run's folder for this process; UserError while another one does.

    The lock goes with the process, however that ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process is working in {folder}: wait for its end, or end it"
            ) from None
        yield


def remove_all_but_newest(folder: Path, count: int) -> None:
    """Keep the newest `count` checkpoints of a run, and none that an interruption left."""
    for old in [*sorted(folder.glob("step-*"))[:-count], *folder.glob("interrupted-*")]:
        shutil.rmtree(old)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    write_whole(path, json.dumps(value, indent=2) + "\n")


class Recorder:
    """A journal in which each event stands once, also when training repeats steps.

    Training that goes on from a checkpoint does the steps after it again. What was written the
    first time was delivered already, so the first entry of a kind and step is the one that counts.
    """

    def __init__(self, path: Path) -> None:
        self.journal = journal.Journal(path)
        entries, _ = journal.read(path)
        self.last = {entry["kind"]: int(entry["step"]) for entry in entries}

    def append(self, event: Event) -> None:
        """Write the event unless it is there."""
        if event.step > self.last.get(event.kind, -1):
            self.journal.append(event)
            self.last[event.kind] = event.step

    def close(self) -> None:
        """Close the file."""
        self.journal.close()
