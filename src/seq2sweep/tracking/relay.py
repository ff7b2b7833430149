"""From the outboxes to MLflow: each record once and in order, whatever fails in between.

A record is applied, then the cursor is moved behind it. Who dies in between leaves a record that is
applied again, which changes nothing: runs and models are found before they are created, and all
else is a value under a key. What MLflow refused is tried again by the next process, and behind it
what came later and is under the same key: the last value stays.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree

from seq2sweep.errors import NO_ROOM, UserError
from seq2sweep.tracking.addressee import Addressee, named
from seq2sweep.tracking.delivery import (
    Delivery,
    ParentMissingError,
    UnavailableError,
    written_keys,
)
from seq2sweep.tracking.mlflow_store import (
    Experiment,
    RefusedError,
    address,
    reason,
    sqlite_file,
    store_errors,
)
from seq2sweep.tracking.outbox import (
    FILES,
    GONE,
    Cursor,
    DamagedRecordError,
    Outbox,
    Record,
    outboxes,
)
from seq2sweep.tracking.recorder import Recorder

# What an outbox may wait for.
BUSY = "another process delivers it right now"
CHILD = "the run that it belongs to is not in MLflow yet"

# Whoever lives and records goes on in a folder that is removed, and nobody would see it.
GIVEN_UP_SECONDS = 86_400.0


class Relay:
    """Delivers what is in the outboxes of a folder to one experiment of one store."""

    def __init__(self, root: Path, uri: str, experiment: str, artifacts: Path) -> None:
        """As `destination` gives them.

        on_record is called before each of the records that `records_left` counts, with the bytes of
        its files, on_progress after each part of a curve. `refused` and `waiting` say why, by the
        names of the outboxes that are left.
        """
        self.root, self.uri, self.experiment, self.artifacts = root, uri, experiment, artifacts
        self.store = named(uri, sqlite_file(uri))
        self.to = Addressee.of(self.store, experiment, Path.cwd())
        self.on_record: Callable[[int], object] = lambda size: None
        self.on_progress: Callable[[], object] = lambda: None
        self.applied = 0
        self.refused: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self.failures: Counter[tuple[str, int, str]] = Counter()
        self._opened: Experiment | None = None
        self._retried, self._asked_for = set[str](), set[str]()

    def deliver(self) -> bool:
        """Deliver all there is; False if `waiting` tells of something to come back for.

        Raises UnavailableError when the store cannot be used.
        """
        self.waiting = {}
        try:
            boxes = outboxes(self.root, self.to)
            for box in boxes:  # all of them first, as a store that is away ends this at one
                with contextlib.suppress(OSError):
                    box.show_life()
            for _ in range(2):  # what waited for its parent, or another process, may go then
                boxes = [box for box in boxes if not self._deliver(box)]
            return not boxes
        except OSError as error:
            raise UnavailableError(
                f"what is recorded in {self.root} cannot be used ({error})"
            ) from None

    def records_left(self) -> int:
        """Records that are not delivered yet."""
        count = 0
        for box in outboxes(self.root, self.to):
            # Removed in between; what cannot be read is told when it is delivered.
            with contextlib.suppress(OSError, DamagedRecordError):
                count += len(box.records(self.cursor(box).position))
        return count

    def run_id(self, run: Recorder) -> str | None:
        """The id of a run in this store, if it is known."""
        cursor = self.cursor(Outbox(run.folder))
        return cursor.run_id if cursor.key == run.key else None

    def page(self, run: Recorder) -> str | None:
        """The address of a run's page, if the run is known."""
        run_id = self.run_id(run)
        return run_id and address(self.uri, f"{self.open().id}/runs/{run_id}")

    def cursor(self, box: Outbox) -> Cursor:
        """How far the store has an outbox."""
        return Cursor.load(box, self.store, self.experiment)

    def open(self) -> Experiment:
        """The experiment, opened once. Raises UnavailableError."""
        if self._opened is None:
            try:
                self._opened = Experiment(self.uri, self.experiment, self.artifacts)
            except UserError as error:
                raise UnavailableError(str(error)) from None
        return self._opened

    def _deliver(self, box: Outbox) -> bool:
        """Deliver one outbox; False where it waits for its parent or another process has it."""
        try:
            with box.delivering() as ours:
                if not ours and box.folder.exists():
                    self.waiting[box.name] = BUSY
                    return False
                if ours:
                    self._deliver_locked(box)
        except ParentMissingError:
            self.waiting[box.name] = CHILD
            return False
        except (RefusedError, DamagedRecordError) as error:
            # A record, a run that cannot be created, a damaged file: others do not wait for it.
            self.refused[box.name] = str(error)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise
            if box.folder.exists() and not self._has_all(box):  # another user's, say
                self.refused[box.name] = reason(error)
        else:
            self.refused.pop(box.name, None)
        self.waiting.pop(box.name, None)
        return True

    def _deliver_locked(self, box: Outbox) -> None:
        box.end_if_dead()
        cursor = self.cursor(box)
        if self._was_replaced(box, cursor):
            cursor = cursor.anew()
        # Once a process, as what was refused may be mended.
        retry = bool(cursor.refused) and box.name not in self._retried
        found = box.records(0 if retry else cursor.position)
        if retry:
            # They count as refused until they are there again, whoever dies in between.
            cursor.refused |= _would_be_undone(found, cursor)
        records = [
            record
            for record in found
            if record.begin >= cursor.position or str(record.begin) in cursor.refused
        ]
        if records or cursor.journal:
            Delivery(self, box, cursor).deliver(records)
        self._retried.add(box.name)
        if cursor.refused:
            raise RefusedError(next(iter(cursor.refused.values())))
        with box.without_recorder() as descriptor:
            holders = cursor.holders(box.path.stat().st_size)
            if descriptor is not None and self.to.awaiting(box) <= holders:
                _prune(box, cursor)

    def _has_all(self, box: Outbox) -> bool:
        """Whether all of one that cannot be locked has been delivered, by the user whose it is."""
        with contextlib.suppress(OSError):
            return not _left(box, self.cursor(box))
        return False

    def _was_replaced(self, box: Outbox, cursor: Cursor) -> bool:
        """Whether the store does not know the run: it is another one, in the place of the first."""
        if not _left(box, cursor) or cursor.run_id is None or box.name in self._asked_for:
            return False
        self._asked_for.add(box.name)
        try:
            self.open().client.get_run(cursor.run_id)
        except store_errors() as error:  # all others are told when something is delivered
            return getattr(error, "error_code", None) == "RESOURCE_DOES_NOT_EXIST"
        return False


def _left(box: Outbox, cursor: Cursor) -> bool:
    """Whether the store lacks anything of an outbox, or has refused it."""
    more = bool(cursor.refused or cursor.journal)
    return more or cursor.position < box.path.stat().st_size


def _would_be_undone(records: Sequence[Record], cursor: Cursor) -> dict[str, str]:
    """The delivered records over which one that was refused would write if it is taken now, by the
    byte where they begin, and why that was refused."""
    found: dict[str, str] = {}
    why_of: dict[tuple[str, bool, str], str] = {}
    for record in records:
        keys = written_keys(record)
        reasons = [cursor.refused.get(str(record.begin)), *map(why_of.get, keys)]
        why = next(filter(None, reasons), None)
        if why is not None and record.begin < cursor.position:
            found[str(record.begin)] = why
            why_of |= dict.fromkeys(keys, why)
    return found


def _prune(box: Outbox, cursor: Cursor) -> None:
    """Remove an outbox that has ended, or what one that may be resumed needs no more."""
    if box.running() or _may_live(box):
        return  # on another host, where it may live
    start = box.last("start")
    if start is None or not start.get("journal"):
        box.remove()
    elif cursor.whole != cursor.position:
        cursor.whole = cursor.position
        cursor.save(box)
        rmtree(box.folder / FILES, ignore_errors=True)
        for leftover in box.folder.glob("*.partial"):
            leftover.unlink(missing_ok=True)


def _may_live(box: Outbox) -> bool:
    """Whether the run of another host was only taken for dead, less than a day ago."""
    start, end = box.last("start"), box.last("end")
    if start is None or end is None or not str(end.get("error")).endswith(GONE):
        return False
    if start["tags"]["process.host"] == socket.gethostname():
        return False
    return time.time() - box.last_written(start) < GIVEN_UP_SECONDS
