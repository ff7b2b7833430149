"""From the outboxes to MLflow: each record once and in order, whatever fails in between.

A record is applied, then the place after it is noted. Who dies in between leaves a record that is
applied again, which changes nothing: runs and models are found before they are made, and all else
is a value under a key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree

from seq2sweep.errors import NO_ROOM, UserError
from seq2sweep.tracking.address import reason
from seq2sweep.tracking.applying import Applier, Refused, Waits
from seq2sweep.tracking.delivered import Delivered
from seq2sweep.tracking.outbox import FILES, Damaged, Outbox, Record, outboxes
from seq2sweep.tracking.runs import Tracker
from seq2sweep.tracking.store import STORE_ERRORS, refuses, unusable
from seq2sweep.tracking.writer import Writer

# A store that answers, but fails at one record this often, has refused it.
ATTEMPTS = 3

# What an outbox may wait for.
BUSY = "another process is recording it right now"
CHILD = "the run that it belongs to is not in MLflow yet"


class Away(Exception):  # noqa: N818 - what the store is, as a UserError's name says whose fault
    """The store does not take anything at the moment; the message is one line."""


class Courier:
    """Brings what is in the outboxes of a folder to one experiment of one store."""

    def __init__(
        self,
        root: Path,
        uri: str,
        experiment: str,
        artifacts: Path,
        on_step: Callable[[int], None] = lambda size: None,
    ) -> None:
        """uri: as `resolve_uri` gives it. on_step: called before each step with the bytes of the
        file that it sends, 0 for what is small; `steps_left` tells how many there are.

        `refused` and `waiting` say why, by the names of outboxes that are left."""
        self.root, self.uri, self.experiment, self.artifacts = root, uri, experiment, artifacts
        self.on_step = on_step
        self.applied = 0
        self.refused: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self._tracker: Tracker | None = None
        self._failures: Counter[tuple[str, int]] = Counter()
        self._tried_again: set[str] = set()

    def deliver(self) -> bool:
        """Bring all there is; False if `waiting` tells of something to come back for.

        Raises Away when the store cannot be used.
        """
        self.waiting = {}
        try:
            boxes = outboxes(self.root)
            for _ in range(2):  # what waited for its parent, or another process, may go then
                boxes = [box for box in boxes if not self._deliver(box)]
            return not boxes
        except OSError as error:
            raise Away(f"what is recorded in {self.root} cannot be used ({error})") from None

    def steps_left(self) -> int:
        """Records and files that are still to be brought."""
        count = 0
        for box in outboxes(self.root):
            try:
                delivered = Delivered.of(box, self.uri, self.experiment)
                records = box.records(delivered.position)
            except (OSError, Damaged):
                continue  # removed in between; what cannot be read is told when it is delivered
            count += sum(1 + len(record.content.get("files", ())) for record in records)
        return count

    def run_id(self, writer: Writer) -> str | None:
        """The id of a writer's run in this store, if it is known."""
        delivered = Delivered.of(Outbox(writer.folder), self.uri, self.experiment)
        return delivered.run_id if delivered.key == writer.key else None

    def _open(self) -> Tracker:
        if self._tracker is None:
            try:
                self._tracker = Tracker(self.uri, self.experiment, self.artifacts)
            except UserError as error:
                raise Away(str(error)) from None
        return self._tracker

    def _deliver(self, box: Outbox) -> bool:
        """Bring one outbox; False where it waits for its parent or another process has it."""
        try:
            with box.delivering() as ours:
                if not ours and box.folder.exists():
                    self.waiting[box.name] = BUSY
                    return False
                if ours:
                    self._deliver_held(box)
        except Waits:
            self.waiting[box.name] = CHILD
            return False
        except (Refused, Damaged) as error:
            # A record, a run that cannot be made, a damaged file: others do not wait for it.
            self.refused[box.name] = str(error)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise
            if box.folder.exists():  # another user's, say
                self.refused[box.name] = reason(error)
        else:
            self.refused.pop(box.name, None)
        self.waiting.pop(box.name, None)
        return True

    def _deliver_held(self, box: Outbox) -> None:
        box.end_if_dead()
        delivered = Delivered.of(box, self.uri, self.experiment)
        records = box.records(delivered.position)
        again = bool(delivered.refused) and box.name not in self._tried_again
        if records or again or delivered.journal:
            _Delivery(self, self._open(), box, delivered).work(records, again)
        self._tried_again.add(box.name)
        if delivered.refused:
            raise Refused(next(iter(delivered.refused.values())))
        self._tidy(box, delivered)

    def _tidy(self, box: Outbox, delivered: Delivered) -> None:
        """Remove an outbox that has ended, or what one that may go on needs no more."""
        with box.without_writer() as gone:
            if not gone or delivered.position != box.size():
                return
            state = box.state()
            if state is not None and state["do"] == "start":
                return  # on another host, where it may live
            if state is not None and box.records()[0].content["goes_on"]:
                if delivered.whole != delivered.position:
                    delivered.journal, delivered.whole = None, delivered.position
                    delivered.save(box)
                    rmtree(box.folder / FILES, ignore_errors=True)
                    for leftover in box.folder.glob("*.partial"):
                        leftover.unlink(missing_ok=True)
            else:
                box.remove()

    def store_fails(self, box: Outbox, begin: int, error: Exception) -> None:
        """Raises Away, or Refused where it is one record that the store cannot take."""
        if refuses(error):
            raise Refused(reason(error)) from None
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise Away(f"MLflow's files have no room in {self.artifacts} ({error})") from None
        try:
            tracker = self._open()
            tracker.client.get_experiment(tracker.experiment_id)
        except STORE_ERRORS as failure:
            raise Away(unusable(self.uri, failure)) from None
        self._failures[box.name, begin] += 1
        if self._failures[box.name, begin] >= ATTEMPTS:
            raise Refused(reason(error)) from None
        raise Away(unusable(self.uri, error)) from None


class _Delivery:
    """The delivery of one outbox, while its lock is held."""

    def __init__(
        self, courier: Courier, tracker: Tracker, box: Outbox, delivered: Delivered
    ) -> None:
        self.courier, self.box, self.delivered = courier, box, delivered
        self.applier = Applier(tracker, box, delivered, courier.on_step)

    def work(self, records: Sequence[Record], try_again: bool) -> None:
        """Apply what is new, and what was refused before if it is to be tried again."""
        if try_again and self.delivered.run_id:
            for record in self.box.records():
                if str(record.begin) in self.delivered.refused:
                    self._apply_one(record)
                    self.delivered.save(self.box)
        for record in records:
            self._apply_one(record)
            self.delivered.position = record.end
            self.delivered.save(self.box)
        if self.delivered.journal:
            self._guarded(self.delivered.position, self.applier.follow)

    def _apply_one(self, record: Record) -> None:
        self.courier.on_step(0)
        try:
            self._guarded(record.begin, lambda: self.applier.apply(record.content))
        except Refused as error:
            if record.content["do"] == "start":
                raise  # there is no run for the others
            self.delivered.refused[str(record.begin)] = str(error)
        else:
            self.delivered.refused.pop(str(record.begin), None)
            self.courier.applied += 1

    def _guarded(self, begin: int, step: Callable[[], None]) -> None:
        try:
            step()
        except STORE_ERRORS as error:
            if self._is_ours(error):
                raise
            self.courier.store_fails(self.box, begin, error)

    def _is_ours(self, error: Exception) -> bool:
        """Whether it is not the store, but a file of what is recorded."""
        if not isinstance(error, OSError) or not isinstance(error.filename, str | Path):
            return False
        return self.courier.root in Path(error.filename).parents
