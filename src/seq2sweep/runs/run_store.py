"""Where a run is kept, for its driver, its workers and its trials, and how far it is.

All of them work in a folder. Here it is one that all nodes see, and what is written there is kept;
of a run in an object store (remote_run_store.py) each machine has a folder of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from seq2sweep import console
from seq2sweep.errors import UserError
from seq2sweep.runs import journal, layout
from seq2sweep.runs.layout import JOURNAL_NAME, Retention, is_regular, last_step
from seq2sweep.runs.same_data import fingerprint_of, require_data
from seq2sweep.runs.watchdog import hang_logs, keep_log
from seq2sweep.storage.atomic import write_whole
from seq2sweep.storage.locks import only_user, only_writer
from seq2sweep.storage.retry import repeating, storage_serves
from seq2sweep.train import checkpointing
from seq2sweep.train.checkpointing import MANIFEST

if TYPE_CHECKING:
    from seq2sweep.storage.lease import Lease

CHANGES_NO_RESULT = "where files are kept"

T = TypeVar("T")
Sync = Callable[..., list[Any]]

Ending = Literal["finished", "stopped early", "failed"]
"""How a training can end, of a run or of a trial. One that was interrupted has not ended."""
Status = Ending | Literal["interrupted"]
"""How a process that trains, evaluates or sweeps can end."""
OTHER_TMPDIR = ": free some, or set TMPDIR to another disk on all nodes, before Ray starts there"
READERS = 8
"""Checkpoints that are verified at once."""
MUCH_TO_READ = 10e9
"""Bytes of checkpoints of which it is said that they are read: a few seconds or more."""


@dataclass(frozen=True)
class RunStatus:
    """How far a run is.

    checkpoints: whole ones, oldest first; summary: metrics of the loop's Finished, empty before;
    last_step: where the run ends.
    """

    checkpoints: list[Path]
    summary: dict[str, Any]
    last_step: int

    @property
    def step(self) -> int:
        """The step after which training resumes."""
        return last_step(self.checkpoints)

    @property
    def finished(self) -> bool:
        """Whether the run is at its end, with its last checkpoint."""
        return bool(self.summary) and self.last_step in self.regular_steps()

    def regular_steps(self) -> set[int]:
        """Steps of the checkpoints that no interruption left."""
        return set(map(layout.checkpoint_step, filter(is_regular, self.checkpoints)))


class RunStore:
    """A run in a folder that all nodes see."""

    save_seconds = 90.0
    """How long workers may take to save and leave: a node may learn late of a new file on a network
    file system."""
    start_seconds = 0.0
    """What this adds to the time until a worker knows where to begin."""
    last_answer_seconds: float | None = None
    """How long is waited in the end for what is said and recorded of it; None: to its end."""
    poll_seconds = 0.5
    """How often a worker looks whether it is to stop."""
    also = ""
    """In a message, where copies of its checkpoints are."""
    _lease: Lease | None = None
    """Of the driver, or of the worker that writes, where there is an object store."""

    def __init__(self, folder: Path, attempt: str = "", retention: Retention | None = None) -> None:
        """attempt: differs for each start of the workers; '' until the driver begins one.

        retention: of a run that is trained; without it no checkpoint is removed.
        """
        self.folder = self.logs = folder
        self.location, self.attempt, self.retention = str(folder), attempt, retention
        self._stop = self._asked = self._begun = False

    def child(self, name: str) -> RunStore:
        """What is kept below it under a name: a trial of a sweep."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return RunStore(folder, self.attempt)

    def children(self) -> list[str]:
        """The names of what is kept below it: the trials of a sweep."""
        return [path.name for path in self.folder.iterdir() if path.is_dir()]

    def write(self, name: str, text: str) -> None:
        """Keep a small file, whole or not at all."""
        write_whole(self.folder / name, text)

    def read(self, name: str) -> str | None:
        """What a small file holds; None if it is not there."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        return None

    def delete(self, name: str) -> None:
        """Remove a small file, if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    # --- for the driver ---------------------------------------------------------------------------

    def refresh(self) -> None:
        """Have the journal and the small files in the folder."""

    def newest_checkpoint(self) -> Path | None:
        """The newest whole one that no interruption left; perhaps not in this folder: `fetch`."""
        return layout.newest_checkpoint(self.folder)

    def sums(self, name: str) -> dict[str, str]:
        """sha256 (hex) of the files of a checkpoint, by name, as its manifest has them."""
        content = json.loads((self.folder / name / MANIFEST).read_text(encoding="utf-8"))
        return dict(content["sha256"])

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Be the only driver of this run; UserError when there is another one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_user(self.folder):
            yield

    def publish(self, encoded: Path, data: str | None = None) -> dict[str, str]:
        """The part of workers' settings that says where the encoded data in a folder is, and which.

        data: its fingerprint, by which the run is named; None: that of what is there now. Raises
        NodeError where the folder has other data by now.
        """
        if data is None:
            data = fingerprint_of(encoded)
        else:
            require_data(encoded, data)
        return {"encoded": str(encoded)} | ({"encoded_fingerprint": data} if data else {})

    def status(self, *, newest_only: bool = False) -> RunStatus:
        """Where the run is. Waits for a worker that still writes there.

        newest_only: of a run that has not finished only the newest checkpoint is read. Else damaged
        ones are removed, which is said, and of a finished run what need not be kept. Raises
        OperationalError when the storage stays away.
        """
        return self.retried(lambda: self._status_here(newest_only))

    def _status_here(self, newest_only: bool) -> RunStatus:
        with only_writer(self.folder):
            if newest_only and not read_summary(self.folder):
                newest = layout.resume_point(self.folder)
                return self._as_status([newest] if newest else [])
            status = self._as_status(whole_checkpoints(self.folder))
            # It may have been killed before it could. Not for settings that are refused.
            if status.finished and self.retention and not self._missing(status):
                layout.prune(self.folder, self.retention, status.checkpoints[-1])
                status = self._as_status([path for path in status.checkpoints if path.exists()])
            return status

    def _as_status(self, checkpoints: list[Path]) -> RunStatus:
        assert self.retention is not None, "only of a run that is trained"
        summary = read_summary(self.folder)
        return RunStatus(checkpoints, summary, self.retention.settings.steps)

    def check_kept(self, status: RunStatus) -> None:
        """Raise UserError where a finished run lacks a checkpoint that its settings keep, or one
        that has not finished would end without it."""
        if not (missing := self._missing(status)):
            return
        name = layout.checkpoint_name(min(missing))
        again = f"on{self.also}, and run `dvc repro` to train these steps again"
        if status.finished:
            raise UserError(
                f"{self.location}/{name} is missing, and the run has finished: restore it, or "
                f"remove the checkpoints from {name} {again}"
            )
        assert self.retention is not None
        key = self.retention.kept_by(min(missing))
        raise UserError(
            f"{self.location}/{name} is missing, and {key} keeps it: restore it, change {key}, or "
            f"remove the checkpoints from {name} {again}"
        )

    def _missing(self, status: RunStatus) -> set[int]:
        """Steps of the checkpoints that are kept and are not among these, which are here.

        Of a run that has not finished, of those up to where it stands that it keeps whatever its
        losses will be.
        """
        assert self.retention is not None, "only of a run that is trained"
        losses = None
        if status.finished:
            losses = self.retention.losses(self.folder, status.checkpoints, layout.valid_loss)
        kept = {step for step in self.retention.always(losses) if step <= status.step}
        return kept - status.regular_steps()

    def step(self) -> int:
        """The step after which training would resume."""
        return self.retried(self._newest_step)

    def _newest_step(self) -> int:
        newest = layout.resume_point(self.folder)
        return layout.checkpoint_step(newest) if newest else 0

    def follow_journal(self) -> None:
        """Have all of the journal in the folder; no error where the storage is away."""

    def check_lease(self) -> None:
        """Raise LeaseLostError if another driver has taken over, as far as is known; no request."""
        if self._lease is not None and self._lease.lost:
            raise self._lease.error()

    def begin_attempt(self, attempt: str) -> None:
        """Before workers start: nothing is there that says that earlier ones hung."""
        self.attempt, self._asked, self._begun = attempt, False, False
        self.retried(lambda: list(map(keep_log, hang_logs(self.folder))))

    def end_attempt(self) -> None:
        """After workers have left: leave nothing of the attempt behind."""
        with contextlib.suppress(OSError):
            self._stop_file.unlink(missing_ok=True)

    def request_stop(self) -> bool:
        """Ask the workers to save and leave; False where the storage fails: then ask again.

        Once it has been asked, of an attempt, it costs nothing.
        """
        with contextlib.suppress(OSError, UserError):
            if not self._asked:
                self._write_stop()
            self._asked = True
        return self._asked

    def _write_stop(self) -> None:
        self._stop_file.touch()

    def has_begun(self) -> bool:
        """Whether a worker of this attempt has got to our code, as far as the storage has shown.

        What was seen once stays so: storage that fails later says nothing of the workers.
        """
        if not self._begun:
            with contextlib.suppress(OSError, UserError):
                self._begun = self._shows_worker()
        return self._begun

    def _shows_worker(self) -> bool:
        return any(hang_logs(self.folder))

    def stack_traces(self, ask: Sync) -> list[Path]:
        """The logs of workers that hung and ended themselves; none when the storage fails.

        ask: calls a function on each node, and gives the answers.
        """
        with contextlib.suppress(OSError):
            return [path for path in hang_logs(self.folder) if path.stat().st_size > 0]
        return []

    def disk_full(self, error: OSError) -> str:
        """What to say of a full disk: that of the run, unless the error names a file elsewhere."""
        file = str(error.filename2 or error.filename or "")
        if os.path.isabs(file) and not Path(file).is_relative_to(self.folder):
            in_tmpdir = Path(file).is_relative_to(gettempdir())
            return f"no space left in {file}{OTHER_TMPDIR if in_tmpdir else ': free some'}"
        free = shutil.disk_usage(self.folder).free / 1e6
        return (
            f"no space left in {self.folder} ({free:.1f} MB free): free some, or set "
            "cluster.storage to another disk"
        )

    def retried(self, work: Callable[[], T]) -> T:
        """Do what storage may refuse for a while; OperationalError when it stays away."""
        # A full disk is one of this machine, also where the run is in a bucket.
        return storage_serves(work, self.location, "run `dvc repro` again to resume", self.folder)

    # --- for the workers --------------------------------------------------------------------------

    def data(self, settings: dict[str, str]) -> Path:
        """The folder of encoded data on this node, by what `publish` gave.

        Raises NodeError where it has other data by now: whoever names the run has verified it once,
        and a trial may begin days later.
        """
        encoded = Path(settings["encoded"])
        require_data(encoded, settings.get("encoded_fingerprint"))
        return encoded

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only one to write checkpoints and journal; waits, then raises TimeoutError."""
        with only_writer(self.folder), self.polling():
            yield

    def resume_point(self) -> Path | None:
        """The newest whole checkpoint, for whoever is `writing`."""
        return layout.resume_point(self.folder)

    def fetch(self, name: str) -> Path:
        """The checkpoint of this name, in this node's folder."""
        return self.folder / name

    def clear(self, *, kept_only: bool = False) -> None:
        """This node needs its copies of the checkpoints no more. Safe to repeat.

        kept_only: what is nowhere else stays.
        """

    def keep(self, checkpoint: Path) -> None:
        """A checkpoint was written: have it outlast this node. Safe to repeat."""

    def prune(self, newest: Path) -> None:
        """Remove the checkpoints that need not be kept beside the newest. Safe to repeat."""
        if self.retention is not None:
            layout.prune(self.folder, self.retention, newest)

    def finish(self) -> None:
        """The journal has the end of the run, and all checkpoints are kept. Safe to repeat."""

    def stop_requested(self) -> bool:
        """Whether the driver wants the workers to save and leave, as far as this was `polling`."""
        return self._stop

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        """Have `stop_requested` know within, by a thread: storage may be slow to answer."""
        with repeating(self.poll_seconds, self.poll, "stop"):
            yield

    def poll(self) -> None:
        """Look now whether a stop is requested."""
        with contextlib.suppress(OSError):
            self._stop_file.stat()
            self._stop = True

    @property
    def _stop_file(self) -> Path:
        return self.folder / f"stop-{self.attempt}"


def whole_checkpoints(folder: Path) -> list[Path]:
    """As `layout.remove_damaged`, with several read at once where all are whole."""
    found = layout.checkpoints(folder)
    size = sum(file.lstat().st_size for path in found for file in path.glob("*"))
    if size >= MUCH_TO_READ:
        console.say(f"verifying {len(found)} checkpoints in {folder}, {size / 1e9:.0f} GB")
    with ThreadPool(READERS) as threads:  # a sum is computed without the interpreter's lock
        whole = all(threads.imap_unordered(_is_whole, found))
    return found if whole else layout.remove_damaged(folder)


def _is_whole(path: Path) -> bool:
    try:
        checkpointing.verify(path)
    except (checkpointing.CheckpointError, OSError):
        return False
    return True


def read_summary(folder: Path) -> dict[str, Any]:
    """Metrics of the loop's Finished, by the journal in a folder; empty where it has none, or where
    the run has written a checkpoint since, as it is trained again."""
    last: dict[str, Any] = {}
    for entry in journal.entries(folder / JOURNAL_NAME, "checkpoint", "finished"):
        last = entry if entry["kind"] == "finished" else {}
    return {k: v for k, v in last.items() if k not in ("kind", "time")}
