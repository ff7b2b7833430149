"""Curves: from a run's journal on disk into MLflow, without ever holding training up."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Sequence
from time import sleep
from types import TracebackType
from typing import Any, Self

from seq2sweep.tracking.runs import Point, Run
from seq2sweep.tracking.store import STORE_ERRORS, reason

# The figures of each kind of journal entry that become curves; the others are of the moment.
CURVES: dict[str, Sequence[str]] = {
    "logged": ("loss", "perplexity", "gradient_norm", "learning_rate", "tokens_per_second"),
    "validated": ("valid_loss", "valid_perplexity"),
}


class JournalFollower:
    """Forward new journal entries to a run's metrics, each step once.

    When MLflow fails, the place in the journal is kept and the next poll tries again; a line
    says so once. A training that goes on from an older checkpoint repeats steps, and a resumed
    run has a journal that was forwarded before: steps already recorded are passed over.
    """

    def __init__(
        self,
        run: Run,
        read: Callable[[int], tuple[list[dict[str, Any]], int]],
        *,
        every: float = 5.0,
        pauses: Sequence[float] = (2.0,),
    ) -> None:
        """`read(offset)` gives whole entries from `offset` on and the offset to go on from.

        `every`: seconds between polls of the background thread; `pauses`: seconds before each
        new attempt when `close` finds MLflow failing.
        """
        self.run = run
        self.read = read
        self.every = every
        self.pauses = pauses
        self._offset = 0
        self._last: dict[str, int] | None = None
        self._failing = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._broken: Exception | None = None

    def start(self) -> Self:
        """Poll in a background thread until `close`."""
        self._thread = threading.Thread(target=self._work, name="journal-follower", daemon=True)
        self._thread.start()
        return self

    def poll(self) -> bool:
        """Forward what is new; False if MLflow failed and it must be tried again."""
        with self._lock:
            entries, offset = self.read(self._offset)
            try:
                if self._last is None:
                    self._last = {kind: self._recorded(names) for kind, names in CURVES.items()}
                points, last = _points(entries, self._last)
                self.run.log_many(points)
            except STORE_ERRORS as error:
                if not self._failing:
                    _warn(f"MLflow does not take the curves ({reason(error)}); trying again")
                self._failing = True
                return False
            self._offset, self._last, self._failing = offset, last, False
            return True

    def close(self) -> bool:
        """Stop the thread and forward the rest; False, with a line, if MLflow does not take it.

        Raises what reading the journal raised in the thread, if anything.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._broken is not None:
            raise self._broken
        done = self.poll()
        for pause in self.pauses:
            if done:
                break
            sleep(pause)
            done = self.poll()
        if not done:
            _warn(f"the curves of run {self.run.id} are incomplete in MLflow; the journal has all")
        return done

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _recorded(self, names: Sequence[str]) -> int:
        step = self.run.last_step(names)
        return -1 if step is None else step

    def _work(self) -> None:
        while not self._stop.wait(self.every):
            try:
                self.poll()
            except Exception as error:
                # A thread cannot raise to its owner: `close` does.
                self._broken = error
                return


def _points(
    entries: list[dict[str, Any]], last: dict[str, int]
) -> tuple[list[Point], dict[str, int]]:
    points: list[Point] = []
    last = dict(last)
    for entry in entries:
        kind, step = entry["kind"], entry["step"]
        if kind in CURVES and step > last[kind]:
            # The journal writes null for what is no number.
            figures = {
                name: math.nan if entry[name] is None else entry[name]
                for name in CURVES[kind]
                if name in entry
            }
            points.append((entry["time"], step, figures))
            last[kind] = step
    return points, last


def _warn(text: str) -> None:
    print(f"seq2sweep: {text}", file=sys.stderr, flush=True)
