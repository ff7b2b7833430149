"""The store of a run, by where it is kept: a folder that all nodes see, or an object store."""

from __future__ import annotations

from pathlib import Path

from seq2sweep.config import is_address
from seq2sweep.runs.layout import Retention
from seq2sweep.runs.remote_run_store import RemoteRunStore
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.watchdog import node_logs
from seq2sweep.storage.object_store import node_folder

CHANGES_NO_RESULT = "where files are kept"


def driver_store(storage: str, folder: Path, retention: Retention | None = None) -> RunStore:
    """A driver's, of the run in `folder`, or of that name in an object store.

    storage: `cluster.storage`; retention: of a run that is trained.
    """
    if is_address(storage):
        address = f"{storage.rstrip('/')}/{folder.name}"
        return RemoteRunStore(address, folder, retention=retention)
    return RunStore(folder, retention=retention)


def worker_store(location: str, attempt: str, retention: Retention | None = None) -> RunStore:
    """A worker's, of the run that its driver calls by this location."""
    if not is_address(location):
        return RunStore(Path(location), attempt, retention)
    store = RemoteRunStore(location, node_folder(location), attempt, retention)
    store.logs = node_logs(store.folder, attempt)
    return store
