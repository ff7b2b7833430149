"""Work that is done again, when storage fails for a while or every few seconds, or in a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TypeVar

from seq2sweep.errors import NO_RIGHT, NO_ROOM, OperationalError

T = TypeVar("T")


PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds between the tries: two minutes in all, as a file server takes to start again."""
LAST_SECONDS = 2.0
"""How long is waited in the end for what others can do without."""


def with_retries(work: Callable[[], T]) -> T:
    """Do what storage may refuse for a while, again after each of PAUSES.

    `work` must be safe to repeat. A full disk or a missing right is raised at once, as waiting
    mends neither, and so is an error without a number, which is not the storage's; another OSError
    when the last try has failed as well.
    """
    for pause in PAUSES:
        try:
            return work()
        except OSError as error:
            if error.errno is None or error.errno in NO_ROOM + NO_RIGHT:
                raise
        time.sleep(pause)
    return work()


def storage_serves(
    work: Callable[[], T], address: str, again: str, folder: Path | None = None
) -> T:
    """`with_retries`, and OperationalError where storage does not serve in that time.

    address: of the storage; again: what a user does when it serves again; folder: of this machine,
    to name where a full disk's error names no file.
    """
    try:
        return with_retries(work)
    except OSError as error:
        if error.errno is None:
            raise OperationalError(str(error)) from None
        if error.errno in NO_ROOM:
            # Of a copy the second file is where it goes.
            full = error.filename2 or error.filename or folder or address
            raise OperationalError(f"no space left in {full}: free some, and {again}") from None
        raise OperationalError(
            f"{address} cannot be used ({error.strerror}): fix the storage, and {again}"
        ) from None


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """What `work` will have returned, or raised, in a thread that ends with this process.

    A bucket that is silent holds a call for minutes, and in the main thread Ctrl-C with it.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


def briefly(
    work: Callable[..., None], *given: object, seconds: float | None = LAST_SECONDS
) -> None:
    """Do what others can do without, in so many seconds or unattended; no error where it fails."""
    wait([in_thread(lambda: work(*given), "briefly")], timeout=seconds)


@contextlib.contextmanager
def repeating(
    seconds: float, work: Callable[[], None], name: str, *, patient: bool = True
) -> Iterator[None]:
    """Call `work` in a thread every so many seconds, first after so many, until the block ends.

    It waits for the call that is under way then, or LAST_SECONDS at most. work: raises nothing, as
    nobody would hear it.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(None if patient else LAST_SECONDS)
