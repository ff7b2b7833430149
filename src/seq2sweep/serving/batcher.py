"""Requests that wait at the same time are translated together, as one batch.

No request waits for others to come: while one batch is searched, those that arrive gather, and go
together next. One thread searches, so that a batch has all cores.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seq2sweep.decode.beam import Translation

Translations = list[list[Translation]]
"""Of each line the best, the first first."""
Translate = Callable[[Sequence[str], Any], Translations]
"""Translate lines with options that can be compared."""
T = TypeVar("T")


class FullError(Exception):
    """As many lines wait as may."""


@dataclass
class _Request:
    lines: Sequence[str]
    options: Any
    answer: Future[Translations] = field(default_factory=Future)


@dataclass
class _Task:
    """What nothing else can join."""

    work: Callable[[], Any]
    answer: Future[Any] = field(default_factory=Future)
    lines: Sequence[str] = ("",)


class Batcher:
    """Joins requests into batches of up to `largest` lines; more than `most` lines never wait."""

    def __init__(self, translate: Translate, largest: int, most: int) -> None:
        self._translate, self._largest, self._most = translate, largest, most
        self._waiting: deque[_Request | _Task] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="translate", daemon=True)
        self._thread.start()

    def translate(self, lines: Sequence[str], options: Any) -> Future[Translations]:
        """Translations of lines, later. A future that is cancelled before its turn costs nothing.

        Raises FullError.
        """
        request = _Request(lines, options)
        self._add(request)
        return request.answer

    def run(self, work: Callable[[], T]) -> Future[T]:
        """What `work` returns, called in its turn and alone. Raises FullError."""
        task = _Task(work)
        self._add(task)
        return task.answer

    def close(self) -> None:
        """Do what waits, then end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _add(self, request: _Request | _Task) -> None:
        with self._changed:
            waiting = sum(len(other.lines) for other in self._waiting)
            if self._closed or waiting + len(request.lines) > self._most:
                raise FullError
            self._waiting.append(request)
            self._changed.notify()

    def _work(self) -> None:
        while batch := self._next():
            wanted = [one for one in batch if one.answer.set_running_or_notify_cancel()]
            if not wanted:
                continue
            first = wanted[0]
            try:
                if isinstance(first, _Task):
                    first.answer.set_result(first.work())
                else:
                    lines = [line for one in wanted for line in one.lines]
                    found = iter(self._translate(lines, first.options))
                    for one in wanted:
                        one.answer.set_result([next(found) for _ in one.lines])
            except Exception as error:  # its caller hears of it; the others go on
                for one in wanted:
                    if not one.answer.done():
                        one.answer.set_exception(error)

    def _next(self) -> list[_Request] | list[_Task]:
        """Waits for the first request; with it come others of the same options, in their order.

        Empty once this is closed and nothing waits.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            if isinstance(first, _Task):
                return [first]
            batch, room = [first], self._largest - len(first.lines)
            others: deque[_Request | _Task] = deque()
            while self._waiting:
                other = self._waiting.popleft()
                if (
                    isinstance(other, _Request)
                    and other.options == first.options
                    and len(other.lines) <= room
                ):
                    batch.append(other)
                    room -= len(other.lines)
                else:
                    others.append(other)
            self._waiting = others
            return batch
