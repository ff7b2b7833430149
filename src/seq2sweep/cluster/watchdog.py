"""A worker that hangs ends itself, so that Ray can start it again."""

from __future__ import annotations

import faulthandler
import time
from pathlib import Path
from types import TracebackType
from typing import Self

FEED_SECONDS = 1.0


class Watchdog:
    """Ends this process, with every thread's stack in a file, unless it is fed often enough.

    A thread outside of Python does it, so it works whatever the interpreter is stuck in. One at a
    time in a process.
    """

    def __init__(self, seconds: float, log: Path) -> None:
        """seconds: longest time between two calls of `feed`; log: a new file.

        What a process that ended itself has left there stays, with a number in its name.
        """
        self._seconds = seconds
        keep(log)
        self._log = log.open("w", encoding="utf-8")
        self._fed = 0.0

    def feed(self) -> None:
        """Say that there is progress. Cheap enough for every update."""
        now = time.monotonic()
        if now - self._fed >= min(FEED_SECONDS, self._seconds / 2):
            self._fed = now
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._log)

    def __enter__(self) -> Self:
        self.feed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._log.close()


def keep(log: Path) -> None:
    """Rename a log that says something."""
    if log.exists() and log.stat().st_size > 0:
        earlier = len(list(log.parent.glob(f"{log.stem}.*.log")))
        log.rename(log.with_suffix(f".{earlier + 1}.log"))
