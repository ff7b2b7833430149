"""A worker that hangs ends itself, so that Ray can start it again."""

from __future__ import annotations

import contextlib
import faulthandler
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from seq2sweep.storage.object_store import node_folder

CHANGES_NO_RESULT = "how a hang is noticed"

FEED_SECONDS = 1.0
HANG_LOG_NAME = "hang-{rank}.log"


class Watchdog:
    """Ends this process, with every thread's stack in a file, unless it is fed often enough.

    A thread outside of Python does it, so it works whatever the interpreter is stuck in. One at a
    time in a process: `current`, while there is one.
    """

    current: ClassVar[Watchdog | None] = None

    def __init__(self, seconds: float, log: Path) -> None:
        """seconds: longest time between two calls of `feed`; log: a new file.

        What a process that ended itself has left there stays, with a number in its name.
        """
        self._seconds = seconds
        keep_log(log)
        self._log = log.open("w", encoding="utf-8")
        self._fed = 0.0

    def feed(self) -> None:
        """Say that there is progress. Cheap enough for every update."""
        now = time.monotonic()
        if now - self._fed >= min(FEED_SECONDS, self._seconds / 2):
            self._fed = now
            self._arm(self._seconds)

    def _arm(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._log)

    def __enter__(self) -> Self:
        self.feed()
        Watchdog.current = self
        return self

    def __exit__(self, *error: object) -> None:
        Watchdog.current = None
        faulthandler.cancel_dump_traceback_later()
        self._log.close()


def feed() -> None:
    """Feed the watchdog of this process, if it has one."""
    if Watchdog.current is not None:
        Watchdog.current.feed()


@contextlib.contextmanager
def allowing(seconds: float) -> Iterator[None]:
    """Let the watchdog of this process, if it has one, wait so much longer during the block.

    The block must not feed it, nor hold another one.
    """
    watchdog = Watchdog.current
    if watchdog is None:
        yield
        return
    watchdog._arm(watchdog._seconds + seconds)
    try:
        yield
    finally:
        watchdog._arm(watchdog._seconds)


def hang_logs(folder: Path) -> list[Path]:
    """Each worker has one from its beginning on, empty unless it hung."""
    found = folder.glob(HANG_LOG_NAME.format(rank="*"))
    # Those of earlier hangs have a number more: hang-0.1.log.
    return sorted(path for path in found if not path.stem.rpartition(".")[2].isdigit())


def keep_log(log: Path) -> None:
    """Rename a log that says something, and remove one that does not."""
    if log.exists() and log.stat().st_size > 0:
        earlier = len(list(log.parent.glob(f"{log.stem}.*.log")))
        log.rename(log.with_suffix(f".{earlier + 1}.log"))
    else:
        log.unlink(missing_ok=True)


def node_logs(folder: Path, attempt: str) -> Path:
    """Where the logs of an attempt's workers lie on a node, of a run in an object store.

    folder: of the run, on this node. None of an earlier attempt is left there.
    """
    logs = folder / f"logs-{attempt}"
    for old in set(folder.glob("logs-*")) - {logs}:
        shutil.rmtree(old, ignore_errors=True)
    logs.mkdir(exist_ok=True)
    return logs


def hang_logs_here(address: str, attempt: str) -> dict[str, str]:
    """Names and contents of the logs of workers of this node that have ended themselves."""
    host = socket.gethostname()
    if host.rpartition(".")[2].isdigit():  # it would be taken for one of an earlier hang
        host = f"{host}-"
    logs = hang_logs(node_folder(address) / f"logs-{attempt}")
    found = {f"{log.stem}.{host}.log": log.read_text(encoding="utf-8") for log in logs}
    return {name: text for name, text in found.items() if text}
