"""From the outboxes to MLflow: each record once and in order, whatever fails in between.

A record is applied, then the cursor is moved behind it. Who dies in between leaves a record that is
applied again, which changes nothing: runs and models are found before they are created, and all
else is a value under a key.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any

from seq2sweep.errors import NO_ROOM, UserError
from seq2sweep.runs import journal
from seq2sweep.tracking.mlflow_runs import Point, Run, log_model, register_model
from seq2sweep.tracking.mlflow_store import (
    STORE_ERRORS,
    Experiment,
    RefusedError,
    reason,
    refuses,
    unusable,
)
from seq2sweep.tracking.outbox import (
    FILES,
    Cursor,
    DamagedRecordError,
    Outbox,
    Record,
    begins_a_line,
    outboxes,
)
from seq2sweep.tracking.recorder import CURVES, Recorder

# A store that answers, but fails at one record this often, has refused it.
ATTEMPTS = 3
# Of a curve in one request; MLflow takes 1000 metrics, and a point has at most eight.
POINTS_AT_ONCE = 125

# What an outbox may wait for.
BUSY = "another process delivers it right now"
CHILD = "the run that it belongs to is not in MLflow yet"


class UnavailableError(Exception):
    """The store does not take anything at the moment; the message is one line."""


class ParentMissingError(Exception):
    """The run has a parent that is not in MLflow yet."""


class Relay:
    """Delivers what is in the outboxes of a folder to one experiment of one store."""

    def __init__(self, root: Path, uri: str, experiment: str, artifacts: Path) -> None:
        """As `destination` gives them.

        on_step is called before each of the steps that `steps_left` counts, with the bytes of the
        file that it sends, 0 for what is small. `refused` and `waiting` say why, by the names of
        the outboxes that are left.
        """
        self.root, self.uri, self.experiment, self.artifacts = root, uri, experiment, artifacts
        self.on_step: Callable[[int], None] = lambda size: None
        self.applied = 0
        self.refused: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self._opened: Experiment | None = None
        self._failures: Counter[tuple[str, int]] = Counter()
        self._retried: set[str] = set()

    def deliver(self) -> bool:
        """Deliver all there is; False if `waiting` tells of something to come back for.

        Raises UnavailableError when the store cannot be used.
        """
        self.waiting = {}
        try:
            boxes = outboxes(self.root)
            for _ in range(2):  # what waited for its parent, or another process, may go then
                boxes = [box for box in boxes if not self._deliver(box)]
            return not boxes
        except OSError as error:
            raise UnavailableError(
                f"what is recorded in {self.root} cannot be used ({error})"
            ) from None

    def steps_left(self) -> int:
        """Records and files that are not delivered yet."""
        count = 0
        for box in outboxes(self.root):
            try:
                records = box.records(self.cursor(box).position)
            except (OSError, DamagedRecordError):
                continue  # removed in between; what cannot be read is told when it is delivered
            count += sum(1 + len(record.content.get("files", ())) for record in records)
        return count

    def run_id(self, run: Recorder) -> str | None:
        """The id of a run in this store, if it is known."""
        cursor = self.cursor(Outbox(run.folder))
        return cursor.run_id if cursor.key == run.key else None

    def cursor(self, box: Outbox) -> Cursor:
        """How far the store has an outbox."""
        return Cursor.load(box, self.uri, self.experiment)

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
            if box.folder.exists():  # another user's, say
                self.refused[box.name] = reason(error)
        else:
            self.refused.pop(box.name, None)
        self.waiting.pop(box.name, None)
        return True

    def _deliver_locked(self, box: Outbox) -> None:
        box.end_if_dead()
        cursor = self.cursor(box)
        # Once a process, as what was refused may be mended.
        retry = bool(cursor.refused) and box.name not in self._retried
        records = [
            record
            for record in box.records(0 if retry else cursor.position)
            if record.begin >= cursor.position or str(record.begin) in cursor.refused
        ]
        if records or cursor.journal:
            _Delivery(self, box, cursor).deliver(records)
        self._retried.add(box.name)
        if cursor.refused:
            raise RefusedError(next(iter(cursor.refused.values())))
        self._prune(box, cursor)

    def _prune(self, box: Outbox, cursor: Cursor) -> None:
        """Remove an outbox that has ended, or what one that may be resumed needs no more."""
        with box.without_recorder() as descriptor:
            if descriptor is None or cursor.position != box.size():
                return
            state = box.state()
            if state is not None and state["do"] == "start":
                return  # on another host, where it may live
            if state is None or not box.records()[0].content["goes_on"]:
                box.remove()
            elif cursor.whole != cursor.position:
                cursor.journal, cursor.whole = None, cursor.position
                cursor.save(box)
                rmtree(box.folder / FILES, ignore_errors=True)
                for leftover in box.folder.glob("*.partial"):
                    leftover.unlink(missing_ok=True)

    @contextlib.contextmanager
    def telling_errors(self, box: Outbox, begin: int) -> Iterator[None]:
        """Tell a store that is away (UnavailableError) from one that cannot take a record.

        begin: of the record. An error of a file of what is recorded is raised as it is, and that of
        a record that the store does not take, or failed at ATTEMPTS times, as RefusedError.
        """
        try:
            yield
        except STORE_ERRORS as error:
            file = error.filename if isinstance(error, OSError) else None
            if isinstance(file, str | Path) and self.root in Path(file).parents:
                raise
            if refuses(error):
                raise RefusedError(reason(error)) from None
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise UnavailableError(
                    f"MLflow's files have no room in {self.artifacts} ({error})"
                ) from None
            try:
                experiment = self.open()
                experiment.client.get_experiment(experiment.id)
            except STORE_ERRORS as failure:
                raise UnavailableError(unusable(self.uri, failure)) from None
            self._failures[box.name, begin] += 1
            if self._failures[box.name, begin] >= ATTEMPTS:
                raise RefusedError(reason(error)) from None
            raise UnavailableError(unusable(self.uri, error)) from None


class _Delivery:
    """The delivery of one outbox, while its lock is held."""

    def __init__(self, relay: Relay, box: Outbox, cursor: Cursor) -> None:
        self.relay, self.box, self.cursor = relay, box, cursor
        self.experiment = relay.open()

    def deliver(self, records: Sequence[Record]) -> None:
        """Apply each record and move the cursor; then deliver what is new in the journal."""
        for record in records:
            self.relay.on_step(0)
            try:
                with self.relay.telling_errors(self.box, record.begin):
                    self._apply(record.begin, record.content)
            except RefusedError as error:
                if record.content["do"] == "start":
                    raise  # there is no run for the others
                self.cursor.refused[str(record.begin)] = str(error)
            else:
                self.cursor.refused.pop(str(record.begin), None)
                self.relay.applied += 1
            self.cursor.position = max(self.cursor.position, record.end)
            self.cursor.save(self.box)
        with self.relay.telling_errors(self.box, self.cursor.position):
            self._follow_journal()

    def _apply(self, begin: int, what: Mapping[str, Any]) -> None:
        """What a record does in MLflow; applying it again changes nothing."""
        do = what["do"]
        if do == "start":
            self._start(what)
            return
        run_id = self.cursor.parent_id if what.get("on_parent") else self.cursor.run_id
        if run_id is None:
            return  # the parent was deleted in MLflow
        run = Run(self.experiment, run_id)
        if do == "params":
            run.params(what["values"])
        elif do == "log":
            values = {k: math.nan if v is None else v for k, v in what["metrics"].items()}
            run.log([(what["at"] or what["time"], what["step"], values)])
        elif do == "tag":
            run.tag(what["tags"])
        elif do == "dataset":
            run.dataset(what["name"], what["digest"], what["context"])
        elif do == "artifact":
            (path,) = self._files(what)
            self.relay.on_step(_bytes(path))
            if not (what["only_new"] and run.has_artifact(path.name)):
                run.artifact(path)
        elif do == "model":
            files = self._files(what)
            log_model(run, what, files, lambda path: self.relay.on_step(_bytes(path)))
        elif do == "register":
            register_model(run, what)
        elif do == "curves":
            self.cursor.journal, self.cursor.journal_offset = what["journal"], 0
        elif do == "end":
            self._end(run, begin, what)
        else:
            raise RefusedError(f"{self.box.folder} holds a record {do!r} of another version")

    def _files(self, what: Mapping[str, Any]) -> list[Path]:
        paths = [self.box.folder / name for name in what["files"]]
        for path in paths:
            if not path.exists():
                raise RefusedError(f"{path} is gone")
        return paths

    # --- start and end --------------------------------------------------------------------------

    def _start(self, what: Mapping[str, Any]) -> None:
        parent = self._parent(what["parent"], what["parent_key"]) if what["parent"] else None
        # Finished, and only asked for again: it stays as it is.
        found = None if what["done"] is None else self.experiment.find(what["key"])
        if found is not None and found.info.status == "FINISHED":
            run = Run(self.experiment, found.info.run_id)
        else:
            run = Run.begin(
                self.experiment,
                what["key"],
                what["title"],
                started=what["time"],
                tags=what["tags"],
                parent=parent,
            )
        if run.id != self.cursor.run_id:
            self.cursor.last_steps = {}
        # An end that was refused is the end no more.
        for record in self.box.records():
            if record.content["do"] == "end":
                self.cursor.refused.pop(str(record.begin), None)
        self.cursor.key, self.cursor.run_id, self.cursor.parent_id = what["key"], run.id, parent

    def _parent(self, name: str, key: str | None) -> str | None:
        """The id of the run of this key; where that is not known, of the newest of the name."""
        parent = Outbox(self.box.folder.with_name(name))
        try:
            # Asked first: it is false as soon as MLflow has the run.
            to_come = self.relay.cursor(parent).position < parent.size()
        except FileNotFoundError:
            to_come = False
        found = self.experiment.find(key) if key else None
        if found is not None:
            return str(found.info.run_id)
        if to_come:
            raise ParentMissingError
        return None if key else self.experiment.newest(name)

    def _end(self, run: Run, begin: int, what: Mapping[str, Any]) -> None:
        trouble = None
        try:
            with self.relay.telling_errors(self.box, begin):
                self._follow_journal()
        except RefusedError as error:
            trouble = error
        done = what.get("done")
        if done is None or run.status() != "FINISHED":
            run.end(what["status"], done if done and what["status"] == "FINISHED" else what["time"])
            if "closed" not in what:
                # Another host may have taken it for dead, where locks do not reach.
                run.remove_tags("closed")
            tags = {key: what[key] for key in ("error", "closed") if what.get(key)}
            if tags:
                run.tag(tags)
        self.experiment.delete_duplicates(self.cursor.key, run.id)
        if trouble is not None:
            raise trouble

    # --- curves ---------------------------------------------------------------------------------

    def _follow_journal(self) -> None:
        """Deliver what is new in the journal of a training."""
        if self.cursor.run_id is None or self.cursor.journal is None:
            return
        run, news = Run(self.experiment, self.cursor.run_id), self._news(self.cursor.journal)
        while some := list(itertools.islice(news, POINTS_AT_ONCE)):
            points, last_steps = new_points([entry for entry, _ in some], self.cursor.last_steps)
            run.log(points)
            self.cursor.last_steps, self.cursor.journal_offset = last_steps, some[-1][1]
            self.cursor.save(self.box)

    def _news(self, name: str) -> Iterator[tuple[dict[str, Any], int]]:
        """The entries of a journal that MLflow does not have, and the byte behind each."""
        file, offset = self.box.folder / name, self.cursor.journal_offset
        try:
            # Power that failed may have taken the newest lines, which were in MLflow already.
            yield from journal.follow(file, offset if begins_a_line(file, offset) else 0)
        except FileNotFoundError:
            return
        except (UserError, OSError) as error:
            raise RefusedError(str(error)) from None


def new_points(
    entries: Sequence[Mapping[str, Any]], last: Mapping[str, int]
) -> tuple[list[Point], dict[str, int]]:
    """The points of journal entries that are curves, and the last step of each kind with them.

    last: the last step of each kind that was recorded before. A training that is resumed from an
    older checkpoint repeats steps: those are passed over.
    """
    points: list[Point] = []
    newest = dict(last)
    for entry in entries:
        kind, step = entry["kind"], entry["step"]
        if kind in CURVES and step > newest.get(kind, -1):
            # The journal writes null for what is no number.
            metrics = {
                name: math.nan if entry[name] is None else entry[name]
                for name in CURVES[kind]
                if name in entry
            }
            points.append((entry["time"], step, metrics))
            newest[kind] = step
    return points, newest


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
