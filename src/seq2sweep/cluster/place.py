"""A run's folder as its driver has it: one that all nodes see, or one of its own and a bucket."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from seq2sweep import console
from seq2sweep.cluster.everywhere import on_all_nodes
from seq2sweep.cluster.session import LAST_WORDS_SECONDS
from seq2sweep.cluster.watchdog import keep
from seq2sweep.config import ClusterConfig, Config, is_address
from seq2sweep.errors import NO_ROOM, Failure, UserError
from seq2sweep.runs import dataset_sync, mirror
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_step, is_regular
from seq2sweep.runs.messages import (
    BEGUN,
    STOP,
    USER_ERROR,
    Signals,
    hang_logs,
    read_user_error,
    stop_file,
)
from seq2sweep.runs.remote import RemoteRun
from seq2sweep.runs.status import Standing, end_of, from_storage, look, missing, reached
from seq2sweep.storage.atomic import write_whole
from seq2sweep.storage.lease import Claim
from seq2sweep.storage.locks import only_user
from seq2sweep.storage.object_store import Bucket
from seq2sweep.storage.ticker import Ticker
from seq2sweep.train import checkpointing

CHANGES_NO_RESULT = "where files are kept"

T = TypeVar("T")

FOLLOW_SECONDS = 3.0
"""How often the driver looks for news in a bucket."""


class Place:
    """A folder that all nodes see."""

    last_words = LAST_WORDS_SECONDS
    """How long workers may take to save and leave."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.attempt = folder, ""

    @property
    def address(self) -> str:
        """What workers are told."""
        return str(self.folder)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only driver of this run; UserError when there is another one."""
        with only_user(self.folder):
            yield

    def data(self, folder: Path) -> dict[str, str]:
        """The part of workers' settings that says where encoded data is, which lies in `folder`."""
        return {"encoded": str(folder)}

    def look(self, config: Config, until: int | None = None, *, again: bool = False) -> Standing:
        """Where the run stands, as `standing.look`."""
        return look(config, self.folder, until, again=again)

    def reached(self, before: int | None = None) -> int:
        """The step that training would go on after, as `standing.reached`."""
        return reached(self.folder, before)

    def catch_up(self) -> None:
        """Have all of the journal in the folder."""

    def begin(self, attempt: str) -> None:
        """Before workers start: nothing is there that says that earlier ones hung."""
        self.attempt = attempt
        from_storage(self.folder, self._clear_hang_logs)

    def ask(self) -> bool:
        """Ask the workers to save and end; False where none has begun, or the storage fails."""
        with contextlib.suppress(OSError):
            stop_file(self.folder, self.attempt).touch()
            return self.has_begun()
        return False

    def has_begun(self) -> bool:
        """Whether a worker of this attempt has got to our code; False when the storage fails."""
        with contextlib.suppress(OSError):
            return any(hang_logs(self.folder))
        return False

    def end(self) -> None:
        """After an attempt: leave nothing of it behind."""
        with contextlib.suppress(OSError):
            stop_file(self.folder, self.attempt).unlink()

    def user_error(self) -> str | None:
        """The message of a UserError that a worker of this attempt raised."""
        return from_storage(self.folder, lambda: read_user_error(self.folder, self.attempt))

    def hung(self) -> list[Path]:
        """The logs of workers that have ended themselves; none when the storage fails."""
        with contextlib.suppress(OSError):
            return [path for path in hang_logs(self.folder) if path.stat().st_size > 0]
        return []

    def no_room(self, error: OSError) -> str:
        """What to say of a full disk."""
        free = shutil.disk_usage(self.folder).free / 1e6
        return (
            f"no room left in {self.folder} ({free:.1f} MB free): free some, or set "
            "cluster.storage to another disk"
        )

    def _clear_hang_logs(self) -> None:
        for old in hang_logs(self.folder):
            keep(old)
            old.unlink(missing_ok=True)


class BucketPlace(Place):
    """A run in a bucket; its folder here is where it comes home to when it has ended."""

    last_words = 600.0  # as a checkpoint is to get to the bucket

    def __init__(self, storage: str, folder: Path) -> None:
        super().__init__(folder)
        self.storage = storage.rstrip("/")
        self.remote = RemoteRun(self.address, folder)
        self._claim: Claim | None = None

    @property
    def address(self) -> str:
        return f"{self.storage}/{self.folder.name}"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(only_user(self.folder))
            self._claim = stack.enter_context(self._patiently(self.remote.claim_for_driver))
            stack.enter_context(Ticker(FOLLOW_SECONDS, self.catch_up, "journal"))
            yield

    def data(self, folder: Path) -> dict[str, str]:
        there = self._patiently(lambda: dataset_sync.publish(folder, Bucket(self.storage)))
        return {"encoded": str(folder), "encoded_address": there}

    def look(self, config: Config, until: int | None = None, *, again: bool = False) -> Standing:
        """As `standing.look`; what has ended comes home, and is verified there."""
        if not again:
            home = look(config, self.folder)
            if home.is_done:
                return home
            self._patiently(lambda: self._bring_there(home))
        there = self._patiently(lambda: self._look(config))
        if not there.is_done:
            return there
        self._patiently(lambda: self._bring_home(there))
        return look(config, self.folder)

    def _bring_there(self, home: Standing) -> None:
        """What only this machine has: first steps of another run, or all that came home before."""
        with self.remote.claim_for_writing() as claim:
            if home.reached > self._newest():
                for path in home.checkpoints:  # the newest last, as a kill may come between
                    self.remote.upload(path, claim.check)

    def _look(self, config: Config) -> Standing:
        """By what is listed; nothing is fetched but the journal."""
        with self.remote.claim_for_writing():  # when no worker of an earlier driver does
            self.remote.fetch_journal()
            found = self.remote.checkpoints()
        summary = end_of(self.folder / JOURNAL_NAME)
        return Standing(found, summary, missing(config, found) if summary else None)

    def _bring_home(self, there: Standing) -> None:
        kept = list(filter(is_regular, there.checkpoints))
        if not all(path.exists() for path in kept):
            console.say(f"{len(kept)} checkpoints come home from {self.address}")
        for path in kept:
            try:
                self.remote.download(path)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                raise Failure(
                    f"no room left in {self.folder} for what comes home from {self.address}: make "
                    "some, and run `dvc repro` again"
                ) from None
            except checkpointing.CheckpointError as damage:
                with self.remote.claim_for_writing():
                    self.remote.remove(path.name)
                console.say(f"{damage}; removed")

    def reached(self, before: int | None = None) -> int:
        return self._patiently(lambda: self._newest(before))

    def _newest(self, before: int | None = None) -> int:
        steps = map(checkpoint_step, self.remote.checkpoints())
        return max((step for step in steps if before is None or step < before), default=0)

    def catch_up(self) -> None:
        # The workers, who need the bucket, say so when it fails for long.
        with contextlib.suppress(OSError, UserError):
            self.remote.follow_journal()

    def begin(self, attempt: str) -> None:
        super().begin(attempt)
        if self._claim is not None:
            self._patiently(self._claim.check)
        self.workers = Signals(self.remote.bucket, attempt)

    def ask(self) -> bool:
        with contextlib.suppress(OSError, UserError):
            self.workers.tell(STOP)
            return self.has_begun()
        return False

    def has_begun(self) -> bool:
        with contextlib.suppress(OSError, UserError):
            return self.workers.told(BEGUN) is not None
        return False

    def end(self) -> None:
        with contextlib.suppress(OSError, UserError):
            self.workers.forget()

    def user_error(self) -> str | None:
        return self._patiently(lambda: self.workers.told(USER_ERROR))

    def hung(self) -> list[Path]:
        """Each node is asked: a worker that ends itself can bring its log nowhere."""
        for told in on_all_nodes(mirror.hang_logs_here, self.address, self.attempt):
            for name, text in told.items():
                write_whole(self.folder / name, text)
        return super().hung()

    def no_room(self, error: OSError) -> str:
        return (
            f"no room left in {error.filename or 'the folder for temporary files'}: free some, or "
            "set TMPDIR to another disk on all nodes, before Ray starts there"
        )

    def _patiently(self, work: Callable[[], T]) -> T:
        return from_storage(self.address, work)


def place_of(cluster: ClusterConfig, folder: Path) -> Place:
    """Where a run trains that lies in `folder`, or comes home there."""
    return BucketPlace(cluster.storage, folder) if is_address(cluster.storage) else Place(folder)
