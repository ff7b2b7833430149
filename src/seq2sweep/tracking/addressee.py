"""Who an outbox is for. Projects may share `cluster.storage`, and so the folder of all outboxes,
but not MLflow. Needs no mlflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seq2sweep.redaction import redact
from seq2sweep.tracking.outbox import Cursor, DamagedRecordError, Outbox


@dataclass(frozen=True)
class Addressee:
    """Who a record is for: an experiment of a store, and the folder of the project that records.

    store: its address.
    """

    store: str
    experiment: str
    project: str

    @classmethod
    def of(cls, uri: str, experiment: str, project: Path) -> Addressee:
        """Of records that go to this address, whose password stays out."""
        return cls(redact(uri).rstrip("/"), experiment, str(project.resolve()))

    @property
    def place(self) -> tuple[str, str]:
        """The store and the experiment."""
        return self.store, self.experiment

    def delivers(self, box: Outbox) -> bool:
        """Whether an outbox has runs for this place that may not be delivered yet."""
        return self.place in self.awaiting(box)

    def awaiting(self, box: Outbox) -> set[tuple[str, str]]:
        """The places that an outbox is for, but for the runs that all have which asked for them: a
        training that several projects asked for goes to the place of each, as a whole. In the
        folder of the project, which may have been moved, all are its own."""
        if box.folder.is_relative_to(self.project):
            return {self.place}
        try:
            whole = Cursor.load(box, *self.place).whole
            records = [record.content for record in box.records(whole)]
        except (OSError, DamagedRecordError):
            return {self.place}  # who delivers it says what is wrong
        if whole and not records:
            return set()
        starts = [content for content in records if content["do"] in ("start", "attach")]
        return {self.place_of(start) for start in starts} or {self.place}

    def place_of(self, start: Mapping[str, Any]) -> tuple[str, str]:
        """The place that a start is for: this one if it is of this project, which may have had
        another then, or says nothing of that, as of an earlier version."""
        tags, own = start.get("tags"), asdict(self)
        if not isinstance(tags, Mapping):
            return self.place
        store, experiment, project = (str(tags.get(f"process.{key}", own[key])) for key in own)
        return self.place if project == self.project else (store, experiment)


def of_addressee(to: Addressee | None) -> dict[str, str]:
    """Tags of the start of a run by which `place_of` knows it again; they stay in the outbox."""
    return {f"process.{key}": value for key, value in asdict(to).items()} if to else {}
