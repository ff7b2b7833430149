"""A run as it lies in a bucket.

<run>/step-00001000/...     as in a folder; the manifest is the last to come, the first to go
<run>/journal.jsonl
<run>/claims/...            who works in it (claims.py)
<run>/attempts/<attempt>/   what they tell each other (messages.py)
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from seq2sweep.config import TrainConfig
from seq2sweep.errors import UserError
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_step, is_checkpoint_name
from seq2sweep.runs.retention import superfluous, valid_loss
from seq2sweep.storage.atomic import write_whole
from seq2sweep.storage.lease import Claim, Held, take
from seq2sweep.storage.locks import OLD_WRITER_SECONDS
from seq2sweep.storage.object_store import Bucket
from seq2sweep.train import checkpointing

CHANGES_NO_RESULT = "where files are kept"

MANIFEST = "manifest.json"
ALL_FILES = {*checkpointing.FILES, MANIFEST}


class RemoteRun:
    """A run below an address; its folder on this machine is `local`."""

    def __init__(self, address: str, local: Path) -> None:
        self.bucket, self.local = Bucket(address), local
        self._uploaded = 0
        self._journal_lock = threading.Lock()
        self._losses: dict[str, float | None] = {}

    def claim_for_driver(self) -> Claim:
        """Be the only one to drive the run; UserError when another process does."""
        try:
            return take(self.bucket.at("claims/driver"))
        except Held as holder:
            raise UserError(
                f"{holder} is working in {self.bucket.address}: wait for its end, or end it"
            ) from None

    def claim_for_writing(self) -> Claim:
        """What `storage.only_writer` is for a folder: TimeoutError when another one stays."""
        try:
            return take(self.bucket.at("claims/writer"), OLD_WRITER_SECONDS)
        except Held as holder:
            raise TimeoutError(
                f"{holder} is writing in {self.bucket.address}: wait for its end, or end it"
            ) from None

    # --- checkpoints -----------------------------------------------------------------------------

    def checkpoints(self) -> list[Path]:
        """Those of which all files are there, oldest first, by their places on this machine."""
        found = self._files()
        whole = [self.local / name for name, files in found.items() if files == ALL_FILES]
        return sorted(whole, key=lambda path: (checkpoint_step(path), path.name))

    def _files(self) -> dict[str, set[str]]:
        """The files of each checkpoint, whether whole or not, by its name."""
        found: dict[str, set[str]] = {}
        for name in self.bucket.sizes():
            checkpoint, _, file = name.partition("/")
            if is_checkpoint_name(checkpoint):
                found.setdefault(checkpoint, set()).add(file)
        return found

    def has(self, checkpoint: Path) -> bool:
        """Whether it is there with the manifest that it has here."""
        try:
            here = (checkpoint / MANIFEST).read_bytes()
        except FileNotFoundError:
            return False
        there = self.bucket.read(f"{checkpoint.name}/{MANIFEST}")
        return there == here and checkpoint in self.checkpoints()

    def upload(self, checkpoint: Path, check: Callable[[], None]) -> None:
        """Bring a whole one there, with the journal of what came before it; safe to repeat.

        check: called before each step; raises when this process may not write there any more.
        """
        if self.has(checkpoint):
            return
        check()
        self.bucket.delete(f"{checkpoint.name}/{MANIFEST}")  # of one that it replaces
        for file in checkpointing.FILES:
            check()
            self.bucket.upload(checkpoint / file, f"{checkpoint.name}/{file}")
        # Whoever goes on from it finds all that was written of the steps before.
        self.upload_journal(check)
        check()
        self.bucket.upload(checkpoint / MANIFEST, f"{checkpoint.name}/{MANIFEST}")

    def download(self, checkpoint: Path) -> None:
        """Bring one here and verify it, unless it is here; raises CheckpointError if it is damaged.

        A kill in between leaves a hidden folder, which the next call replaces.
        """
        if self.has(checkpoint):
            try:
                checkpointing.verify(checkpoint)
                return
            except checkpointing.CheckpointError:
                pass  # damaged here only
        beside = checkpoint.with_name(f".{checkpoint.name}.partial")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for file in sorted(ALL_FILES):
            self.bucket.download(f"{checkpoint.name}/{file}", beside / file)
        try:
            checkpointing.verify(beside)
        except checkpointing.CheckpointError:
            shutil.rmtree(beside)
            raise checkpointing.CheckpointError(
                f"{self.bucket.address}/{checkpoint.name} is torn or was changed"
            ) from None
        shutil.rmtree(checkpoint, ignore_errors=True)
        beside.replace(checkpoint)

    def remove(self, name: str) -> None:
        """Remove one by its name; a kill in between leaves what nobody takes for a checkpoint."""
        self.bucket.delete(f"{name}/{MANIFEST}")
        for file in checkpointing.FILES:
            self.bucket.delete(f"{name}/{file}")

    def prune(self, settings: TrainConfig, named: Collection[int], newest: Path) -> None:
        """What `retention.prune` does in a folder. Only whoever holds the claim may do this."""
        for path in superfluous(self.checkpoints(), self._loss, settings, named, newest):
            self.remove(path.name)
        whole = {path.name for path in self.checkpoints()}
        for torn in self._files().keys() - whole:
            # Of an upload or a removal that was killed; there is no other while we hold the claim.
            self.remove(torn)

    def _loss(self, checkpoint: Path) -> float | None:
        """Its validation loss, by state.json, which is small."""
        name = checkpoint.name
        if name not in self._losses:
            with tempfile.TemporaryDirectory(
                dir=self.local, prefix=".loss-", suffix=".partial"
            ) as folder:
                self.bucket.download(f"{name}/state.json", Path(folder) / "state.json")
                self._losses[name] = valid_loss(Path(folder))
        return self._losses[name]

    # --- journal ---------------------------------------------------------------------------------

    def upload_journal(self, check: Callable[[], None]) -> None:
        """Bring there what the journal here has in whole lines."""
        with self._journal_lock:  # so that none is replaced by an older one
            path = self.local / JOURNAL_NAME
            if journal.end(path) != self._uploaded:
                content = _whole_lines(path)
                check()
                self.bucket.write(JOURNAL_NAME, content)
                self._uploaded = len(content)

    def follow_journal(self) -> None:
        """Append to the journal here what the one there has more."""
        with self._journal_lock:
            path = self.local / JOURNAL_NAME
            here = journal.end(path)
            if (self.bucket.size(JOURNAL_NAME) or 0) > here:
                news = self.bucket.read(JOURNAL_NAME, here) or b""
                with path.open("ab") as stream:
                    stream.truncate(here)
                    stream.write(news[: news.rfind(b"\n") + 1])

    def fetch_journal(self) -> None:
        """Put the journal that is there in the place of the one here, if that is another."""
        with self._journal_lock:
            path = self.local / JOURNAL_NAME
            there = self.bucket.read(JOURNAL_NAME) or b""
            if _whole_lines(path) != there:
                write_whole(path, there.decode())
            self._uploaded = len(there)


def _whole_lines(path: Path) -> bytes:
    """A journal's content without a line that is not whole yet; empty where there is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    return content[: content.rfind(b"\n") + 1]
