"""Signals that ask the driver to end, and when it hears them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

ENDINGS = (signal.SIGTERM, signal.SIGHUP)
INTERRUPTS = (signal.SIGINT, *ENDINGS)


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt; gives the function that sets this up again."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    # One that is ignored stays so: that is how nohup works.
    before = {
        number: signal.getsignal(number)
        for number in ENDINGS
        if signal.getsignal(number) is not signal.SIG_IGN
    }

    def set_handlers() -> None:
        for number in before:
            signal.signal(number, interrupt)

    set_handlers()
    try:
        yield set_handlers
    finally:
        _restore(before)


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
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
    try:
        work()
    finally:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        # None stands for one that was not set from Python and cannot be set from there.
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
