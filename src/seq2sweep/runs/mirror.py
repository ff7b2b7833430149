"""A run's folder as its workers have it: one that all nodes see, or one of their own and a bucket.

All that trains works in a folder. With a bucket, each node has its own, and what must outlast the
node is brought to the bucket as soon as it is whole, and from there to a node that lacks it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2sweep import console
from seq2sweep.config import Config, is_address
from seq2sweep.errors import UserError
from seq2sweep.runs import dataset_sync
from seq2sweep.runs.layout import checkpoint_step, checkpoints, remove_damaged, resume_point
from seq2sweep.runs.messages import (
    BEGUN,
    STOP,
    USER_ERROR,
    Signals,
    hang_logs,
    read_user_error,
    stop_file,
    write_user_error,
)
from seq2sweep.runs.remote import RemoteRun
from seq2sweep.storage.lease import Claim, ClaimLost
from seq2sweep.storage.locks import only_user, only_writer, try_only_writer
from seq2sweep.storage.node_folder import node_folder
from seq2sweep.storage.ticker import Ticker
from seq2sweep.train import checkpointing

CHANGES_NO_RESULT = "where files are kept"

TICK_SECONDS = 3.0
"""How often the first worker brings the journal to the bucket and looks whether it is to stop."""
FETCH_SECONDS = 3600.0
"""How long data and checkpoint may take to come from a bucket."""
_WRITER_NAME = "writer.json"


class SharedFolder:
    """A folder that all nodes see: nothing is to be brought anywhere."""

    start_seconds = 0.0
    """What this adds to the time until a worker knows where to begin."""

    def __init__(self, folder: Path, attempt: str) -> None:
        self.folder, self.attempt = folder, attempt
        self.logs = folder

    def data(self, settings: dict[str, Any]) -> Path:
        """The folder of encoded data on this node."""
        return Path(settings["encoded"])

    def user_error(self) -> str | None:
        """What a worker of this attempt has left by `tell_user_error`."""
        return read_user_error(self.folder, self.attempt)

    def tell_user_error(self, message: str) -> None:
        """Leave word of what the user must mend."""
        write_user_error(self.folder, self.attempt, message)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only one to write the run's checkpoints and journal; raises as `only_writer`."""
        with only_writer(self.folder):
            yield

    def resume_point(self, lost: int | None) -> Path | None:
        """The checkpoint that all workers go on from, for the first one; lost: as of `Standing`."""
        return resume_point(self.folder, lost)

    def fetch(self, name: str) -> None:
        """Have the checkpoint of this name in this node's folder."""

    def keep(self, checkpoint: Path) -> None:
        """A checkpoint was written: have it outlast this node. Safe to repeat."""

    def prune(self, config: Config, newest: Path) -> None:
        """Checkpoints were removed here by `retention.prune`: do so elsewhere. Safe to repeat."""

    def finish(self) -> None:
        """The journal has the end of the run, and all checkpoints are kept. Safe to repeat."""


class Mirror(SharedFolder):
    """This node's own folder of a run that lies in a bucket."""

    start_seconds = FETCH_SECONDS

    def __init__(self, address: str, attempt: str) -> None:
        """address: of the run, `<cluster.storage>/<run>`."""
        folder = node_folder(address)
        super().__init__(folder, attempt)
        self.remote = RemoteRun(address, folder)
        self.driver = Signals(self.remote.bucket, attempt)
        self.logs = _logs(folder, attempt)
        for old in set(folder.glob(_logs(folder, "*").name)) - {self.logs}:
            shutil.rmtree(old, ignore_errors=True)
        self.logs.mkdir(exist_ok=True)
        self._claim: Claim | None = None

    def data(self, settings: dict[str, Any]) -> Path:
        return dataset_sync.fetch(Path(settings["encoded"]), settings["encoded_address"])

    def user_error(self) -> str | None:
        return self.driver.told(USER_ERROR)

    def tell_user_error(self, message: str) -> None:
        self.driver.tell(USER_ERROR, message)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(only_writer(self.folder))
            self._claim = stack.enter_context(self.remote.claim_for_writing())
            self._begin()
            self.driver.tell(BEGUN)
            stack.callback(stop_file(self.folder, self.attempt).unlink, missing_ok=True)
            stack.enter_context(Ticker(TICK_SECONDS, self._tick, "mirror"))
            yield

    def _begin(self) -> None:
        """Agree with the bucket: by what is here if nobody else wrote there since, else by that."""
        name = self.folder / _WRITER_NAME
        there = self.remote.bucket.read(_WRITER_NAME)
        if there and name.exists() and name.read_bytes() == there:
            self.remote.follow_journal()  # if a power failure has cut the one here
            for path in remove_damaged(self.folder, _say_removed):
                self.remote.upload(path, self._check)
        else:
            for path in checkpoints(self.folder):
                if not self.remote.has(path):
                    shutil.rmtree(path)
            self.remote.fetch_journal()
        ours = json.dumps({"writer": uuid.uuid4().hex}).encode()
        name.write_bytes(ours)
        self.remote.bucket.write(_WRITER_NAME, ours)

    def resume_point(self, lost: int | None) -> Path | None:
        for path in reversed(self.remote.checkpoints()):
            if lost is not None and checkpoint_step(path) >= lost:
                continue
            try:
                self.remote.download(path)
                return path
            except checkpointing.CheckpointError as damage:
                _say_removed(str(damage))
                self._check()
                self.remote.remove(path.name)
        return None

    def fetch(self, name: str) -> None:
        with only_user(self.folder, "fetch.lock", FETCH_SECONDS):
            self.remote.download(self.folder / name)
        with try_only_writer(self.folder) as nobody_writes_here:
            if nobody_writes_here:  # as the first worker is on another node
                for path in checkpoints(self.folder):
                    if path.name != name:
                        shutil.rmtree(path)

    def keep(self, checkpoint: Path) -> None:
        self.remote.upload(checkpoint, self._check)

    def prune(self, config: Config, newest: Path) -> None:
        self._check()
        self.remote.prune(config.train, config.evaluate.checkpoint_steps, newest)

    def finish(self) -> None:
        self.remote.upload_journal(self._check)
        for path in checkpoints(self.folder):
            shutil.rmtree(path)

    def _check(self) -> None:
        assert self._claim is not None  # only the first worker does what needs it
        self._claim.check()

    def _tick(self) -> None:
        """What is wrong here is said by who brings the next checkpoint."""
        with contextlib.suppress(OSError, UserError, ClaimLost):
            self.remote.upload_journal(self._check)
        with contextlib.suppress(OSError, UserError):
            if self.driver.told(STOP) is not None:
                stop_file(self.folder, self.attempt).touch()


def of(settings: dict[str, Any]) -> SharedFolder:
    """What `folder` in a worker's settings stands for, on this node."""
    place, attempt = settings["folder"], settings["attempt"]
    return Mirror(place, attempt) if is_address(place) else SharedFolder(Path(place), attempt)


def hang_logs_here(address: str, attempt: str) -> dict[str, str]:
    """Names and contents of the logs of workers of this node that have ended themselves."""
    host = socket.gethostname()
    logs = hang_logs(_logs(node_folder(address), attempt))
    found = {f"{log.stem}.{host}.log": log.read_text(encoding="utf-8") for log in logs}
    return {name: text for name, text in found.items() if text}


def _logs(folder: Path, attempt: str) -> Path:
    return folder / f"logs-{attempt}"


def _say_removed(damage: str) -> None:
    console.say(f"{damage}; removed")
