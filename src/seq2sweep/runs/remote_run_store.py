"""A run in an object store: each machine works in a folder of its own.

What is to outlast the machine is uploaded:

<run>/step-00001000/...     as in a folder; its manifest is uploaded last and deleted first
<run>/journal.jsonl
<run>/leases/...            who drives it, who writes there (storage.lease)
<run>/attempts/<attempt>/   what driver and workers of one start of the workers tell each other
"""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from seq2sweep import console
from seq2sweep.config import Config, is_address
from seq2sweep.errors import NO_ROOM, OperationalError, UserError
from seq2sweep.runs import dataset_sync, journal
from seq2sweep.runs.layout import (
    JOURNAL_NAME,
    checkpoint_step,
    checkpoints,
    is_checkpoint_name,
    is_regular,
    remove_damaged,
)
from seq2sweep.runs.remote_checkpoints import RemoteCheckpoints
from seq2sweep.runs.retention import superfluous
from seq2sweep.runs.run_store import STOP, RunStore, Sync, say_removed
from seq2sweep.runs.status import RunStatus, read_summary
from seq2sweep.runs.watchdog import hang_logs
from seq2sweep.storage.atomic import write_whole
from seq2sweep.storage.lease import Lease, LeaseHeldError, LeaseLostError, acquire
from seq2sweep.storage.locks import OLD_WRITER_SECONDS, only_user, try_only_writer
from seq2sweep.storage.node_folder import node_folder
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.storage.retry import with_retries
from seq2sweep.storage.ticker import Ticker
from seq2sweep.train import checkpointing

CHANGES_NO_RESULT = "where files are kept"

SYNC_SECONDS = 3.0
"""How often driver and first worker exchange the journal."""
TRANSFER_SECONDS = 3600.0
"""How long data and checkpoint may take to be downloaded."""
_WRITER_NAME = "writer.json"
_BEGUN = "begun"
_OF_DRIVERS = ("leases/", "attempts/")


class RemoteRunStore(RunStore):
    """A run in an object store, and the folder that one machine has of it."""

    save_seconds = 600.0  # as a checkpoint is to be uploaded
    start_seconds = TRANSFER_SECONDS

    def __init__(self, address: str, folder: Path, attempt: str = "") -> None:
        """address: of the run; folder: of the driver, or of this node."""
        super().__init__(folder, attempt)
        self.location, self.objects = address, ObjectStore(address)
        self._lease: Lease | None = None
        self._uploaded = 0
        self._journal_lock = threading.Lock()
        self.checkpoints = RemoteCheckpoints(self.objects, folder)

    def child(self, name: str) -> RunStore:
        folder = super().child(name).folder
        return RemoteRunStore(f"{self.location}/{name}", folder, self.attempt)

    def write(self, name: str, text: str) -> None:
        super().write(name, text)
        self.objects.write(name, text.encode())

    def delete(self, name: str) -> None:
        super().delete(name)
        self.objects.delete(name)

    # --- for the driver ---------------------------------------------------------------------------

    def refresh(self) -> None:
        self._fetch_journal()
        for name in self.objects.sizes():
            kept = is_checkpoint_name(name.partition("/")[0]) or name.startswith(_OF_DRIVERS)
            if not kept and name not in (JOURNAL_NAME, _WRITER_NAME):
                content = self.objects.read(name)
                if content is not None:
                    super().write(name, content.decode())

    def newest_checkpoint(self) -> Path | None:
        return next(filter(is_regular, reversed(self.checkpoints.listed())), None)

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(super().driving())
            try:
                lease = with_retries(lambda: acquire(self.objects.at("leases/driver")))
            except LeaseHeldError as held:
                raise UserError(str(held)) from None
            self._lease = stack.enter_context(lease)
            stack.enter_context(Ticker(SYNC_SECONDS, self.follow_journal, "journal"))
            yield

    def publish(self, encoded: Path) -> dict[str, str]:
        storage = ObjectStore(self.location.rpartition("/")[0])
        address = self.retried(lambda: dataset_sync.publish(encoded, storage))
        return super().publish(encoded) | {"encoded_address": address}

    def status(self, config: Config, *, newest_only: bool = False) -> RunStatus:
        """As of a folder; what has finished is downloaded, and verified here."""
        if not newest_only:
            here = super().status(config)
            if here.finished:
                return here
            self.retried(lambda: self._upload_what_is_here(here))
        there = self.retried(lambda: self._status_there(config))
        if not there.finished:
            return there
        self.retried(lambda: self._download_all(there))
        return super().status(config)

    def _upload_what_is_here(self, here: RunStatus) -> None:
        """What only this machine has: first steps of another run, or all that was downloaded."""
        with self._writer_lease() as lease:
            if here.step > self._newest_step():
                for path in here.checkpoints:  # the newest last, as a kill may come between
                    self._upload(path, lease.check)

    def _status_there(self, config: Config) -> RunStatus:
        """By what is listed; nothing is fetched but the journal."""
        with self._writer_lease():  # when no worker of an earlier driver writes there
            self._fetch_journal()
            listed = self.checkpoints.listed()
            return RunStatus(listed, read_summary(self.folder), config.train.steps)

    def _download_all(self, there: RunStatus) -> None:
        kept = list(filter(is_regular, there.checkpoints))
        if not all(path.exists() for path in kept):
            console.say(f"download of {len(kept)} checkpoints from {self.location}")
        for path in kept:
            try:
                self.checkpoints.download(path)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                raise OperationalError(
                    f"no space left in {self.folder} for the checkpoints of {self.location}: free "
                    "some, and run `dvc repro` again"
                ) from None
            except checkpointing.CheckpointError as damage:
                with self._writer_lease():
                    self.checkpoints.remove(path.name)
                say_removed(str(damage))

    def step(self) -> int:
        return self.retried(self._newest_step)

    def _newest_step(self) -> int:
        return max(map(checkpoint_step, self.checkpoints.listed()), default=0)

    def begin_attempt(self, attempt: str) -> None:
        super().begin_attempt(attempt)
        if self._lease is not None:
            self.retried(self._lease.check)

    def end_attempt(self) -> None:
        with contextlib.suppress(OSError, UserError):
            for name in self._signals.sizes():
                self._signals.delete(name)

    def request_stop(self) -> bool:
        with contextlib.suppress(OSError, UserError):
            self._signals.write(STOP, b"")
            return self.has_begun()
        return False

    def has_begun(self) -> bool:
        with contextlib.suppress(OSError, UserError):
            return self._signals.size(_BEGUN) is not None
        return False

    def stack_traces(self, ask: Sync) -> list[Path]:
        for told in ask(hang_logs_here, self.location, self.attempt):
            for name, text in told.items():
                write_whole(self.folder / name, text)
        return super().stack_traces(ask)

    def disk_full(self, error: OSError) -> str:
        return (
            f"no space left in {error.filename or 'the folder for temporary files'}: free some, or "
            "set TMPDIR to another disk on all nodes, before Ray starts there"
        )

    # --- for the workers --------------------------------------------------------------------------

    def data(self, settings: dict[str, str]) -> Path:
        return dataset_sync.fetch(Path(settings["encoded"]), settings["encoded_address"])

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(super().writing())
            self._lease = stack.enter_context(self._writer_lease())
            self._agree()
            self._signals.write(_BEGUN, b"")
            stack.enter_context(Ticker(SYNC_SECONDS, self._sync, "sync"))
            yield

    def _agree(self) -> None:
        """Start from what is here if nobody else wrote there since, else from what is there."""
        name = self.folder / _WRITER_NAME
        there = self.objects.read(_WRITER_NAME)
        if there and name.exists() and name.read_bytes() == there:
            self._append_journal()  # if a power failure has cut the one here
            for path in remove_damaged(self.folder, say_removed):
                self._upload(path, self._check)
        else:
            for path in checkpoints(self.folder):
                if not self.checkpoints.has(path):
                    shutil.rmtree(path)
            self._fetch_journal()
        ours = json.dumps({"writer": uuid.uuid4().hex}).encode()
        name.write_bytes(ours)
        self.objects.write(_WRITER_NAME, ours)

    def _sync(self) -> None:
        """What is wrong here is said by who uploads the next checkpoint."""
        with contextlib.suppress(OSError, UserError, LeaseLostError):
            self._upload_journal(self._check)
        self.poll()

    def stop_requested(self) -> bool:
        return self._stop  # a thread polls, as the store may be slow to answer

    def poll(self) -> None:
        with contextlib.suppress(OSError, UserError):
            self._stop = self._stop or self._signals.size(STOP) is not None

    @contextlib.contextmanager
    def polling(self) -> Iterator[None]:
        with Ticker(SYNC_SECONDS, self.poll, "stop"):
            yield

    def resume_point(self) -> Path | None:
        for path in reversed(self.checkpoints.listed()):
            try:
                self.checkpoints.download(path)
                return path
            except checkpointing.CheckpointError as damage:
                say_removed(str(damage))
                self._check()
                self.checkpoints.remove(path.name)
        return None

    def fetch(self, name: str) -> Path:
        with only_user(self.folder, "fetch.lock", TRANSFER_SECONDS):
            self.checkpoints.download(self.folder / name)
        with try_only_writer(self.folder) as nobody_writes_here:
            if nobody_writes_here:  # as the first worker is on another node
                for path in checkpoints(self.folder):
                    if path.name != name:
                        shutil.rmtree(path)
        return self.folder / name

    def keep(self, checkpoint: Path) -> None:
        self._upload(checkpoint, self._check)

    def prune(self, config: Config, newest: Path) -> None:
        super().prune(config, newest)
        self._check()
        there, named = self.checkpoints, config.evaluate.checkpoint_steps
        for path in superfluous(there.listed(), there.loss, config.train, named, newest):
            there.remove(path.name)
        for name in there.torn():  # nobody uploads or removes one while we hold the lease
            there.remove(name)

    def finish(self) -> None:
        self._upload_journal(self._check)
        for path in checkpoints(self.folder):
            shutil.rmtree(path)

    def _check(self) -> None:
        assert self._lease is not None  # only the first worker does what needs it
        self._lease.check()

    # --- objects ----------------------------------------------------------------------------------

    @property
    def _signals(self) -> ObjectStore:
        return self.objects.at(f"attempts/{self.attempt}")

    def _writer_lease(self) -> Lease:
        return acquire(self.objects.at("leases/writer"), OLD_WRITER_SECONDS)

    def _upload(self, checkpoint: Path, check: Callable[[], None]) -> None:
        # Whoever resumes from it finds all that was written of the steps before.
        self.checkpoints.upload(checkpoint, check, lambda: self._upload_journal(check))

    def _upload_journal(self, check: Callable[[], None]) -> None:
        """Upload what the journal here has in whole lines; never less than is there.

        Raises OSError where the one here was removed: the workers restart with the one there.
        """
        with self._journal_lock:  # so that none is replaced by an older one
            path = self.folder / JOURNAL_NAME
            if journal.end(path) != self._uploaded:
                content = journal.whole_lines(path)
                if len(content) < self._uploaded:  # whoever cleans temporary files was here
                    raise FileNotFoundError(errno.ENOENT, "it was removed or cut", str(path))
                check()
                self.objects.write(JOURNAL_NAME, content)
                self._uploaded = len(content)

    def follow_journal(self) -> None:
        # The workers, who need the storage, say so when it fails for long.
        with contextlib.suppress(OSError, UserError):
            self._append_journal()

    def _append_journal(self) -> None:
        """Append to the journal here what the one there has more."""
        with self._journal_lock:
            path = self.folder / JOURNAL_NAME
            here = journal.end(path)
            if (self.objects.size(JOURNAL_NAME) or 0) > here:
                news = self.objects.read(JOURNAL_NAME, here) or b""
                with path.open("ab") as stream:
                    stream.truncate(here)
                    stream.write(news[: news.rfind(b"\n") + 1])

    def _fetch_journal(self) -> None:
        """Replace the journal here by the one there, if that is another."""
        with self._journal_lock:
            path = self.folder / JOURNAL_NAME
            there = self.objects.read(JOURNAL_NAME) or b""
            if journal.whole_lines(path) != there:
                write_whole(path, there.decode())
            self._uploaded = len(there)


def driver_store(storage: str, folder: Path) -> RunStore:
    """A driver's, of the run in `folder`, or of that name in an object store.

    storage: `cluster.storage`.
    """
    if is_address(storage):
        return RemoteRunStore(f"{storage.rstrip('/')}/{folder.name}", folder)
    return RunStore(folder)


def worker_store(location: str, attempt: str) -> RunStore:
    """A worker's, of the run that its driver calls by this location."""
    if not is_address(location):
        return RunStore(Path(location), attempt)
    store = RemoteRunStore(location, node_folder(location), attempt)
    store.logs = _logs(store.folder, attempt)
    for old in set(store.folder.glob(_logs(store.folder, "*").name)) - {store.logs}:
        shutil.rmtree(old, ignore_errors=True)
    store.logs.mkdir(exist_ok=True)
    return store


def hang_logs_here(address: str, attempt: str) -> dict[str, str]:
    """Names and contents of the logs of workers of this node that have ended themselves."""
    host = socket.gethostname()
    logs = hang_logs(_logs(node_folder(address), attempt))
    found = {f"{log.stem}.{host}.log": log.read_text(encoding="utf-8") for log in logs}
    return {name: text for name, text in found.items() if text}


def _logs(folder: Path, attempt: str) -> Path:
    return folder / f"logs-{attempt}"
