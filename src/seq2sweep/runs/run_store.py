"""Where a run is kept, for its driver, its workers and its trials.

All of them work in a folder. Here it is one that all nodes see, and what is written there is kept;
of a run in an object store (remote_run_store.py) each machine has a folder of its own.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError
from seq2sweep.runs.layout import (
    checkpoint_step,
    newest_checkpoint,
    remove_damaged,
    resume_point,
)
from seq2sweep.runs.retention import prune
from seq2sweep.runs.status import RunStatus, read_summary
from seq2sweep.runs.watchdog import hang_logs, keep_log
from seq2sweep.storage.atomic import write_whole
from seq2sweep.storage.locks import only_user, only_writer
from seq2sweep.storage.retry import with_retries

CHANGES_NO_RESULT = "where files are kept"

T = TypeVar("T")
Sync = Callable[..., list[Any]]

POLL_SECONDS = 0.5
"""How often a worker looks whether it is to stop: storage may be far away."""
STOP = "stop"


class RunStore:
    """A run in a folder that all nodes see."""

    save_seconds = 90.0
    """How long workers may take to save and leave: a node may learn late of a new file on a network
    file system."""
    start_seconds = 0.0
    """What this adds to the time until a worker knows where to begin."""

    def __init__(self, folder: Path, attempt: str = "") -> None:
        """attempt: differs for each start of the workers; '' until the driver begins one."""
        self.folder = self.logs = folder
        self.location, self.attempt = str(folder), attempt
        self._polled, self._stop = 0.0, False

    def child(self, name: str) -> RunStore:
        """What is kept below it under a name: a trial of a sweep."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return RunStore(folder, self.attempt)

    def write(self, name: str, text: str) -> None:
        """Keep a small file, whole or not at all."""
        write_whole(self.folder / name, text)

    def delete(self, name: str) -> None:
        """Remove a small file, if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    # --- for the driver ---------------------------------------------------------------------------

    def refresh(self) -> None:
        """Have the journal and the small files in the folder."""

    def newest_checkpoint(self) -> Path | None:
        """The newest whole one that no interruption left; perhaps not in this folder: `fetch`."""
        return newest_checkpoint(self.folder)

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Be the only driver of this run; UserError when there is another one."""
        with only_user(self.folder):
            yield

    def publish(self, encoded: Path) -> dict[str, str]:
        """The part of workers' settings that says where the encoded data in a folder is."""
        return {"encoded": str(encoded)}

    def status(self, config: Config, *, newest_only: bool = False) -> RunStatus:
        """Where the run is. Waits for a worker that still writes there.

        newest_only: of a run that has not finished only the newest checkpoint is read. Else damaged
        ones are removed, which is said, and of a finished run what need not be kept. Raises
        OperationalError when the storage stays away.
        """
        return self.retried(lambda: self._status(config, newest_only))

    def _status(self, config: Config, newest_only: bool) -> RunStatus:
        last = config.train.steps
        with only_writer(self.folder):
            summary = read_summary(self.folder)
            if newest_only and not summary:
                newest = resume_point(self.folder)
                return RunStatus([newest] if newest else [], {}, last)
            found = remove_damaged(self.folder, say_removed)
            status = RunStatus(found, summary, last)
            if status.finished:  # training may have been killed before it could
                prune(self.folder, config.train, config.evaluate.checkpoint_steps, found[-1])
                status = RunStatus([path for path in found if path.exists()], summary, last)
            return status

    def step(self) -> int:
        """The step after which training would resume."""
        newest = self.retried(lambda: resume_point(self.folder))
        return checkpoint_step(newest) if newest else 0

    def follow_journal(self) -> None:
        """Have all of the journal in the folder; no error where the storage is away."""

    def begin_attempt(self, attempt: str) -> None:
        """Before workers start: nothing is there that says that earlier ones hung."""
        self.attempt = attempt
        self.retried(self._keep_hang_logs)

    def end_attempt(self) -> None:
        """After workers have left: leave nothing of the attempt behind."""
        with contextlib.suppress(OSError):
            self._stop_file.unlink(missing_ok=True)

    def request_stop(self) -> bool:
        """Ask the workers to save and leave; False where none has begun, or the storage fails."""
        with contextlib.suppress(OSError):
            self._stop_file.touch()
            return self.has_begun()
        return False

    def has_begun(self) -> bool:
        """Whether a worker of this attempt has got to our code; False when the storage fails."""
        with contextlib.suppress(OSError):
            return any(hang_logs(self.folder))
        return False

    def stack_traces(self, ask: Sync) -> list[Path]:
        """The logs of workers that hung and ended themselves; none when the storage fails.

        ask: calls a function on each node, and gives the answers.
        """
        with contextlib.suppress(OSError):
            return [path for path in hang_logs(self.folder) if path.stat().st_size > 0]
        return []

    def disk_full(self, error: OSError) -> str:
        """What to say of a full disk."""
        free = shutil.disk_usage(self.folder).free / 1e6
        return (
            f"no space left in {self.folder} ({free:.1f} MB free): free some, or set "
            "cluster.storage to another disk"
        )

    def retried(self, work: Callable[[], T]) -> T:
        """Do what storage may refuse for a while; OperationalError when it stays away."""
        try:
            return with_retries(work)
        except OSError as error:
            if error.errno is None:
                raise OperationalError(str(error)) from None
            raise OperationalError(
                f"{self.location} cannot be used ({error.strerror}): fix the storage and run "
                "`dvc repro` again to resume"
            ) from None

    def _keep_hang_logs(self) -> None:
        for log in hang_logs(self.folder):
            if log.stat().st_size > 0:
                keep_log(log)
            else:
                log.unlink(missing_ok=True)

    # --- for the workers --------------------------------------------------------------------------

    def data(self, settings: dict[str, str]) -> Path:
        """The folder of encoded data on this node, by what `publish` gave."""
        return Path(settings["encoded"])

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only one to write checkpoints and journal; waits, then raises TimeoutError."""
        with only_writer(self.folder):
            yield

    def resume_point(self) -> Path | None:
        """The newest whole checkpoint, for whoever is `writing`."""
        return resume_point(self.folder)

    def fetch(self, name: str) -> Path:
        """The checkpoint of this name, in this node's folder."""
        return self.folder / name

    def keep(self, checkpoint: Path) -> None:
        """A checkpoint was written: have it outlast this node. Safe to repeat."""

    def prune(self, config: Config, newest: Path) -> None:
        """Remove the checkpoints that need not be kept. Safe to repeat."""
        prune(self.folder, config.train, config.evaluate.checkpoint_steps, newest)

    def finish(self) -> None:
        """The journal has the end of the run, and all checkpoints are kept. Safe to repeat."""

    def stop_requested(self) -> bool:
        """Whether the driver wants the workers to save and leave. Cheap enough for every update."""
        if time.monotonic() - self._polled >= POLL_SECONDS:
            self._polled = time.monotonic()
            self.poll()
        return self._stop

    def poll(self) -> None:
        """Look now whether a stop is requested."""
        with contextlib.suppress(OSError):
            self._stop_file.stat()
            self._stop = True

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        """Have `stop_requested` know, within."""
        yield

    @property
    def _stop_file(self) -> Path:
        return self.folder / f"{STOP}-{self.attempt}"


def say_removed(damage: str) -> None:
    """Tell of a checkpoint that was damaged."""
    console.say(f"{damage}; removed")
