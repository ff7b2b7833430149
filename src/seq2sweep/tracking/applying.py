"""What each kind of record does in MLflow. Applying one again changes nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seq2sweep.errors import UserError
from seq2sweep.runs import journal
from seq2sweep.tracking.address import reason
from seq2sweep.tracking.curves import new_points
from seq2sweep.tracking.delivered import Delivered
from seq2sweep.tracking.models import log_model
from seq2sweep.tracking.outbox import Outbox, begins_a_line
from seq2sweep.tracking.registry import NoModel, register_model
from seq2sweep.tracking.runs import Run, Tracker
from seq2sweep.tracking.store import STORE_ERRORS, refuses

# Points of a curve that are sent before the place is noted.
POINTS_AT_ONCE = 500


class Refused(Exception):  # noqa: N818 - what the record is
    """A record cannot be delivered as it is; the message says why."""


class Waits(Exception):  # noqa: N818 - what the run does
    """The run has a parent that is not in MLflow yet."""


class Applier:
    """Applies the records of one outbox, and changes `delivered` as they say."""

    def __init__(
        self,
        tracker: Tracker,
        box: Outbox,
        delivered: Delivered,
        on_step: Callable[[int], None],
    ) -> None:
        """on_step: called before each file with its bytes."""
        self.tracker, self.box, self.delivered, self.on_step = tracker, box, delivered, on_step

    def apply(self, what: Mapping[str, Any]) -> None:
        """Apply a record's content. Raises Refused, Waits, or what the store raises."""
        do = what["do"]
        if do == "start":
            self._start(what)
            return
        run_id = self.delivered.parent_id if what.get("on_parent") else self.delivered.run_id
        if run_id is None:
            return  # the parent was deleted in MLflow
        run = self.tracker.run(run_id)
        if do == "params":
            run.params(what["values"], only_new=what["only_new"])
        elif do == "log":
            values = {k: math.nan if v is None else v for k, v in what["metrics"].items()}
            run.log_many([(what["at"] or what["time"], what["step"], values)])
        elif do == "tag":
            run.tag(what["tags"])
        elif do == "dataset":
            run.dataset(what["name"], what["digest"], what["context"])
        elif do == "artifact":
            (path,) = self._files(what)
            self.on_step(_bytes(path))
            if not (what.get("only_new") and run.has_artifact(path.name, what["folder"])):
                run.artifact(path, what["folder"])
        elif do == "model":
            self._model(run, what)
        elif do == "register":
            self._register(run, what)
        elif do == "curves":
            self.delivered.journal, self.delivered.journal_offset = what["journal"], 0
        elif do == "end":
            self._end(run, what)
        else:
            raise Refused(f"{self.box.folder} holds a record {do!r} of another version")

    def _start(self, what: Mapping[str, Any]) -> None:
        parent_id = self._parent(what["parent"], what.get("parent_key")) if what["parent"] else None
        run = self._finished(what)
        if run is None:
            run = self.tracker.begin(
                what["key"],
                what["title"],
                started=what["time"],
                tags=what["tags"],
                parent=parent_id,
            )
        if run.id != self.delivered.run_id:
            self.delivered.last_steps = {}
        # An end that was refused is the end no more.
        for record in self.box.records():
            if record.content["do"] == "end":
                self.delivered.refused.pop(str(record.begin), None)
        self.delivered.key, self.delivered.run_id = what["key"], run.id
        self.delivered.parent_id = parent_id

    def _finished(self, what: Mapping[str, Any]) -> Run | None:
        """The run as MLflow has it, if it is finished and was only asked for again."""
        if what.get("done") is None:
            return None
        found = self.tracker.find(what["key"])
        if found is None or found.info.status != "FINISHED":
            return None
        return self.tracker.run(found.info.run_id)

    def _parent(self, name: str, key: str | None) -> str | None:
        """The id of the run of this key; where that is not known, of the newest of the name."""
        # Asked first: it is gone as soon as MLflow has the run.
        to_come = self._is_to_come(name, key)
        found = self.tracker.find(key) if key else None
        if found is not None:
            return str(found.info.run_id)
        if to_come:
            raise Waits
        return None if key else self.tracker.newest(name)

    def _is_to_come(self, name: str, key: str | None) -> bool:
        parent = Outbox(self.box.folder.with_name(name))
        try:
            there = Delivered.of(parent, self.delivered.store, self.delivered.experiment)
            known = there.run_id is not None and key in (None, there.key)
            return not known and there.position < parent.size()
        except FileNotFoundError:
            return False

    def _model(self, run: Run, what: Mapping[str, Any]) -> None:
        log_model(
            run,
            name=what["name"],
            files=self._files(what),
            params=what["params"],
            metrics=what["metrics"],
            time=what["time"],
            dataset_name=what["dataset_name"],
            dataset_digest=what["dataset_digest"],
            step=what["step"],
            tags=what["tags"],
            on_file=lambda path: self.on_step(_bytes(path)),
        )

    def _register(self, run: Run, what: Mapping[str, Any]) -> None:
        try:
            register_model(
                run,
                model=what["model"],
                name=what["name"],
                alias=what["alias"],
                time=what["time"],
                tags=what["tags"],
            )
        except NoModel as error:
            raise Refused(str(error)) from None

    def _end(self, run: Run, what: Mapping[str, Any]) -> None:
        trouble = None
        try:
            self.follow()
        except Refused as error:
            trouble = error
        except STORE_ERRORS as error:
            if not refuses(error):
                raise
            trouble = Refused(reason(error))
        done = what.get("done")
        if done is None or run.status() != "FINISHED":
            run.end(what["status"], done if done and what["status"] == "FINISHED" else what["time"])
            if "closed" not in what:
                # Another host may have taken it for dead, where locks do not reach.
                run.remove_tags("closed")
            tags = {key: what[key] for key in ("error", "closed") if what.get(key)}
            if tags:
                run.tag(tags)
        self.tracker.remove_twins(self.delivered.key, run.id)
        if trouble is not None:
            raise trouble

    def follow(self) -> None:
        """Bring what is new in the journal of a training."""
        run_id, path = self.delivered.run_id, self.delivered.journal
        if run_id is None or path is None:
            return
        run = self.tracker.run(run_id)
        file, offset = self.box.folder / path, self.delivered.journal_offset
        try:
            # Power that failed may have taken the newest lines, which were in MLflow already.
            news = journal.follow(file, offset if begins_a_line(file, offset) else 0)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Refused(str(error)) from None
        while some := _next(news):
            points, last_steps = new_points([entry for entry, _ in some], self.delivered.last_steps)
            run.log_many(points)
            self.delivered.last_steps, self.delivered.journal_offset = last_steps, some[-1][1]
            self.delivered.save(self.box)

    def _files(self, what: Mapping[str, Any]) -> list[Path]:
        paths = [self.box.folder / name for name in what["files"]]
        for path in paths:
            if not path.exists():
                raise Refused(f"{path} is gone")
        return paths


def _next(news: Iterator[tuple[dict[str, Any], int]]) -> list[tuple[dict[str, Any], int]]:
    """The next entries of a journal, as many as are sent at once."""
    try:
        return list(itertools.islice(news, POINTS_AT_ONCE))
    except (UserError, OSError) as error:
        raise Refused(str(error)) from None


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
