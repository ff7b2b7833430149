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
Check = Callable[[], None]
"""Raises GivenUpError once nobody waits for the answer any more."""
Translate = Callable[[Sequence[str], Any, Check], Translations]
"""Translate lines with options that can be compared; checks now and then whether to go on."""
T = TypeVar("T")


class FullError(Exception):
    """As many lines wait as may."""


class GivenUpError(Exception):
    """Nobody waits for the answer any more."""


@dataclass
class _Request:
    """task: what is called for it, alone."""

    lines: Sequence[str]
    options: Any
    work: int
    task: Callable[[], Any] | None = None
    answer: Future[Any] = field(default_factory=Future)


class Batcher:
    """Joins requests into batches of up to `largest` lines and so much work, in the unit in which
    requests state theirs; more than `most` lines never wait."""

    def __init__(self, translate: Translate, largest: int, most: int, most_work: int) -> None:
        self._translate, self._largest, self._most = translate, largest, most
        self._most_work = most_work
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="translate", daemon=True)
        self._thread.start()

    def translate(self, lines: Sequence[str], options: Any, work: int) -> Future[Translations]:
        """Translations of lines, later; work: about how much that is. Raises FullError.

        One that is cancelled before its turn costs nothing; a search ends once all that it is for
        are cancelled.
        """
        return self._add(_Request(lines, options, work))

    def run(self, work: Callable[[], T]) -> Future[T]:
        """What `work` returns, called in its turn and alone. Raises FullError."""
        return self._add(_Request([""], None, 0, work))

    def close(self, seconds: float | None = None) -> bool:
        """Do what waits, then end; after so many seconds it goes on without the caller.

        Returns whether it has ended.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _add(self, request: _Request) -> Future[Any]:
        with self._changed:
            # Here, as the thread that searches may not come back for long, and memory is bounded.
            self._waiting = deque(one for one in self._waiting if not one.answer.cancelled())
            waiting = sum(len(other.lines) for other in self._waiting)
            if self._closed or waiting + len(request.lines) > self._most:
                raise FullError
            self._waiting.append(request)
            self._changed.notify()
        return request.answer

    def _work(self) -> None:
        while batch := self._next():
            wanted = [one for one in batch if not one.answer.cancelled()]
            if not wanted:
                continue
            try:
                found = self._found(wanted)
            except GivenUpError:
                continue
            except Exception as error:  # its caller hears of it; the others go on
                for one in wanted:
                    if one.answer.set_running_or_notify_cancel():
                        one.answer.set_exception(error)
            else:
                for one, result in zip(wanted, found, strict=True):
                    # Only now, as one that runs cannot be cancelled.
                    if one.answer.set_running_or_notify_cancel():
                        one.answer.set_result(result)

    def _found(self, wanted: Sequence[_Request]) -> list[Any]:
        """Of each what it asks for."""
        if (task := wanted[0].task) is not None:
            return [task()]

        def check() -> None:
            if all(one.answer.cancelled() for one in wanted):
                raise GivenUpError

        lines = [line for one in wanted for line in one.lines]
        found = iter(self._translate(lines, wanted[0].options, check))
        return [[next(found) for _ in one.lines] for one in wanted]

    def _next(self) -> list[_Request]:
        """Waits for the first request; with it come others of the same options, in their order,
        unless it is a task.

        Empty once this is closed and nothing waits.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return []
            first = self._waiting.popleft()
            batch, room = [first], self._largest - len(first.lines)
            work = self._most_work - first.work
            others: deque[_Request] = deque()
            for other in self._waiting:
                if (
                    first.task is None
                    and other.task is None
                    and other.options == first.options
                    and len(other.lines) <= room
                    and other.work <= work
                ):
                    batch.append(other)
                    room -= len(other.lines)
                    work -= other.work
                else:
                    others.append(other)
            self._waiting = others
            return batch
