"""Where runs lie on disk: `<cluster.storage>/<run>/` with its journal and checkpoints."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seq2sweep import console
from seq2sweep.cluster.writer import patiently
from seq2sweep.config import ClusterConfig
from seq2sweep.data.files import write_whole
from seq2sweep.errors import UserError
from seq2sweep.locks import try_lock
from seq2sweep.train import journal, state
from seq2sweep.train.events import Event

JOURNAL_NAME = "journal.jsonl"
_CHECKPOINT = re.compile(r"(step|interrupted)-\d{8,}")
OLD_WRITER_SECONDS = 240.0
"""NFS gives the locks of a machine that is gone away after 90 s; then some."""


def run_folder(config: ClusterConfig, project: Path, name: str) -> Path:
    """A run's folder on the driver's machine, where it comes home to when storage is a bucket.

    Absolute, because Ray's workers have working directories of their own.
    """
    return (project / config.folder / name).resolve()


def checkpoint_name(step: int) -> str:
    """`step-00001000`: names sort by step."""
    return f"step-{step:08d}"


def interrupted_name(step: int) -> str:
    """`interrupted-00001000`: to go on from after an interruption, and never averaged."""
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


def resume_point(folder: Path, before: int | None = None) -> Path | None:
    """Where training goes on: the newest whole checkpoint, also one that an interruption left.

    before: only those of steps below it, for a finished run that has lost one of this step.
    """
    return _newest_whole(
        [path for path in checkpoints(folder) if before is None or checkpoint_step(path) < before]
    )


def checkpoints(folder: Path) -> list[Path]:
    """All of them by step, whether whole or not, also those that an interruption left.

    Raises OSError where the folder is not there or cannot be read: that says nothing of them.
    """
    # Not Path.glob(), which finds nothing then.
    found = [folder / name for name in os.listdir(folder) if is_checkpoint_name(name)]
    return sorted(found, key=lambda path: (checkpoint_step(path), path.name))


def remove_damaged(folder: Path, tell: Callable[[str], None] = lambda damage: None) -> list[Path]:
    """Remove checkpoints that do not match their manifests; returns the others, oldest first.

    Nothing can go on from them, and none may be counted among those that are kept. Only whoever
    holds `only_writer` may do this.
    tell: gets what was wrong with each.
    """
    whole = []
    for path in checkpoints(folder):
        try:
            state.verify(path)
        except state.CheckpointError as error:
            shutil.rmtree(path)
            tell(str(error))
        else:
            whole.append(path)
    return whole


def _newest_whole(oldest_first: list[Path]) -> Path | None:
    return next((path for path in reversed(oldest_first) if _is_whole(path)), None)


def _is_whole(path: Path) -> bool:
    try:
        state.verify(path)
    except state.CheckpointError:
        return False
    return True


@contextlib.contextmanager
def only_user(folder: Path, name: str = "lock", patience: float = 0.0) -> Iterator[None]:
    """Hold a run's folder for this process, as long as it lives; UserError when another one does.

    name: of the lock; patience: seconds to wait for it, which is said.
    """
    with _lock(folder / name, patience) as ours:
        if not ours:
            raise UserError(f"another process is working in {folder}: wait for its end, or end it")
        yield


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Be the only one to write a run's checkpoints and journal.

    The worker of a driver that was killed, or on a node that was lost, may hold on for a while: it
    is waited for, then a TimeoutError says so.
    """
    path = folder / "writer.lock"
    with _lock(path, OLD_WRITER_SECONDS) as ours:
        if not ours:
            raise TimeoutError(f"another worker holds {path}: end it, or wait for its node's lease")
        yield


@contextlib.contextmanager
def try_only_writer(folder: Path) -> Iterator[bool]:
    """Hold what `only_writer` holds, if nobody else does: says whether."""
    with _lock(folder / "writer.lock", 0.0) as ours:
        yield ours


@contextlib.contextmanager
def _lock(path: Path, patience: float) -> Iterator[bool]:
    give_up = time.monotonic() + patience
    with path.open("w") as stream:
        ours = try_lock(stream.fileno(), path, "cluster.storage")
        if patience and not ours:
            console.say(f"waiting for another process, which holds {path}")
        while not ours and time.monotonic() < give_up:
            time.sleep(0.2)
            ours = try_lock(stream.fileno(), path, "cluster.storage")
        yield ours


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    write_whole(path, json.dumps(value, indent=2) + "\n")


class Recorder:
    """A journal in which each event stands once, also when training repeats steps.

    Training that goes on from a checkpoint does the steps after it again. What was written the
    first time was delivered already, so the first entry of a kind and step is the one that counts.
    """

    def __init__(self, path: Path) -> None:
        self.journal = patiently(lambda: journal.Journal(path))
        self.last = patiently(
            lambda: {entry["kind"]: int(entry["step"]) for entry in journal.entries(path)}
        )

    def append(self, event: Event) -> None:
        """Write the event unless it is there."""
        if event.step > self.last.get(event.kind, -1):
            patiently(functools.partial(self.journal.append, event, time.time()))
            self.last[event.kind] = event.step

    def close(self) -> None:
        """Close the file."""
        self.journal.close()
