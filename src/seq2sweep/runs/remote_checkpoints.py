"""The checkpoints of a run in an object store: listed, uploaded, downloaded, verified, removed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from seq2sweep.runs.layout import checkpoint_step, is_checkpoint_name
from seq2sweep.runs.retention import valid_loss
from seq2sweep.storage.object_store import ObjectStore
from seq2sweep.train import checkpointing

CHANGES_NO_RESULT = "where files are kept"

MANIFEST = "manifest.json"
ALL_FILES = {*checkpointing.FILES, MANIFEST}


class RemoteCheckpoints:
    """`<step-00001000>/` and its files, as in a folder; the manifest is the last to be uploaded and
    the first to be deleted, so one that has it is whole."""

    def __init__(self, objects: ObjectStore, folder: Path) -> None:
        """folder: where they lie on this machine."""
        self.objects, self.folder = objects, folder
        self._losses: dict[str, float | None] = {}

    def listed(self) -> list[Path]:
        """Checkpoints of which all files are there, oldest first, by their places here."""
        found = self._files()
        whole = [self.folder / name for name, files in found.items() if files == ALL_FILES]
        return sorted(whole, key=lambda path: (checkpoint_step(path), path.name))

    def torn(self) -> set[str]:
        """Names of those that an upload or a removal left when it was killed."""
        return self._files().keys() - {path.name for path in self.listed()}

    def _files(self) -> dict[str, set[str]]:
        """The files of each checkpoint, whether whole or not, by its name."""
        found: dict[str, set[str]] = {}
        for name in self.objects.sizes():
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
        there = self.objects.read(f"{checkpoint.name}/{MANIFEST}")
        return there == here and checkpoint in self.listed()

    def upload(
        self, checkpoint: Path, check: Callable[[], None], before_manifest: Callable[[], None]
    ) -> None:
        """Upload a whole one unless it is there; safe to repeat.

        check: called before each step; raises when this process may not write there any more.
        """
        if self.has(checkpoint):
            return
        check()
        self.objects.delete(f"{checkpoint.name}/{MANIFEST}")  # of one that it replaces
        for file in checkpointing.FILES:
            check()
            self.objects.upload(checkpoint / file, f"{checkpoint.name}/{file}")
        before_manifest()
        check()
        self.objects.upload(checkpoint / MANIFEST, f"{checkpoint.name}/{MANIFEST}")

    def download(self, checkpoint: Path) -> None:
        """Download one and verify it, unless it is here; raises CheckpointError if it is damaged.

        A kill in between leaves a hidden folder, which the next call replaces.
        """
        if self.has(checkpoint):
            with contextlib.suppress(checkpointing.CheckpointError):  # damaged here only
                checkpointing.verify(checkpoint)
                return
        beside = checkpoint.with_name(f".{checkpoint.name}.partial")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        for file in sorted(ALL_FILES):
            self.objects.download(f"{checkpoint.name}/{file}", beside / file)
        try:
            checkpointing.verify(beside)
        except checkpointing.CheckpointError:
            shutil.rmtree(beside)
            raise checkpointing.CheckpointError(
                f"{self.objects.address}/{checkpoint.name} is torn or was changed"
            ) from None
        shutil.rmtree(checkpoint, ignore_errors=True)
        beside.replace(checkpoint)

    def remove(self, name: str) -> None:
        """A kill in between leaves what nobody takes for a checkpoint."""
        self.objects.delete(f"{name}/{MANIFEST}")
        for file in checkpointing.FILES:
            self.objects.delete(f"{name}/{file}")

    def loss(self, checkpoint: Path) -> float | None:
        """Its validation loss, by state.json, which is small."""
        name = checkpoint.name
        if name not in self._losses:
            with tempfile.TemporaryDirectory(
                dir=self.folder, prefix=".loss-", suffix=".partial"
            ) as folder:
                self.objects.download(f"{name}/state.json", Path(folder) / "state.json")
                self._losses[name] = valid_loss(Path(folder))
        return self._losses[name]
