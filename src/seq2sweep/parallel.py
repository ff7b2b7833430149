"""The same work on many chunks, in order: in this process, or in several on this machine.

The results, and so the bytes written, do not depend on how many processes there are.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

from seq2sweep.errors import OperationalError

CHANGES_NO_RESULT = "how many processes share work"

T = TypeVar("T")
R = TypeVar("R")

IN_FLIGHT = 2
"""Chunks a process has: one at work, one waiting. More would only take memory."""


class Mapper(Protocol):
    """Applies a function to each item and gives the results in the order of the items."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]: ...


def serial(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """One after the other in this process."""
    return map(function, items)


class Processes:
    """Shares the items out over processes of this machine; at most a few are in memory at once.

    Function and items travel by pickle; the function does so once a process.
    """

    def __init__(self, count: int | None = None) -> None:
        """`count` processes; as many as there are CPUs for this one if None."""
        self.count = count or available_cpus()

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        if self.count == 1:
            yield from serial(function, items)
            return
        # spawn: a fork would copy locks that other threads (a progress bar's) may hold.
        pool = ProcessPoolExecutor(
            self.count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(function,),
        )
        try:
            yield from in_order(lambda item: _submitted(pool, item), items, self.count)
        except BrokenProcessPool:
            raise OperationalError(
                "a process of this stage was killed, perhaps out of memory: free some and run "
                "`dvc repro` again"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def in_order(submit: Callable[[T], Future[R]], items: Iterable[T], workers: int) -> Iterator[R]:
    """Results in the order of the items, with at most IN_FLIGHT items a worker under way."""
    under_way: deque[Future[R]] = deque()
    for item in items:
        under_way.append(submit(item))
        if len(under_way) >= IN_FLIGHT * workers:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def available_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_function: Callable[[Any], Any] | None = None


def _begin(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    # Ctrl-C reaches every process of the terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed can shut nothing down: its workers must not outlive it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _submitted(pool: ProcessPoolExecutor, item: Any) -> Future[Any]:
    # This may start a process, which inherits the mask: no Ctrl-C reaches it before `_begin`.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_work, item)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(item: Any) -> Any:
    assert _function is not None
    return _function(item)
