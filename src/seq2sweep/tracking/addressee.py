"""Who an outbox is for. Projects may share `cluster.storage`, and so the folder of all outboxes,
but not MLflow. Needs no mlflow."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import first_of_processes, write_whole
from seq2sweep.tracking.outbox import Cursor, DamagedRecordError, Outbox, address_of

MACHINE_ID = Path("/etc/machine-id")


def named(uri: str, file: Path | None) -> str:
    """A store's address without its password, and before that of one on this machine an id: another
    machine may have a store of the same address. Where none can be had, the address alone.

    file: of SQLite. Its id is in `<file>.id`, so that who shares the file has it too. That of a
    server is of the machine; containers mostly have none.
    """
    found = None
    with contextlib.suppress(OSError, ValueError):
        if file is not None:
            found = _id_beside(file)
        elif _is_here(uri) and (machine := MACHINE_ID.read_text(encoding="utf-8").strip()):
            found = hashlib.sha256(f"seq2sweep {machine}".encode()).hexdigest()[:32]
    return f"{found} {redact(uri)}" if found else redact(uri)


def _id_beside(file: Path) -> str | None:
    path = file.with_name(f"{file.name}.id")
    if not path.exists():
        with first_of_processes(path) as beside:
            write_whole(beside, uuid.uuid4().hex)
    found = path.read_text(encoding="utf-8").strip()
    return found if re.fullmatch("[0-9a-f]{32}", found) else None


def _is_here(uri: str) -> bool:
    """Whether each machine has a server or database of its own at this address, for all that it
    says: one without a host may name it elsewhere."""
    host = urlsplit(uri).hostname
    if host is None:
        return False
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


@dataclass(frozen=True)
class Addressee:
    """Who a record is for: an experiment of a store, and the folder of the project that records.

    store: as `named` has it.
    """

    store: str
    experiment: str
    project: str

    @classmethod
    def of(cls, store: str, experiment: str, project: Path) -> Addressee:
        """Of records that go to this store."""
        return cls(store.rstrip("/"), experiment, str(project.resolve()))

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
        another then, or says nothing of that, as of an earlier version.

        A project in this folder whose store has this address, and another id, is on another
        machine."""
        tags, own = start.get("tags"), asdict(self)
        if not isinstance(tags, Mapping):
            return self.place
        store, experiment, project = (str(tags.get(f"process.{key}", own[key])) for key in own)
        here = address_of(self.store)
        if store == here:  # an earlier version noted no id
            store = self.store
        own_folder = project == self.project
        if own_folder and (store == self.store or address_of(store) != here):
            return self.place
        return store, experiment


def of_addressee(to: Addressee | None) -> dict[str, str]:
    """Tags of the start of a run by which `place_of` knows it again; they stay in the outbox."""
    return {f"process.{key}": value for key, value in asdict(to).items()} if to else {}
