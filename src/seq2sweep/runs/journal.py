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
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from seq2sweep import hardware
from seq2sweep.errors import UserError
from seq2sweep.storage.atomic import write_whole
from seq2sweep.storage.locks import leads_to
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.storage.retry import with_retries
from seq2sweep.train.events import CheckpointDue, Event, Finished, Interrupted, Logged

T = TypeVar("T")

UPLOAD_BYTES_PER_SECOND = 1e5
"""Of a journal that grows, on average: as all of it is uploaded again, a long one is less often."""
LATE_SECONDS = 30.0
"""So often at least, however long it is: the driver tells what new lines say, and takes
console.SILENT_SECONDS without any for silence."""


class Journal:
    """Append events to a file, each once, also when training repeats steps; one writer at a time.

    Training that resumes from a checkpoint does the steps after it again. What was written the
    first time was delivered already, so the first entry of a kind and step is the one that counts.
    But a run that had finished is trained again where its checkpoints were lost: what it says of
    the new ones, and then of its end, is written again, and the newest entry counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = with_retries(lambda: os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
        self._end = with_retries(lambda: _last_line_end(self._file))
        self._most = with_retries(lambda: os.fstat(self._file).st_size)  # with a line that is torn
        self._last = with_retries(lambda: _last_steps(path))

    def append(self, event: Event) -> None:
        """Write one event as `{"kind", "step", "time", its metrics...}`, unless it is there.

        With a line of the curves stands what the node has in use (hardware.use_of_node).
        """
        if isinstance(event, Interrupted):
            raise ValueError("an interruption is no part of what happened to the run")
        again = isinstance(event, CheckpointDue) and Finished.kind in self._last
        if event.step <= self._last.get(event.kind, -1) and not again:
            return
        metrics = event.summary if isinstance(event, Finished) else event.metrics
        if isinstance(event, Logged):
            metrics = metrics | hardware.use_of_node()
        # The time stands before the first try, as a reader may have seen that line already.
        entry = {"kind": event.kind, "step": event.step, "time": time.time(), **metrics}
        line = (json.dumps({key: _finite(value) for key, value in entry.items()}) + "\n").encode()
        with_retries(lambda: self._write(line))
        if isinstance(event, CheckpointDue | Finished):
            with_retries(self.sync)
        _note(self._last, event.kind, event.step)

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        if size < self._end:
            raise _lost(self._path)  # or there would be a hole before the line
        if size > self._most:
            # A file server gives the lock of a machine that was cut off to the next one. Without a
            # number, as waiting does not mend it.
            raise OSError(f"{self._path}: another process trains this run, too: end one of them")
        if size > self._end:
            os.ftruncate(self._file, self._end)
        self._most = self._end + len(line)
        if os.pwrite(self._file, line, self._end) != len(line):
            raise OSError(errno.ENOSPC, "no space left for the run's journal")
        self._end = self._most

    def sync(self) -> None:
        """Have on the disk itself what a checkpoint builds upon.

        Raises FileNotFoundError where the file was removed: else training would continue without a
        record.
        """
        os.fsync(self._file)
        if not leads_to(self._path, self._file):
            raise _lost(self._path)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class JournalCopy:
    """A run's journal on one machine, and the one in an object store: one follows the other."""

    def __init__(self, path: Path, objects: ObjectStore) -> None:
        self.path, self.objects = path, objects
        self._uploaded = 0
        self._due = -math.inf
        self._lock = threading.Lock()  # so that none is replaced by an older one

    def upload(self, check: Callable[[], None]) -> None:
        """Upload what the journal here has in whole lines; never less than is there.

        check: raises when this process may not write there any more. Raises FileNotFoundError where
        the one here was removed: the workers restart with the one there.
        """
        with self._lock:
            if end(self.path) != self._uploaded:
                content = self._whole_lines()
                if len(content) < self._uploaded:  # whoever cleans temporary files was here
                    raise _lost(self.path)
                check()
                self.objects.write(self.path.name, content)
                self._uploaded = len(content)
                pause = min(len(content) / UPLOAD_BYTES_PER_SECOND, LATE_SECONDS)
                self._due = time.monotonic() + pause

    def keep_up(self, check: Callable[[], None]) -> None:
        """`upload`, unless it is too soon after the last one; to be called every few seconds."""
        if time.monotonic() >= self._due:
            self.upload(check)

    def append_missing(self) -> None:
        """Append to the journal here what the one there has more."""
        with self._lock:
            here = end(self.path)
            if (self.objects.size(self.path.name) or 0) > here:
                missing = self.objects.read(self.path.name, here) or b""
                with self.path.open("ab") as stream:
                    stream.truncate(here)
                    stream.write(_whole_lines(missing))

    def fetch(self, *, or_longer: bool = False) -> None:
        """Have here what is there.

        or_longer: it may be the beginning of what is here; so one that was mended there is taken.
        Raises UserError, and changes nothing, when a line of the one there is damaged.
        """
        name = self.path.name
        with self._lock:
            there, here = _whole_lines(self.objects.read(name) or b""), self._whole_lines()
            for line in there.splitlines(keepends=True):
                _entry(f"{self.objects.address}/{name}", line)
            if here != there and not (or_longer and here.startswith(there)):
                write_whole(self.path, there.decode())
            self._uploaded = len(there)

    def _whole_lines(self) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            return _whole_lines(self.path.read_bytes())
        return b""


def _whole_lines(content: bytes) -> bytes:
    """Without a line that is not whole yet."""
    return content[: content.rfind(b"\n") + 1]


def _lost(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "it was removed or cut", str(path))


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


def end(path: Path) -> int:
    """The offset behind the last whole entry, which takes no reading of the others."""
    try:
        with path.open("rb") as stream:
            return _last_line_end(stream.fileno())
    except FileNotFoundError:
        return 0


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


def _last_steps(path: Path) -> dict[str, int]:
    """The newest step of each kind, as `_note` keeps it."""
    last: dict[str, int] = {}
    for entry in entries(path):
        _note(last, entry["kind"], int(entry["step"]))
    return last


def _note(last: dict[str, int], kind: str, step: int) -> None:
    if kind == CheckpointDue.kind and Finished.kind in last:
        last[Finished.kind] = -1  # of a training before: this one's end is still to come
    last[kind] = step


def _entry(path: Path | str, line: bytes) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(line.decode())
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
