"""What stages say about their runs, on disk first: delivery.py brings it to MLflow, now or later.

One folder a run, `<cluster.storage>/tracking/<name>/`:

    records.jsonl   what happened, a line each, only ever appended to
    files/          artifacts as they were when they were recorded
    delivered.json  how far MLflow has it
    delivery.lock   held by the process that delivers

The writer (writer.py) holds a lock on records.jsonl for as long as it lives: so it shows when its
process has died, however that came. Needs no mlflow.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seq2sweep.config import ClusterConfig
from seq2sweep.errors import UserError
from seq2sweep.storage.locks import leads_to, try_lock

RECORDS = "records.jsonl"
FILES = "files"
DELIVERY_LOCK = "delivery.lock"

STILL_SECONDS = 600.0

# Whoever else holds the writer's lock does so for the moment of one small write.
_LOCK_SECONDS = 5.0


class Damaged(UserError):  # noqa: N818 - what the record is, as in delivery.py
    """A line of records.jsonl is no record; the message names the file and the place."""


class Record(NamedTuple):
    """A line of records.jsonl, and where it begins and ends in the file."""

    begin: int
    end: int
    content: dict[str, Any]


class Outbox:
    """A run's folder, as those see it who deliver what is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.name

    @contextlib.contextmanager
    def delivering(self) -> Iterator[bool]:
        """Hold the outbox for delivery; False while another process or thread does."""
        try:
            stream = (self.folder / DELIVERY_LOCK).open("w")
        except FileNotFoundError:
            if self.folder.exists():
                raise
            yield False
            return
        with stream:
            # Whoever held it before may have removed it all.
            held = _try_lock(stream.fileno(), self.folder / DELIVERY_LOCK)
            yield held and (self.folder / RECORDS).exists()

    @contextlib.contextmanager
    def without_writer(self) -> Iterator[bool]:
        """Hold the outbox as its writer does; False while that lives."""
        # Open for writing, else NFS grants no lock.
        with (self.folder / RECORDS).open("r+b") as stream:
            yield _try_lock(stream.fileno(), self.folder / RECORDS)

    def end_if_dead(self) -> None:
        """Record that the run was killed if its process is gone without an end.

        Where locks do not reach other hosts, a process on one of them counts as gone when it has
        written nothing for STILL_SECONDS.
        """
        path = self.folder / RECORDS
        with self.without_writer() as gone:
            if not gone:
                os.utime(path)  # so that hosts which do not see the lock see that it lives
                return
            state = self.state()
            if state is None or state["do"] == "end":
                return
            process = state["tags"]
            elsewhere = process["process.host"] != socket.gethostname()
            if elsewhere and time.time() - self._last_written() < STILL_SECONDS:
                return
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
            try:
                _cut_torn_line(descriptor)
                append(descriptor, path, killed(state))
            finally:
                os.close(descriptor)

    def _last_written(self) -> float:
        """When the run's process last wrote here or into a journal, in unix seconds."""
        paths = [self.folder / RECORDS]
        paths += [
            self.folder / str(record.content["journal"])
            for record in self.records()
            if record.content["do"] == "curves"
        ]
        return max(path.stat().st_mtime for path in paths if path.exists())

    def state(self) -> dict[str, Any] | None:
        """The last record that says that the run started or ended; None of an empty outbox."""
        found = [r.content for r in self.records() if r.content["do"] in ("start", "end")]
        return found[-1] if found else None

    def records(self, offset: int = 0) -> list[Record]:
        """Whole records from byte `offset` on. Raises Damaged."""
        return read_records(self.folder, offset)

    def size(self) -> int:
        """Bytes of all records."""
        return (self.folder / RECORDS).stat().st_size

    def remove(self) -> None:
        """Remove all of it; a kill in between leaves what `outboxes` removes."""
        away = self.folder.with_name(f".{self.name}.{uuid.uuid4().hex[:8]}.removed")
        self.folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)  # `outboxes` may be at it too


def outboxes_folder(config: ClusterConfig, project: Path) -> Path:
    """The folder of all outboxes, absolute; on this machine, wherever the runs are."""
    return (project / config.folder / "tracking").resolve()


def outboxes(root: Path) -> list[Outbox]:
    """All outboxes, the oldest first, so that a parent comes before its children."""
    if not root.exists():
        return []
    for leftover in root.glob(".*.removed"):
        shutil.rmtree(leftover, ignore_errors=True)
    folders = [path for path in root.iterdir() if _holds_records(path)]
    return [Outbox(folder) for folder in sorted(folders, key=_begun)]


def _holds_records(folder: Path) -> bool:
    try:
        return (folder / RECORDS).exists()
    except PermissionError:
        return True  # who wants to deliver it learns why not


def read_records(folder: Path, offset: int = 0) -> list[Record]:
    """Whole records of an outbox from byte `offset` on. Raises Damaged."""
    with (folder / RECORDS).open("rb") as stream:
        stream.seek(offset)
        lines = stream.read()
    found = []
    for line in lines[: lines.rfind(b"\n") + 1].splitlines(keepends=True):
        try:
            what = json.loads(line)
            what = {"do": what["do"], **what}
        except (ValueError, TypeError, KeyError):
            raise Damaged(
                f"{folder / RECORDS} is damaged at byte {offset}: remove that line"
            ) from None
        found.append(Record(offset, offset + len(line), what))
        offset += len(line)
    return found


def _begun(folder: Path) -> tuple[float, str]:
    try:
        with (folder / RECORDS).open("rb") as stream:
            return float(json.loads(stream.readline())["time"]), folder.name
    except (OSError, ValueError, KeyError):
        return math.inf, folder.name


def open_to_write(folder: Path) -> int:
    """A descriptor of records.jsonl for its only writer, with a line that was torn cut off."""
    path, deadline = folder / RECORDS, time.monotonic() + _LOCK_SECONDS
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except FileNotFoundError:
            continue  # removed in between, as it was empty
        if _try_lock(descriptor, path) and leads_to(path, descriptor):
            _cut_torn_line(descriptor)
            return descriptor
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise UserError(f"another process records in {folder}: wait for its end, or end it")
        time.sleep(0.05)


def append(descriptor: int, path: Path, record: Mapping[str, Any]) -> None:
    """Append a record, which then outlasts a power failure; an OSError leaves what was there.

    path: of the descriptor, for the error.
    """
    line = (json.dumps(record) + "\n").encode()
    begin = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        with naming(path):
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, begin)
        raise


def killed(state: Mapping[str, Any]) -> dict[str, Any]:
    """The end of a run whose process died without one; state: the start of it."""
    number = state["tags"]["process.id"]
    closed = f"its process {number} was gone without having ended the run"
    return {"do": "end", "time": time.time(), "status": "KILLED", "closed": closed}


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError of the block that names no file, as one of a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def begins_a_line(path: Path, position: int) -> bool:
    """Whether a line begins, or may be appended, at this byte of a file."""
    if position == 0:
        return True
    with path.open("rb") as stream:
        stream.seek(position - 1)
        return stream.read(1) == b"\n"


def _try_lock(descriptor: int, path: Path) -> bool:
    return try_lock(descriptor, path, "cluster.storage")


def _cut_torn_line(descriptor: int) -> None:
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.ftruncate(descriptor, content.rfind(b"\n") + 1)
