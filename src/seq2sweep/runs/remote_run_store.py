"""A run in an object store: each machine works in a folder of its own.

What is to outlast the machine is uploaded:

<run>/step-00001000/...     as in a folder; its manifest is uploaded last and deleted first, so one
                            that has all its files is whole
<run>/journal.jsonl
<run>/leases/...            who drives it, who writes there (storage.lease)
<run>/attempts/<attempt>/   what driver and workers of one start of the workers tell each other
"""

from __future__ import annotations

import contextlib
import errno
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

from seq2sweep import console
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.runs import dataset_sync, layout
from seq2sweep.runs.journal import JournalCopy
from seq2sweep.runs.layout import JOURNAL_NAME, Retention, is_checkpoint_name, is_regular
from seq2sweep.runs.run_store import OTHER_TMPDIR, RunStatus, RunStore, Sync, whole_checkpoints
from seq2sweep.runs.watchdog import hang_logs_here
from seq2sweep.storage.atomic import remove, sha256, whole_folder, write_whole
from seq2sweep.storage.lease import Lease, LeaseHeldError, LeaseLostError, acquire
from seq2sweep.storage.locks import OLD_WRITER_SECONDS, only_user, only_writer
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.storage.retry import briefly, repeating, with_retries
from seq2sweep.train import checkpointing
from seq2sweep.train.checkpointing import MANIFEST, CheckpointError

CHANGES_NO_RESULT = "where files are kept"

SYNC_SECONDS = 3.0
"""How often driver and first worker exchange the journal."""
ALL_FILES = {*checkpointing.FILES, MANIFEST}
STOP, BEGUN = "stop", "begun"
_WRITER_NAME = "writer.json"
_NOT_COPIED = ("leases/", "attempts/", JOURNAL_NAME, _WRITER_NAME)


class RemoteRunStore(RunStore):
    """A run in an object store, and the folder that one machine has of it."""

    save_seconds = 600.0  # as a checkpoint is to be uploaded
    last_answer_seconds = 30.0
    start_seconds = dataset_sync.TRANSFER_SECONDS
    poll_seconds = SYNC_SECONDS

    def __init__(
        self, address: str, folder: Path, attempt: str = "", retention: Retention | None = None
    ) -> None:
        """address: of the run; folder: of the driver, or of this node."""
        super().__init__(folder, attempt, retention)
        self.location, self.objects = address, ObjectStore(address)
        self.also = f" there, with {_WRITER_NAME}, and in {folder}"
        self.journal = JournalCopy(folder / JOURNAL_NAME, self.objects)

    def child(self, name: str) -> RunStore:
        folder = super().child(name).folder
        return RemoteRunStore(f"{self.location}/{name}", folder, self.attempt)

    def children(self) -> list[str]:
        return self.objects.folders()

    def write(self, name: str, text: str) -> None:
        super().write(name, text)
        self.objects.write(name, text.encode())

    def read(self, name: str) -> str | None:
        content = self.objects.read(name)
        return super().read(name) if content is None else content.decode(errors="replace")

    def delete(self, name: str) -> None:
        super().delete(name)
        self.objects.delete(name)

    # --- for the driver ---------------------------------------------------------------------------

    def refresh(self) -> None:
        self._upload_trial()
        self.journal.fetch()
        for name in {*self.objects.sizes(), layout.FAILURE_NAME}:
            if not is_checkpoint_name(name.partition("/")[0]) and not name.startswith(_NOT_COPIED):
                content = self.objects.read(name)
                if content is not None:
                    # What somebody else has put there may be no text.
                    super().write(name, content.decode(errors="replace"))
                elif name == layout.FAILURE_NAME:  # a worker has removed it
                    super().delete(name)

    def newest_checkpoint(self) -> Path | None:
        return next(filter(is_regular, reversed(self.uploaded())), None)

    def sums(self, name: str) -> dict[str, str]:
        return dict(json.loads(self.objects.read(f"{name}/{MANIFEST}") or b"{}")["sha256"])

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(super().driving())
            lease = self.objects.at("leases/driver")
            try:
                self._lease = with_retries(lambda: stack.enter_context(acquire(lease)))
            except LeaseHeldError as held:
                raise UserError(str(held)) from None
            follow = repeating(SYNC_SECONDS, self.follow_journal, "journal", patient=False)
            stack.enter_context(follow)
            yield

    def publish(self, encoded: Path, data: str | None = None) -> dict[str, str]:
        told = super().publish(encoded, data)
        storage = ObjectStore(self.location.rpartition("/")[0])
        address = self.retried(lambda: dataset_sync.publish(encoded, storage))
        return told | {"encoded_address": address}

    def status(self, *, newest_only: bool = False) -> RunStatus:
        """As of a folder; what has finished is downloaded, and verified here."""
        if not newest_only:
            here = super().status()
            if here.finished and not self._missing(here):
                return here
            self.retried(lambda: self._upload_what_is_here(here))
        there = self.retried(self._status_there)
        if not there.finished:
            return there
        self.retried(lambda: self._download_all(list(filter(is_regular, there.checkpoints))))
        return super().status()

    def _upload_what_is_here(self, here: RunStatus) -> None:
        """What only this machine has: first steps of another run, or all that was downloaded."""
        with self._as_writer() as lease:
            if here.step > self._newest_step():
                self._sign()
                for path in here.checkpoints:  # the newest last, as a kill may come between
                    self._upload(path, lease)

    def _upload_trial(self) -> None:
        """What a trial left here before `cluster.storage` named this object store: first what is
        scored, as a kill may come between, and then the rest stays here."""
        if layout.checkpoints(self.folder) and not self.uploaded():
            with self._as_writer() as lease:
                self._sign()
                newest_first = whole_checkpoints(self.folder)[::-1]
                for path in sorted(newest_first, key=is_regular, reverse=True):
                    self._upload(path, lease)

    def _sign(self) -> str:
        """What any machine has of the run is not the newest any more; a name of who writes it."""
        ours = json.dumps({"writer": uuid.uuid4().hex})
        self.objects.write(_WRITER_NAME, ours.encode())
        return ours

    def _status_there(self) -> RunStatus:
        """By what is listed; nothing is fetched but the journal."""
        with self._as_writer():  # when no worker of an earlier driver writes there
            self.journal.fetch()
            return self._as_status(self.uploaded())

    def _download_all(self, wanted: list[Path]) -> None:
        if not all(path.exists() for path in wanted):
            console.say(f"download of {len(wanted)} checkpoints from {self.location}")
        for path in wanted:
            try:
                self._download(path)
            except CheckpointError as damage:
                with self._as_writer():
                    self._delete_damaged(path, damage)

    def _newest_step(self) -> int:
        return layout.last_step(self.uploaded())

    def follow_journal(self) -> None:
        # Before an attempt the journal here may be another than the one there.
        if not self.attempt:
            return
        # The workers, who need the storage, say so when it fails for long.
        with contextlib.suppress(OSError, UserError):
            self.journal.append_missing()

    def begin_attempt(self, attempt: str) -> None:
        super().begin_attempt(attempt)
        if self._lease is not None:
            self.retried(self._lease.check)

    def end_attempt(self) -> None:
        for name in (STOP, BEGUN):
            briefly(self.objects.delete, self._signal(name))

    def _write_stop(self) -> None:
        self.objects.write(self._signal(STOP), b"")

    def _shows_worker(self) -> bool:
        return self.objects.size(self._signal(BEGUN)) is not None

    def stack_traces(self, ask: Sync) -> list[Path]:
        for logs in ask(hang_logs_here, self.location, self.attempt):
            for name, text in logs.items():
                write_whole(self.folder / name, text)
        return super().stack_traces(ask)

    def disk_full(self, error: OSError) -> str:
        full = error.filename or "the folder for temporary files"
        return f"no space left in {full}{OTHER_TMPDIR}"

    # --- for the workers --------------------------------------------------------------------------

    def data(self, settings: dict[str, str]) -> Path:
        return dataset_sync.fetch(Path(settings["encoded"]), settings["encoded_address"])

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        # Before it waits for an earlier writer, and uploads what that left here: hours, maybe.
        self.objects.write(self._signal(BEGUN), b"")
        with super().writing(), self._as_writer() as self._lease:
            self._agree(self._lease)
            with repeating(SYNC_SECONDS, self._sync, "sync"):
                yield

    def _agree(self, lease: Lease) -> None:
        """Start from what is here if nobody else wrote there since, else from what is there."""
        name = self.folder / _WRITER_NAME
        there = self.objects.read(_WRITER_NAME)
        if there and name.exists() and name.read_bytes() == there:
            self.journal.fetch(or_longer=True)  # if a power failure has cut the one here
            for path in whole_checkpoints(self.folder):
                self._upload(path, lease)
        else:
            for path in layout.checkpoints(self.folder):
                if not self._has_uploaded(path):
                    remove(path)
            self.journal.fetch()
        write_whole(name, self._sign())

    def _sync(self) -> None:
        """What is wrong here is said by who uploads the next checkpoint."""
        with contextlib.suppress(OSError, UserError, LeaseLostError):
            self.journal.keep_up(self._held().check)

    def poll(self) -> None:
        with contextlib.suppress(OSError, UserError):
            self._stop = self._stop or self.objects.size(self._signal(STOP)) is not None

    def resume_point(self) -> Path | None:
        for path in reversed(self.uploaded()):
            try:
                self._download(path)
                return path
            except CheckpointError as damage:
                self._held().check()
                self._delete_damaged(path, damage)
        return None

    def fetch(self, name: str) -> Path:
        path = self.folder / name
        with only_user(self.folder, "fetch.lock", dataset_sync.TRANSFER_SECONDS):
            try:
                self._download(path)
            except CheckpointError as damage:
                # Our own first worker may hold the lease. Without it no other file may go, as of an
                # upload of the same step: whole is what has a manifest, which comes last. At worst
                # a good one counts as not there: its node uploads it again, or it is trained again.
                self.objects.delete(f"{name}/{MANIFEST}")
                raise OperationalError(
                    f"{damage}: run `dvc repro` again to train its last steps again"
                ) from None
        self.clear(but=name)
        return path

    def clear(self, *, kept_only: bool = False, but: str = "") -> None:
        # Nobody writes here where the first worker is on another node. What cannot be removed takes
        # room, and is no reason to fail.
        with contextlib.suppress(OSError, UserError), only_writer(self.folder, wait=False):
            for path in layout.checkpoints(self.folder):
                if path.name != but and (not kept_only or self._has_uploaded(path)):
                    remove(path)

    def keep(self, checkpoint: Path) -> None:
        self._upload(checkpoint, self._held())

    def prune(self, newest: Path) -> None:
        super().prune(newest)
        # Listed once: what comes later may be of another writer, when our lease is lost.
        found = self._uploads()
        uploaded = self._whole(found)
        # Nobody else uploads or removes one while we hold the lease: a kill has left these.
        superfluous = [*(found.keys() - {path.name for path in uploaded})]
        if self.retention is not None:
            losses = self.retention.losses(self.folder, uploaded, self._valid_loss)
            older = self.retention.superfluous(uploaded, losses, newest)
            superfluous += [path.name for path in older]
        for name in superfluous:
            self._held().check()
            self._delete(name)

    def finish(self) -> None:
        self.journal.upload(self._held().check)
        for path in layout.checkpoints(self.folder):
            remove(path)

    def _held(self) -> Lease:
        assert self._lease is not None, "only the first worker does what needs it"
        return self._lease

    def _as_writer(self) -> contextlib.AbstractContextManager[Lease]:
        return acquire(self.objects.at("leases/writer"), OLD_WRITER_SECONDS)

    def _signal(self, name: str) -> str:
        return f"attempts/{self.attempt}/{name}"

    # --- its checkpoints there --------------------------------------------------------------------

    def uploaded(self) -> list[Path]:
        """Checkpoints of which all files are there, oldest first, by their places here."""
        return self._whole(self._uploads())

    def _whole(self, uploads: dict[str, set[str]]) -> list[Path]:
        whole = [name for name, files in uploads.items() if files == ALL_FILES]
        return layout.by_step(self.folder, whole)

    def _uploads(self) -> dict[str, set[str]]:
        """The files of each checkpoint there, whether whole or not, by its name.

        Whatever else lies there, a note or what marks a folder, changes nothing.
        """
        found: dict[str, set[str]] = {}
        for name in self.objects.sizes():
            checkpoint, _, file = name.partition("/")
            if is_checkpoint_name(checkpoint) and file in ALL_FILES:
                found.setdefault(checkpoint, set()).add(file)
        return found

    def _has_uploaded(self, checkpoint: Path) -> bool:
        """Whether it is there with the manifest that it has here."""
        with contextlib.suppress(FileNotFoundError):  # it is not here
            here = (checkpoint / MANIFEST).read_bytes()
            there = self.objects.read(f"{checkpoint.name}/{MANIFEST}")
            return there == here and checkpoint in self.uploaded()
        return False

    def _upload(self, checkpoint: Path, lease: Lease) -> None:
        """Upload a whole one unless it is there; safe to repeat.

        Raises LeaseLostError when this process may not write there any more.
        """
        if self._has_uploaded(checkpoint):
            return
        lease.check()
        self.objects.delete(f"{checkpoint.name}/{MANIFEST}")  # of one that it replaces
        for file in [*checkpointing.FILES, MANIFEST]:
            if file == MANIFEST:  # whoever resumes from it finds all that was written before it
                self.journal.upload(lease.check)
            lease.check()
            self.objects.upload(checkpoint / file, f"{checkpoint.name}/{file}")

    def _download(self, checkpoint: Path) -> None:
        """Have it here and verified; CheckpointError if damaged there, OSError if on its way."""
        if self._has_uploaded(checkpoint):
            with contextlib.suppress(CheckpointError):  # damaged here only
                checkpointing.verify(checkpoint)
                return
        there, wrong = f"{self.location}/{checkpoint.name}", []
        for _ in range(2):
            with contextlib.suppress(CheckpointError), whole_folder(checkpoint) as beside:
                for file in sorted(ALL_FILES):
                    self.objects.download(f"{checkpoint.name}/{file}", beside / file)
                try:
                    checkpointing.verify(beside)
                except CheckpointError:
                    wrong.append([sha256(beside / file) for file in sorted(ALL_FILES)])
                    raise
                return
        if wrong[0] != wrong[1]:
            raise OSError(errno.EIO, "its bytes come differently each time", there)
        raise CheckpointError(f"{there} is truncated or was changed")

    def _delete(self, name: str) -> None:
        """A kill in between leaves what nobody takes for a checkpoint."""
        for file in [MANIFEST, *checkpointing.FILES]:
            self.objects.delete(f"{name}/{file}")

    def _delete_damaged(self, checkpoint: Path, damage: CheckpointError) -> None:
        self._delete(checkpoint.name)
        console.say(f"{damage}; removed")

    def _valid_loss(self, checkpoint: Path) -> float | None:
        """By state.json, which is small."""
        name = f"{checkpoint.name}/state.json"
        content = self.objects.read(name)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no state.json", f"{self.location}/{name}")
        with contextlib.suppress(CheckpointError):
            return checkpointing.parse_state(content, checkpoint)[1].valid_loss
        return None
