"""The run's journal: one JSON line an event, appended as training goes.

The trainer never waits for a tracking server or a terminal: whoever wants to know follows this
file. A line is written with one call, so a reader sees whole lines only; a line torn by a crash
is cut off when the journal is opened for writing again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from seq2sweep.errors import UserError
from seq2sweep.storage.locks import leads_to
from seq2sweep.storage.retry import with_retries
from seq2sweep.train.events import CheckpointDue, Event, Finished, Interrupted

T = TypeVar("T")


class Journal:
    """Append events to a file, each once, also when training repeats steps; one writer at a time.

    Training that resumes from a checkpoint does the steps after it again. What was written the
    first time was delivered already, so the first entry of a kind and step is the one that counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = with_retries(lambda: os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
        self._end = with_retries(lambda: _last_line_end(self._file))
        self._torn = True
        self._last: dict[str, int] = with_retries(
            lambda: {entry["kind"]: int(entry["step"]) for entry in entries(path)}
        )

    def append(self, event: Event) -> None:
        """Write one event as `{"kind", "step", "time", its figures...}`, unless it is there."""
        if isinstance(event, Interrupted):
            raise ValueError("an interruption is no part of what happened to the run")
        if event.step <= self._last.get(event.kind, -1):
            return
        figures = event.summary if isinstance(event, Finished) else event.metrics
        # The time stands before the first try, as a reader may have seen that line already.
        entry = {"kind": event.kind, "step": event.step, "time": time.time(), **figures}
        line = (json.dumps({key: _finite(value) for key, value in entry.items()}) + "\n").encode()
        with_retries(lambda: self._write(line))
        if isinstance(event, CheckpointDue | Finished):
            with_retries(self.sync)
        self._last[event.kind] = event.step

    def _write(self, line: bytes) -> None:
        if os.fstat(self._file).st_size < self._end:
            raise self._lost()  # or there would be a hole before the line
        if self._torn:
            os.ftruncate(self._file, self._end)
        self._torn = True
        if os.pwrite(self._file, line, self._end) != len(line):
            raise OSError(errno.ENOSPC, "no space left for the run's journal")
        self._end, self._torn = self._end + len(line), False

    def sync(self) -> None:
        """Have on the disk itself what a checkpoint builds upon.

        Raises FileNotFoundError where the file was removed: else training would go on without a
        record.
        """
        os.fsync(self._file)
        if not leads_to(self._path, self._file):
            raise self._lost()

    def _lost(self) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "it was removed or cut", str(self._path))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def follow(path: Path, offset: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """Each whole entry from byte `offset` on, and the offset behind it; none without the file.

    One line is in memory at a time. Raises UserError when a line is damaged.
    """
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return
    with stream:
        stream.seek(offset)
        for line in stream:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield _entry(path, line), offset


def entries(path: Path, *kinds: str) -> Iterator[dict[str, Any]]:
    """Each whole entry of these kinds, or of all; as `follow`."""
    return (entry for entry, _ in follow(path) if not kinds or entry["kind"] in kinds)


def read(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """All that `follow` gives, for a journal that is known to be short, and the last offset."""
    found = list(follow(path, offset))
    return [entry for entry, _ in found], found[-1][1] if found else offset


def end(path: Path) -> int:
    """The offset behind the last whole entry, which takes no reading of the others."""
    try:
        with path.open("rb") as stream:
            return _last_line_end(stream.fileno())
    except FileNotFoundError:
        return 0


def whole_lines(path: Path) -> bytes:
    """Its content without a line that is not whole yet; empty where there is none."""
    with contextlib.suppress(FileNotFoundError):
        content = path.read_bytes()
        return content[: content.rfind(b"\n") + 1]
    return b""


def thinned(items: Iterable[T], most: int) -> list[T]:
    """At most `most` (an even number) of the items, evenly spaced, and the last one."""
    kept: list[T] = []
    apart, last = 1, -1
    for last, item in enumerate(items):
        if last % apart == 0:
            if len(kept) == most:
                del kept[1::2]
                apart *= 2
            kept.append(item)
    if last >= 0 and last % apart:
        kept.append(item)
    return kept


def _entry(path: Path, line: bytes) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(line)
        return {"kind": entry["kind"], "step": entry["step"]} | entry
    except (ValueError, TypeError, KeyError):
        shown = line.rstrip(b"\n")[:40].decode(errors="replace")
        raise UserError(
            f"{path} has a damaged line ({shown!r}): remove that line; the curves lose a point"
        ) from None


def _finite(value: Any) -> Any:
    """JSON knows no NaN; null says that there is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _last_line_end(descriptor: int) -> int:
    position = os.lseek(descriptor, 0, os.SEEK_END)
    while position > 0:
        start = max(0, position - 4096)
        found = os.pread(descriptor, position - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        position = start
    return 0
