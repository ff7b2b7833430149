"""The same work on many chunks, in order: in this process, or in several on this machine.

The results, and so the bytes written, do not depend on how many processes there are.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from seq2sweep import cgroups
from seq2sweep.errors import OperationalError

CHANGES_NO_RESULT = "how many processes share work"

T = TypeVar("T")
R = TypeVar("R")

QUOTAS = {"": ("cpu.max",), "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us")}
"""Of version 2 and 1 of cgroups, by the name that /proc/self/cgroup has: the files of the time that
may be used in a period, and of that."""
SENTENCES_A_PLACE = 1000
"""Some groups that are decoded together, for each place: few wait for the last to end."""
MOST_SENTENCES = 100_000
"""That are handed out at once: what is found of them is in memory, hundreds of MB."""
IN_FLIGHT = 2
"""Chunks a process has: one at work, one waiting. More would only take memory."""


class Mapper(Protocol):
    """Applies a function to each item and gives the results in the order of the items."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]: ...


def serial(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """One after the other in this process."""
    return map(function, items)


def sentences_at_once(mapper: Mapper, least: int) -> int:
    """How many sentences to hand to a mapper that decodes: `least`, or as many more as keep all of
    its places busy, where it counts them, by a method `places`, as one on a cluster does."""
    places = getattr(mapper, "places", None)
    if places is None:
        return least
    return max(least, min(SENTENCES_A_PLACE * int(places()), MOST_SENTENCES))


class Processes:
    """Shares the items out over processes of this machine; at most a few are in memory at once.

    Function and items travel by pickle; the function does so once a process. Unlike with
    concurrent.futures, whose pool of Python 3.11 waits for ever where what has been sent to a
    killed process fills its pipe, the death of one is noticed at any time.
    """

    def __init__(self, count: int | None = None) -> None:
        """`count` processes; as many as there are CPUs for this one if None."""
        self.count = count or available_cpus()

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Raises OperationalError where a process is killed; what the function raises there."""
        if self.count == 1:
            yield from serial(function, items)
            return
        with contextlib.ExitStack() as stack:
            # Its threads do nothing but wait, each for a process; so they end after those.
            threads = ThreadPoolExecutor(self.count)
            stack.callback(threads.shutdown, cancel_futures=True)
            idle = queue.SimpleQueue[_Worker]()
            for _ in range(self.count):
                idle.put(stack.enter_context(_Worker(function)))

            def by_a_worker(item: T) -> R:
                worker = idle.get()
                try:
                    found: R = worker.ask(item)
                finally:
                    idle.put(worker)
                return found

            yield from in_order(lambda item: threads.submit(by_a_worker, item), items, self.count)


class _Worker:
    """A process that applies a function to items; ended, whatever it does, with the context."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        # spawn: a fork would copy locks that other threads (a progress bar's) may hold.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._function: Callable[[Any], Any] | None = function
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        # It inherits the mask: no Ctrl-C reaches it before `_work`.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()  # so that the pipe breaks when the process ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def ask(self, item: Any) -> Any:
        """The function's result."""
        try:
            if self._function:
                self._connection.send(self._function)
                self._function = None
            self._connection.send(item)
            found, error = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            if (self._process.exitcode or 0) < 0:
                why = "was killed, perhaps out of memory: free some and run it again"
            else:
                why = f"ended with status {self._process.exitcode}: its error is above"
            raise OperationalError(f"a process {why}") from None
        if error is not None:
            raise error
        return found


def in_order(
    submit: Callable[[T], Future[R]],
    items: Iterable[T],
    workers: int,
    wait: Callable[[Future[R]], object] = lambda future: None,
) -> Iterator[R]:
    """Results in the order of the items, with at most IN_FLIGHT items a worker under way.

    wait: until one has come, or raises why none will; the default leaves that to the future.
    """
    under_way: deque[Future[R]] = deque()

    def result(future: Future[R]) -> R:
        wait(future)
        return future.result()

    for item in items:
        under_way.append(submit(item))
        if len(under_way) >= IN_FLIGHT * workers:
            yield result(under_way.popleft())
    while under_way:
        yield result(under_way.popleft())


def processes_on_gpus(gpus: float, each: float) -> int:
    """How many processes of so many GPUs each fit: Ray never takes a share below 1 from two."""
    if each >= 1:
        return int(gpus / each + 1e-9)
    whole = int(gpus + 1e-9)  # what is free may be less
    return whole * sharers_of_gpu(each) + int((gpus - whole) / each + 1e-9)


def sharers_of_gpu(each: float) -> int:
    """How many processes of so many GPUs each have one GPU together: of 0.6 it is one alone, whose
    share is then the whole."""
    return max(1, int(1 / each + 1e-9))


def available_cpus() -> int:
    """CPUs that this process may use: of a container's quota whole ones, as Ray counts them."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = cpus_of_groups(cgroups.of_this_process(), cgroups.ROOT)
    return max(1, math.floor(min([here, *quotas])))


def cpus_of_groups(text: str, root: Path) -> Iterator[float]:
    """CPUs whose whole time each cgroup that a process is in allows, where it is limited; text,
    root: as of `cgroups.folders`."""
    for kind, folder in cgroups.folders(text, root, QUOTAS):
        with contextlib.suppress(OSError, ValueError):  # no limit is the word max, or below 0
            texts = [(folder / file).read_text() for file in QUOTAS[kind]]
            quota, period = map(int, " ".join(texts).split())
            if quota > 0:
                yield quota / period


def _work(connection: Connection) -> None:
    """In a process of its own: the function first, then items, each answered by its result and
    None, or by None and an error."""
    # Ctrl-C reaches every process of the terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    function = connection.recv()
    while True:
        item = connection.recv()
        try:
            answer = pickle.dumps((function(item), None))
        except Exception as error:
            error.add_note(f"in a process of its own:\n{traceback.format_exc()}")
            answer = pickle.dumps((None, error))
        connection.send_bytes(answer)


def _end_with_parent() -> None:
    """A parent that is killed can shut nothing down: its workers must not outlive it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
