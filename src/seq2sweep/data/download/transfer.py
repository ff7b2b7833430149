"""One file from one address: asked again until it is complete, and verified when it is."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from seq2sweep import console
from seq2sweep.data.download import receipts, remote
from seq2sweep.data.download.partial import Partial, StoppedError
from seq2sweep.data.download.remote import UnavailableError
from seq2sweep.data.sources import Archive

FIRST_DELAY = 1.0
"""Seconds before the second try; each further one waits twice as long."""
SLOWEST = 1000
"""Bytes a second; what is slower over SLOW_WINDOW seconds counts as a failure."""
SLOW_WINDOW = 60.0


def transfer(
    address: str,
    archive: Archive,
    partial: Partial,
    expect: Callable[[int], None],
    stop: threading.Event,
) -> dict[str, Any]:
    """Fetch a file from one address into `partial`; its size and sums, which are right.

    `expect` is told the size of a file whose size is in no registry. Raises UnavailableError, when
    the address is given up, and StoppedError.
    """
    problem = None
    for _ in range(2):
        in_one_piece = _complete(address, archive, partial, expect, stop)
        found, problem = receipts.measured(partial.path, archive, lambda count: _notice(stop))
        if problem is None:
            return found
        # What is wrong must not be continued, neither by this run nor by the next.
        partial.restart()
        if in_one_piece:
            break
    raise UnavailableError(f"serves {problem}")


def _complete(
    address: str,
    archive: Archive,
    partial: Partial,
    expect: Callable[[int], None],
    stop: threading.Event,
) -> bool:
    """Fetch what the partial file lacks, trying again; whether all of it came in one answer."""
    tries = 0
    while True:
        before, began = partial.furthest, time.monotonic()
        try:
            return _ask(address, archive, partial, expect, stop)
        except UnavailableError as error:
            gained, seconds = partial.furthest - before, time.monotonic() - began
            # A trickle brings something each time, and would go on for ever.
            trickle = seconds >= SLOW_WINDOW and gained < SLOWEST * seconds
            tries = 1 if gained and not trickle else tries + 1  # 1: this failure is the first
            if tries >= error.tries:
                raise
            delay = FIRST_DELAY * 2 ** (tries - 1) * random.uniform(0.75, 1.25)
            delay = max(delay, error.wait)
            console.say(f"{archive.file}: {error}; asking again in {delay:.0f} s")
            _pause(delay, stop)


def _ask(
    address: str,
    archive: Archive,
    partial: Partial,
    expect: Callable[[int], None],
    stop: threading.Event,
) -> bool:
    """Ask once for what the partial file lacks; whether the answer was the whole file."""
    if archive.bytes is not None and partial.size > archive.bytes:
        partial.restart()
    if archive.digest is not None and partial.size == archive.bytes:
        return False
    start, validator = partial.continuation(address, archive.digest is not None)
    with contextlib.closing(remote.open_at(address, start, validator)) as body:
        if None not in (archive.bytes, body.total) and body.total != archive.bytes:
            raise UnavailableError(f"serves {body.total} bytes instead of {archive.bytes}", tries=1)
        if archive.bytes is None and archive.digest is None and not body.end_shows:
            raise UnavailableError(
                "does not say how long the file is, nor does the registry", tries=1
            )
        if body.start != partial.size:
            partial.restart()
        partial.note(address, body.validator)
        if archive.bytes is None:
            expect(body.total or 0)
        _copy(body, partial, body.total if archive.bytes is None else archive.bytes, stop)
    return body.start == 0


def _copy(body: remote.Body, partial: Partial, expected: int | None, stop: threading.Event) -> None:
    began, before = time.monotonic(), partial.size
    while block := body.read():
        _notice(stop)
        if expected is not None and partial.size + len(block) > expected:
            partial.restart()
            raise UnavailableError(f"serves more than {expected} bytes", tries=1)
        partial.append(block)
        seconds = time.monotonic() - began
        if seconds >= SLOW_WINDOW:
            if partial.size - before < SLOWEST * seconds:
                raise UnavailableError(f"slower than {SLOWEST} bytes a second")
            began, before = time.monotonic(), partial.size
    if expected is not None and partial.size < expected:
        raise UnavailableError(f"ends after {partial.size} of {expected} bytes")


def _pause(seconds: float, stop: threading.Event) -> None:
    if stop.wait(seconds):
        raise StoppedError


def _notice(stop: threading.Event) -> None:
    if stop.is_set():
        raise StoppedError
