"""A worker that hangs ends itself, so that Ray can start it again."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

from seq2sweep.runs import interpreter_watch
from seq2sweep.storage.object_store import node_folder

CHANGES_NO_RESULT = "how a hang is noticed"

TICK_SECONDS = 1.0
HANG_LOG_NAME = "hang-{rank}.log"


class Watchdog:
    """Ends this process, with every thread's stack in a file, unless it is fed often enough.

    A thread does it, which counts its own sleeps: a process that was suspended goes on, however
    long that was. Where the interpreter is stuck in something that keeps all threads from running,
    a process beside this one does it (interpreter_watch.py). One at a time in a process:
    `current`, while there is one.
    """

    current: ClassVar[Watchdog | None] = None

    def __init__(self, seconds: float, log: Path) -> None:
        """seconds: longest time between two calls of `feed`; log: a new file.

        What a process that ended itself has left there stays, with a number in its name.
        """
        self._seconds = seconds
        keep_log(log)
        self._log = log.open("w", encoding="utf-8")
        self._tick = min(TICK_SECONDS, seconds / 10)
        # Each is set by one thread only, so that no feed is lost.
        self._slept, self._until = 0.0, math.inf
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._beside: subprocess.Popen[bytes] | None = None

    def feed(self) -> None:
        """Say that there is progress. Cheap enough for every update."""
        self._arm(self._seconds)

    def _arm(self, seconds: float) -> None:
        self._until = self._slept + seconds

    def _watch(self) -> None:
        while not self._over.wait(self._tick):
            self._slept += self._tick
            if self._slept >= self._until:
                self._end()
            self._tell(self._patience())

    def _end(self) -> None:
        try:
            self._log.write("Timeout!\n")
            self._log.flush()
            faulthandler.dump_traceback(self._log)
        finally:  # also on a full disk
            os._exit(1)

    def _patience(self) -> float:
        """How long this thread may be silent: where it runs, it is the first to end a hang."""
        return self._until - self._slept + 5 * self._tick

    def _start_beside(self) -> None:
        faulthandler.register(interpreter_watch.SIGNAL, file=self._log, chain=True)
        numbers = [str(number) for number in (os.getpid(), self._tick, self._patience())]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, interpreter_watch.HELD_BACK)
        try:
            beside = subprocess.Popen(
                [sys.executable, "-S", "-P", interpreter_watch.__file__, *numbers],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=subprocess.DEVNULL,
            )
        except OSError:  # no room for a process: most hangs are ended without
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # One that does not read, suspended alone, must not stop this process.
        os.set_blocking(_input(beside), False)
        self._beside = beside

    def _tell(self, seconds: float) -> None:
        if self._beside is not None:
            with contextlib.suppress(OSError):
                message = f"{seconds:{interpreter_watch.WORDS}.3f}"
                os.write(_input(self._beside), message.encode())

    def _end_beside(self) -> None:
        if self._beside is not None:
            with self._beside as process:  # waits for it
                process.kill()
        faulthandler.unregister(interpreter_watch.SIGNAL)

    def __enter__(self) -> Self:
        self.feed()
        self._thread.start()
        self._start_beside()
        Watchdog.current = self
        return self

    def __exit__(self, *error: object) -> None:
        Watchdog.current = None
        self._over.set()
        self._thread.join()
        self._end_beside()
        self._log.close()


def _input(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    return process.stdin.fileno()


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
