"""Something small that is done again and again beside the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Ticker:
    """Calls `work` in a thread every so many seconds, first after so many, until the block ends.

    work: raises nothing, for there is nobody to hear it.
    """

    def __init__(self, seconds: float, work: Callable[[], None], name: str) -> None:
        self._seconds, self._work = seconds, work
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the call that is under way."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._seconds):
            self._work()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
