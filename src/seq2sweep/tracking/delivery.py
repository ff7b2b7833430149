"""One outbox's records, applied in order to the experiment of a store."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2sweep.errors import NO_ROOM, UserError
from seq2sweep.runs import journal
from seq2sweep.runs.run_store import Status
from seq2sweep.storage.atomic import begins_a_line
from seq2sweep.tracking import sizes
from seq2sweep.tracking.mlflow_runs import Point, Run
from seq2sweep.tracking.mlflow_store import (
    PARENT,
    RefusedError,
    reason,
    refuses,
    store_errors,
    unusable,
)
from seq2sweep.tracking.outbox import Cursor, Outbox, Record
from seq2sweep.tracking.recorder import CURVES, RUN_PAGE

if TYPE_CHECKING:
    from seq2sweep.tracking.relay import Relay

# A store that answers, but fails at one record this often in a row, has refused it. The second try
# follows the first at once.
ATTEMPTS = 4
# Of what another version of this program recorded, with other keys or values.
SHAPE_ERRORS = (AttributeError, KeyError, TypeError, ValueError)
# Of a curve in one request; MLflow takes 1000 metrics, and a point has at most eight.
POINTS_AT_ONCE = 125


class UnavailableError(Exception):
    """The store does not take anything at the moment; the message is one line."""


class FailedRequestError(UnavailableError):
    """A request failed, and the store answered the next."""


class ParentMissingError(Exception):
    """The run has a parent that is not in MLflow yet."""


class Delivery:
    """The delivery of one outbox, while its lock is held."""

    def __init__(self, relay: Relay, box: Outbox, cursor: Cursor) -> None:
        self.relay, self.box, self.cursor = relay, box, cursor
        self.experiment = relay.open()

    def deliver(self, records: Sequence[Record]) -> None:
        """Apply each record and move the cursor; then deliver what is new in the journal."""
        for record in records:
            try:
                with self._telling_errors(f"a record {record.content['do']!r}"):
                    key = self._key_of(record)
                    self._apply(key, self._run_of(record, key), **record.content)
            except RefusedError as error:
                if record.content["do"] == "start":
                    raise  # there is no run for the others
                self.cursor.refused[str(record.begin)] = str(error)
            else:
                self.cursor.refused.pop(str(record.begin), None)
                self.relay.applied += 1
            self.cursor.position = max(self.cursor.position, record.end)
            self.cursor.save(self.box)
        with self._telling_errors():
            self._follow_journal()

    @contextlib.contextmanager
    def _telling_errors(self, what: str = "a journal") -> Iterator[None]:
        """Tell a store that is away (UnavailableError) from one that cannot take a record.

        An error of a file of what is recorded is raised as it is, and that of a record that the
        store does not take, or failed at ATTEMPTS times, as RefusedError; so is one of what has
        another shape than here. what: is delivered, in words.
        """
        # The end of a run is at the place of its journal's last lines.
        relay, place = self.relay, (self.box.name, self.cursor.position, what)
        try:
            yield
        except store_errors() as error:
            file = error.filename if isinstance(error, OSError) else None
            if isinstance(file, str | Path) and relay.root in Path(file).parents:
                raise
            if refuses(error):
                raise RefusedError(reason(error)) from None
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise UnavailableError(
                    f"MLflow's files have no room in {relay.artifacts} ({error})"
                ) from None
            try:
                self.experiment.client.get_experiment(self.experiment.id)
            except store_errors() as failure:
                raise UnavailableError(unusable(relay.uri, failure)) from None
            relay.failures[place] += 1
            if relay.failures[place] >= ATTEMPTS:
                raise RefusedError(reason(error)) from None
            raise FailedRequestError(unusable(relay.uri, error)) from None
        except SHAPE_ERRORS as error:
            raise RefusedError(
                f"{self.box.folder} holds {what} of another version ({reason(error)})"
            ) from None
        else:  # the next one to fail there, after hours of a journal, is another
            relay.failures.pop(place, None)

    def _key_of(self, record: Record) -> str:
        """The key of the run that a record is of: one that was refused may be of an earlier run
        than the last of its outbox."""
        if record.begin < self.cursor.position:
            before = [one.content for one in self.box.records() if one.begin < record.begin]
            if keys := [content["key"] for content in before if content["do"] == "start"]:
                return str(keys[-1])
        return self.cursor.key

    def _run_of(self, record: Record, key: str) -> Run | None:
        """The run that a record is of; None where it is attached to one that this store lacks, or
        ends an earlier run of its outbox that is gone.

        Raises RefusedError for another record of such a run.
        """
        run_id = self.cursor.run_id
        if key != self.cursor.key:
            found = self.experiment.find(key)
            if not found and record.content["do"] != "end":
                raise RefusedError("its run is not in MLflow any more")
            run_id = found[0].info.run_id if found else None
        if run_id is None:
            return None
        again = self.cursor.asked_again
        return Run(self.experiment, run_id, again is not None and record.begin >= again)

    def _apply(
        self,
        key: str,
        run: Run | None,
        /,
        do: str,
        files: list[str] | None = None,
        on_parent: bool = False,
        **arguments: Any,
    ) -> None:
        """What a record of a run does in MLflow; applying it again changes nothing."""
        kept = [self.box.folder / name for name in files or ()]
        self.relay.on_record(sum(itertools.chain.from_iterable(map(sizes, kept))))
        if do in ("start", "attach", "curves"):
            method: Any = getattr(self, f"_{do}")
        elif do == "end":
            method = functools.partial(self._end, key, run)
        elif do in Run.RECORDED:
            if run is None:
                return  # attached to a run that this store does not have
            if on_parent:
                parent = run.stored().data.tags.get(PARENT)
                if parent is None:
                    return  # it was deleted in MLflow
                run = Run(self.experiment, parent)
            method = getattr(run, do)
        else:
            raise ValueError("none that this version knows")
        if run is not None and "markdown" in arguments:
            page = f"#/experiments/{self.experiment.id}/runs/{run.id}"
            arguments["markdown"] = arguments["markdown"].replace(RUN_PAGE, page)
        for path in kept:
            if not path.exists():
                raise RefusedError(f"{path} is missing")
        method(**arguments, **({} if files is None else {"files": kept}))

    # --- start and end --------------------------------------------------------------------------

    def _start(
        self,
        time: float,
        key: str,
        title: str,
        parent: str | None,
        journal: str | None,
        tags: Mapping[str, str],
        parent_id: str | None = None,
    ) -> None:
        above = self._earlier(parent, parent_id) if parent else None
        # Which process it was, outboxes alone ask.
        tags = {key: text for key, text in tags.items() if not key.startswith("process.")}
        known = self.cursor.run_id
        run = Run.begin(
            self.experiment, key, title, started=time, tags=tags, parent=above, run_id=known
        )
        if run.id != known:
            self.cursor.journal_offset, self.cursor.last_steps = 0, {}
            self.cursor.asked_again = None
        if run.asked_again and self.cursor.asked_again is None:
            self.cursor.asked_again = self.cursor.position
        # An end of this run that was refused is the end no more.
        for record in self.box.records() if self.cursor.refused else ():
            if record.content["do"] == "end" and self._key_of(record) == key:
                self.cursor.refused.pop(str(record.begin), None)
        self.cursor.key, self.cursor.run_id, self.cursor.journal = key, run.id, journal

    def _attach(self, time: float, key: str, run_id: str | None = None, **_: Any) -> None:
        """What follows is of an earlier run, if there is one; time: unix seconds."""
        self.cursor.run_id = self._earlier(key, run_id)

    def _earlier(self, key: str, run_id: str | None) -> str | None:
        """The id of the run that was known by one, else of the newest whose key begins like this;
        None where the store does not have it."""
        if run_id is not None:
            return run_id if self.experiment.has(run_id) else None
        box = Outbox(self.box.folder.with_name(key.partition(".")[0]))
        try:
            # Asked first: it is false as soon as MLflow has the run.
            left = self.relay.cursor(box).position < box.path.stat().st_size
            to_come = left and self.relay.to.delivers(box)
        except FileNotFoundError:
            to_come = False
        found = self.experiment.newest(key)
        if found is None and to_come:
            raise ParentMissingError
        return found

    def _end(
        self,
        key: str,
        run: Run | None,
        /,
        time: float,
        status: Status,
        error: str | None,
        curves: bool,
    ) -> None:
        """curves: whether a journal that is there by now is this run's own."""
        if run is None:
            return
        trouble = None
        if key == self.cursor.key:  # else the journal is that of a run which has begun since
            try:
                if curves:
                    with self._telling_errors():
                        self._follow_journal()
                self.cursor.journal = None
            except RefusedError as refused:
                trouble = refused
        run.end(status, time, error)
        self.experiment.delete_duplicates(key, run.id)
        if trouble is not None:
            raise trouble

    # --- curves ---------------------------------------------------------------------------------

    def _curves(self, files: Sequence[Path], until: int | None = None) -> None:
        self.cursor.journal = str(files[0].relative_to(self.box.folder))
        self.cursor.journal_offset = 0
        try:
            self._follow_journal(math.inf if until is None else until)
        finally:
            self.cursor.journal = None

    def _follow_journal(self, until: float = math.inf) -> None:
        """Deliver what is new in the journal of a training, up to a step."""
        if self.cursor.journal is None:
            return
        run = Run(self.experiment, str(self.cursor.run_id))
        news = self._news(self.cursor.journal)
        while some := list(itertools.islice(news, POINTS_AT_ONCE)):
            wanted = [entry for entry, _ in some if entry["step"] <= until]
            points, last_steps = new_points(wanted, self.cursor.last_steps)
            run.points(points)
            self.cursor.last_steps, self.cursor.journal_offset = last_steps, some[-1][1]
            self.cursor.save(self.box)
            self.relay.on_progress()

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


def written_keys(record: Record) -> set[tuple[str, bool, str]]:
    """What a record says anew of its run, or of the run above (True): tags, description and files
    by name, of which MLflow keeps what came last. All else has a time, or stays as it was."""
    what = record.content
    above = bool(what.get("on_parent"))
    with contextlib.suppress(*SHAPE_ERRORS):
        if what["do"] == "tag":
            return {("tag", above, name) for name in what["tags"]}
        if what["do"] == "describe":
            return {("describe", above, "")}
        if what["do"] == "artifact":
            return {("artifact", above, Path(name).name) for name in what["files"]}
    return set()


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
            metrics = {name: entry[key] for key, name in CURVES[kind].items() if key in entry}
            points.append((entry["time"], step, metrics))
            newest[kind] = step
    return points, newest
