"""A worker that hangs ends itself, so that Ray can start it again."""

from __future__ import annotations

import faulthandler
import time
from pathlib import Path
from types import TracebackType
from typing import Self

CHANGES_NO_RESULT = "how a hang is noticed"

FEED_SECONDS = 1.0
HANG_LOG_NAME = "hang-{rank}.log"


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
        keep_log(log)
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


def hang_logs(folder: Path) -> list[Path]:
    """Each worker has one from its beginning on, empty unless it hung."""
    found = folder.glob(HANG_LOG_NAME.format(rank="*"))
    # Those of earlier hangs have a number more: hang-0.1.log.
    return sorted(path for path in found if not path.stem.rpartition(".")[2].isdigit())


def keep_log(log: Path) -> None:
    """Rename a log that says something."""
    if log.exists() and log.stat().st_size > 0:
        earlier = len(list(log.parent.glob(f"{log.stem}.*.log")))
        log.rename(log.with_suffix(f".{earlier + 1}.log"))
