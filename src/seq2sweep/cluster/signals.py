"""Signals that ask the driver to end, and when it hears them."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

ENDINGS = (signal.SIGTERM, signal.SIGHUP)
INTERRUPTS = (signal.SIGINT, *ENDINGS)

CLEANUP_SECONDS = 10.0
"""What follows an interrupt has so long to clean up before another interrupt is heard."""


class _Interrupts:
    """Handles a signal: the first raises KeyboardInterrupt, which a second must not overtake.

    A KeyboardInterrupt between two steps of a cleanup, inside of contextlib for example, would
    leave out what is left of it, and this process would then wait for a Ray that has gone.
    """

    def __init__(self) -> None:
        self.deaf_until = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() >= self.deaf_until:
            self.ignore()
            raise KeyboardInterrupt

    def ignore(self) -> None:
        """Do not hear another one for CLEANUP_SECONDS."""
        self.deaf_until = time.monotonic() + CLEANUP_SECONDS

    def listen(self) -> None:
        """Raise KeyboardInterrupt at the next one again."""
        self.deaf_until = -math.inf


interrupts = _Interrupts()


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[Callable[[], None]]:
    """SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, as `interrupts` says.

    Gives the function that sets this up again.
    """
    if threading.current_thread() is threading.main_thread():
        interrupts.listen()
    # One that is ignored stays so: that is how nohup works.
    heard = [number for number in INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN]
    with _handled(heard, interrupts) as set_handlers:
        yield set_handlers


@contextlib.contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Signals wait until the end of the block; for processes started in it, as long as they live.

    A closed terminal, systemd and Slurm send them to the whole group, and the driver, who alone is
    to answer, needs its Ray to save and end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def undisturbed(work: Callable[[], None]) -> None:
    """Do what takes a second or two to the end: a second Ctrl-C must not leave half of it."""
    with _handled(INTERRUPTS, signal.SIG_IGN):
        work()


@contextlib.contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Any) -> Iterator[Callable[[], None]]:
    """Signals have this handler in the block; only the main thread may set any."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def set_handlers() -> None:
        for number in numbers:
            signal.signal(number, handler)

    before = {number: signal.getsignal(number) for number in numbers}
    set_handlers()
    try:
        yield set_handlers
    finally:
        for number, earlier in before.items():
            # None stands for one that was not set from Python and cannot be set from there.
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)
