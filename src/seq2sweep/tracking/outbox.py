"""The outboxes: what stages record of their runs, on disk first; relay.py delivers it to MLflow.

One folder a run, `<cluster.storage>/tracking/<name>/`:

    records.jsonl   what happened, a line each, only ever appended to
    files/          artifacts as they were when they were recorded
    delivered.json  how far MLflow has it
    delivery.lock   held by the process that delivers

A record is an object: `do` names a method of `mlflow_runs.Run`, or of `Delivery` for the start,
the end and the curves of a run; the other keys are its arguments. Of `files` it says where they are
in this folder; `on_parent` says that the run above is meant.

The recorder (recorder.py) holds a lock on records.jsonl for as long as it lives: so it shows when
its process has died, however that came. Needs no mlflow.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2sweep.config import ClusterConfig
from seq2sweep.errors import UserError
from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import begins_a_line, naming, write_whole
from seq2sweep.storage.locks import leads_to, try_lock

if TYPE_CHECKING:
    from seq2sweep.tracking.addressee import Addressee

RECORDS = "records.jsonl"
FILES = "files"
DELIVERED = "delivered.json"
DELIVERY_LOCK = "delivery.lock"

# Above it a file is linked, not copied. Weights are never changed in place; a text file may be.
COPIED_BYTES = 16 * 2**20

STILL_SECONDS = 600.0
GONE = "was gone without having ended the run"

# Whoever else holds the recorder's lock does so for the moment of one small write.
_LOCK_SECONDS = 5.0


_ID = re.compile("^[0-9a-f]{32} ")


def address_of(store: str) -> str:
    """The address of a store, without the id that `addressee.named` puts before it."""
    return _ID.sub("", store)


class DamagedRecordError(UserError):
    """A line of records.jsonl is no record; the message names the file and the place."""


class Record(NamedTuple):
    """A line of records.jsonl, and where it begins and ends in the file."""

    begin: int
    end: int
    content: dict[str, Any]


class Outbox:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name, self.path = folder, folder.name, folder / RECORDS

    # --- for who records ------------------------------------------------------------------------

    def open(self) -> int:
        """A descriptor of records.jsonl for its only writer, with a line that was torn cut off.

        Raises UserError while another process has it.
        """
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            except FileNotFoundError:
                continue  # removed in between, as it was empty
            if _try_lock(descriptor, self.path) and leads_to(self.path, descriptor):
                _cut_torn_line(descriptor)
                return descriptor
            os.close(descriptor)
            if time.monotonic() > deadline:
                raise UserError(
                    f"another process records in {self.folder}: wait for its end, or end it"
                )
            time.sleep(0.05)

    def append(
        self, descriptor: int, record: Mapping[str, Any], files: Sequence[Path] | None = None
    ) -> None:
        """Append a record with its files as they are now; it then outlasts a power failure.

        What fails, such as a full disk, leaves what was there. descriptor: of records.jsonl, from
        `open` or `without_recorder`.
        """
        if files is None:
            self._write(descriptor, record)
            return
        place = self.folder / FILES / uuid.uuid4().hex[:12]
        kept = [str((place / path.name).relative_to(self.folder)) for path in files]
        try:
            place.mkdir(parents=True)
            for path in files:
                _keep(path, place / path.name)
            self._write(descriptor, {**record, "files": kept})
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise

    def _write(self, descriptor: int, record: Mapping[str, Any]) -> None:
        line = (json.dumps(record) + "\n").encode()
        begin = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            with naming(self.path):
                if os.write(descriptor, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, begin)
            raise

    # --- for who delivers -----------------------------------------------------------------------

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
            yield held and self.path.exists()

    @contextlib.contextmanager
    def without_recorder(self) -> Iterator[int | None]:
        """Hold the outbox as its recorder does, by a descriptor; None while that lives."""
        # Open for writing, else NFS grants no lock.
        with self.path.open("r+b") as stream:
            yield stream.fileno() if _try_lock(stream.fileno(), self.path) else None

    def show_life(self) -> None:
        """Show hosts which do not see the recorder's lock that it lives, if it does."""
        with self.without_recorder() as descriptor:
            if descriptor is None:
                os.utime(self.path)

    def end_if_dead(self) -> None:
        """Record that the run was interrupted if its process is gone without an end.

        Where locks do not reach other hosts, a process on one of them counts as gone when it has
        written nothing for STILL_SECONDS.
        """
        with self.without_recorder() as descriptor:
            if descriptor is None:
                os.utime(self.path)  # so that hosts which do not see the lock see that it lives
                return
            start = self.running()
            if start is None:
                return
            elsewhere = start["tags"]["process.host"] != socket.gethostname()
            if elsewhere and time.time() - self.last_written(start) < STILL_SECONDS:
                return
            _cut_torn_line(descriptor)
            self.append(descriptor, self.interrupted(start))

    def interrupted(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """The end of a run whose process died without one; start: the record of its start."""
        error = f"its process {start['tags']['process.id']} {GONE}"
        end = {"do": "end", "time": time.time(), "status": "interrupted", "error": error}
        # One that comes later is of another run.
        return end | {"curves": (self.folder / (start.get("journal") or "")).is_file()}

    def last_written(self, start: Mapping[str, Any]) -> float:
        """When the run's process last wrote here or into its journal, in unix seconds."""
        paths = [self.path, self.folder / (start.get("journal") or RECORDS)]
        return max(path.stat().st_mtime for path in paths if path.exists())

    # --- what is in it --------------------------------------------------------------------------

    def records(self, offset: int = 0) -> list[Record]:
        """Whole records from byte `offset` on. Raises DamagedRecordError."""
        with self.path.open("rb") as stream:
            stream.seek(offset)
            lines = stream.read()
        found = []
        for line in lines[: lines.rfind(b"\n") + 1].splitlines(keepends=True):
            try:
                content = json.loads(line)
                content = {"do": content["do"], **content}
            except (ValueError, TypeError, KeyError):
                raise DamagedRecordError(
                    f"{self.path} is damaged at byte {offset}: remove that line"
                ) from None
            found.append(Record(offset, offset + len(line), content))
            offset += len(line)
        return found

    def last(self, *kinds: str) -> dict[str, Any] | None:
        """The newest record that is one of these; None if there is none."""
        found = [record.content for record in self.records() if record.content["do"] in kinds]
        return found[-1] if found else None

    def running(self) -> dict[str, Any] | None:
        """The start of the run, unless it has ended."""
        state = self.last("start", "end")
        return state if state and state["do"] == "start" else None

    def remove(self) -> None:
        """Remove all of it; a kill in between leaves what `outboxes` removes."""
        away = self.folder.with_name(f".{self.name}.{uuid.uuid4().hex[:8]}.removed")
        self.folder.rename(away)
        shutil.rmtree(away, ignore_errors=True)  # `outboxes` may be at it too


@dataclass
class Cursor:
    """How far one store has an outbox (delivered.json). Stores are as `addressee.named` has them.

    position: byte of records.jsonl up to which all was delivered. whole: up to which each store
    that it is for has complete runs: their files are gone. refused: why the store did not take a
    record, by the byte where it begins. journal: of the training whose curves are followed, up to
    byte `journal_offset` and to the last step of each kind of entry. asked_again: byte of the first
    start that found the run FINISHED. others: the cursors of other stores, as they are written.
    """

    store: str
    experiment: str
    key: str = ""
    run_id: str | None = None
    position: int = 0
    whole: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    journal: str | None = None
    journal_offset: int = 0
    last_steps: dict[str, int] = field(default_factory=dict)
    asked_again: int | None = None
    others: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, outbox: Outbox, store: str, experiment: str) -> Cursor:
        """How far this store's experiment has an outbox."""
        store = redact(store)
        anew = cls(store, experiment)  # delivering all again changes nothing
        try:
            noted = json.loads((outbox.folder / DELIVERED).read_text(encoding="utf-8"))
            whole, every = noted.get("whole", 0), [*noted.pop("others", []), noted]
            places = {(one["store"], one["experiment"]): one for one in every}
            # An earlier version noted no id.
            own = places.pop((store, experiment), None)
            own = own or places.pop((address_of(store), experiment), {})
            if own.get("position", 0) < whole:  # what it lacks was for other stores alone
                own = {"position": whole}
            # What an earlier version noted lacks the newer fields.
            known = {f.name: own[f.name] for f in fields(cls) if f.name in own}
            known |= {"store": store, "experiment": experiment, "whole": whole}
            found = cls(**known | {"others": [*places.values()]})
            # Power that failed may have taken records that MLflow has.
            return found if begins_a_line(outbox.path, found.position) else anew
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return anew

    def anew(self) -> Cursor:
        """That of a store which has nothing of the runs that are not complete."""
        whole, others = self.whole, self.others
        return Cursor(self.store, self.experiment, position=whole, whole=whole, others=others)

    def holders(self, end: int) -> set[tuple[str, str]]:
        """The stores and experiments that have all of an outbox of `end` bytes."""
        every = [asdict(self), *self.others]
        whole = [one for one in every if one.get("position") == end and not one.get("refused")]
        return {(one["store"].rstrip("/"), one["experiment"]) for one in whole}

    def save(self, outbox: Outbox) -> None:
        """Write it, whole or not at all; FileNotFoundError where the outbox was removed."""
        outbox.folder.stat()  # else writing would make it again, without its records
        path = outbox.folder / DELIVERED
        with naming(path):
            write_whole(path, json.dumps(asdict(self)))


def outboxes_folder(config: ClusterConfig, project: Path) -> Path:
    """The folder of all outboxes, absolute; on this machine, wherever the runs are.

    UserError for a link to a disk that is not there: who records would make its folder anew.
    """
    folder = project / config.folder / "tracking"
    if any(path.is_symlink() and not path.exists() for path in (folder, *folder.parents)):
        from seq2sweep.runs.layout import run_folder  # here: torch takes a second to load

        return run_folder(config, project, folder.name)  # which says so
    return folder.resolve()


def outboxes(root: Path, to: Addressee | None = None) -> list[Outbox]:
    """All outboxes that are delivered `to` it, the oldest first, so that a parent comes before its
    children."""
    if not root.exists():
        return []
    for leftover in root.glob(".*.removed"):
        shutil.rmtree(leftover, ignore_errors=True)
    folders = [path for path in root.iterdir() if _holds_records(path)]
    boxes = [Outbox(folder) for folder in sorted(folders, key=_begun)]
    return [box for box in boxes if to is None or to.delivers(box)]


def _holds_records(folder: Path) -> bool:
    try:
        return (folder / RECORDS).exists()
    except PermissionError:
        return True  # who wants to deliver it learns why not


def _begun(folder: Path) -> tuple[float, str]:
    try:
        with (folder / RECORDS).open("rb") as stream:
            return float(json.loads(stream.readline())["time"]), folder.name
    except (OSError, ValueError, TypeError, KeyError):
        return math.inf, folder.name


def _try_lock(descriptor: int, path: Path) -> bool:
    return try_lock(descriptor, path, "cluster.storage")


def _cut_torn_line(descriptor: int) -> None:
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.ftruncate(descriptor, content.rfind(b"\n") + 1)


def _keep(source: Path, target: Path) -> None:
    """Keep a file or a folder as it is now."""
    if source.is_dir():
        target.mkdir()
        for path in source.iterdir():
            _keep(path, target / path.name)
        return
    # Not the link that DVC may keep an output as.
    real = source.resolve()
    if real.stat().st_size > COPIED_BYTES:
        try:
            target.hardlink_to(real)
        except OSError:
            pass  # another file system, or one without hard links
        else:
            return
    shutil.copyfile(real, target)
    with naming(target), target.open("rb") as stream:
        os.fsync(stream.fileno())
