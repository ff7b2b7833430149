"""How a stage records its runs: it is on disk when a call returns. Needs no mlflow."""

from __future__ import annotations

import contextlib
import json
import math
import numbers
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Literal, Self

from seq2sweep.redaction import redact
from seq2sweep.tracking.outbox import FILES, Outbox, killed, naming

# What MLflow takes; of a tag MLflow 3 takes 8000 characters, older servers 5000.
LONGEST_PARAM = 6000
LONGEST_TAG = 5000
LONGEST_DIGEST = 36

# Above it a file is linked, not copied. Weights are never changed in place; a text file may be.
COPIED_BYTES = 16 * 2**20

# The metrics of each kind of journal entry that become curves; the others are of the moment.
CURVES: dict[str, Sequence[str]] = {
    "logged": (
        "loss",
        "perplexity",
        "gradient_norm",
        "learning_rate",
        "tokens_per_second",
        "rss_bytes",
        "peak_rss_bytes",
        "peak_gpu_bytes",
    ),
    "validated": ("valid_loss", "valid_perplexity"),
}

Status = Literal["FINISHED", "FAILED", "KILLED"]


class Recorder:
    """Record a run. As a context manager it ends the run itself, however that comes.

    An exception ends it as FAILED with the tag `error`, KeyboardInterrupt and SystemExit (which
    stages raise on SIGTERM) as KILLED, anything else as FINISHED. No call waits for MLflow. A full
    disk raises OSError and leaves nothing half written. Passwords in addresses are masked in all
    that is recorded, and long values are cut with a note.
    """

    def __init__(
        self,
        root: Path,
        title: str,
        *,
        kind: str,
        name: str | None = None,
        anew: bool = False,
        done: float | None = None,
        parent: str | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Start a run that MLflow shows as `title`, or resume one.

        root: the folder of all outboxes. name: of this one, for a run that may be resumed later
        (with `anew` as another run); without it a new one. parent: name of the outbox of the run
        that this one is shown under. done: unix seconds when the work of a resumed run was done, if
        it is only asked for again: what MLflow has of a finished one stays. kind: becomes the tag
        of that name. Raises UserError while another process writes the same one.
        """
        self.name = name or f"{kind}-{uuid.uuid4().hex[:12]}"
        self.folder = root / self.name
        self._outbox = Outbox(self.folder)
        self._descriptor: int | None = self._outbox.open()
        self._ended, self._done = False, done
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            newest, state = self._outbox.newest_key(), self._outbox.state()
            if anew and state is not None and state["do"] == "start":
                # It died before its journal began: what is in there from now on is not its own.
                self._append("curves", journal=None)
                self._append(**killed(state))
            fresh = anew or newest is None
            self.key = f"{self.name}.{uuid.uuid4().hex[:8]}" if fresh else str(newest)
            process = {"process.host": socket.gethostname(), "process.id": str(os.getpid())}
            self._append(
                "start",
                key=self.key,
                title=title,
                parent=parent,
                # Of the run of this name that is there now: later there may be others.
                parent_key=Outbox(root / parent).newest_key() if parent else None,
                goes_on=name is not None,
                done=done,
                tags=clean_tags({**(tags or {}), "kind": kind, **process}),
            )
            if params:
                # A resumed run keeps what it shows: the number of workers may be another now.
                self._append("params", values=clean_params(params))
            on_error.pop_all()

    def log(
        self,
        metrics: Mapping[str, float],
        step: int,
        time: float | None = None,
        *,
        on_parent: bool = False,
    ) -> None:
        """Record numbers at a step; `time` in unix seconds, now unless given."""
        values = {key: float(v) if _finite(key, v) else None for key, v in metrics.items()}
        self._append("log", metrics=values, step=step, at=time, on_parent=on_parent)

    def tag(self, tags: Mapping[str, str], *, on_parent: bool = False) -> None:
        """Record tags, as `clean_tags` makes them."""
        self._append("tag", tags=clean_tags(tags), on_parent=on_parent)

    def artifact(self, path: Path) -> None:
        """Record a file or a folder as it is now."""
        with self._kept([path]) as files:
            self._append("artifact", files=files, only_new=self._done is not None)

    def text(self, name: str, text: str) -> None:
        """Record a text as the file `name`."""
        with TemporaryDirectory(prefix="seq2sweep-") as folder:
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            self.artifact(path)

    def dataset(self, name: str, digest: str, context: str | None = None) -> None:
        """Name the data this run used; `digest` (cut to 36 characters) tells versions apart."""
        self._append("dataset", name=name, digest=digest[:LONGEST_DIGEST], context=context)

    def model(
        self,
        name: str,
        *,
        files: Sequence[Path],
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        dataset_name: str,
        dataset_digest: str,
        step: int = 0,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Record a model with its files and folders, and its metrics on a dataset.

        step: the training step of the weights.
        """
        with self._kept(files) as kept:
            self._append(
                "model",
                name=name,
                files=kept,
                params=clean_params(params),
                metrics={key: float(v) for key, v in metrics.items() if _finite(key, v)},
                dataset_name=dataset_name,
                dataset_digest=dataset_digest[:LONGEST_DIGEST],
                step=step,
                tags=clean_tags(tags or {}),
            )

    def register(
        self, model: str, name: str, alias: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """Make a model of this run a version of a registered one.

        model: its name in the run. name, alias: of the registered model, and what this version is
        called until a later record of the same name and alias.
        """
        self._append("register", model=model, name=name, alias=alias, tags=clean_tags(tags or {}))

    def curves(self, journal: Path, *, copy: bool = False) -> None:
        """Record the curves of a training's journal, with what is appended until the run's end.

        copy: as it is now, for one that a later training may begin again.
        """
        if not copy:
            self._append("curves", journal=os.path.relpath(journal, self.folder))
        elif journal.exists():
            with self._kept([journal]) as (kept,):
                self._append("curves", journal=kept)

    def finish(self, status: Status = "FINISHED", error: str | None = None) -> None:
        """Say how the run ended; a second call changes nothing. Records may still follow."""
        if not self._ended:
            shown = error and clean_tags({"error": error})["error"]
            self._append("end", status=status, error=shown, done=self._done)
            self._ended = True

    def close(self) -> None:
        """Nothing follows; a run that was not finished counts as killed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.finish()
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                self.finish("KILLED")
            else:
                self.finish("FAILED", " ".join(f"{type(error).__name__}: {error}".split()))
        except OSError as failure:
            if error is None:
                raise
            # The first error is what matters; the next stage ends this run as killed.
            error.add_note(f"the end of the run could not be recorded: {failure}")
        finally:
            self.close()

    def _append(self, do: str, **what: Any) -> None:
        if self._descriptor is None:
            raise ValueError(f"the run {self.name} is closed")
        self._outbox.append(self._descriptor, {"do": do, "time": time.time(), **what})

    @contextlib.contextmanager
    def _kept(self, paths: Sequence[Path]) -> Iterator[list[str]]:
        """Keep the paths as they are now; if the block then fails, nothing is left of them."""
        place = self.folder / FILES / uuid.uuid4().hex[:12]
        try:
            place.mkdir(parents=True)
            for path in paths:
                _keep(path, place / path.name)
            yield [str((place / path.name).relative_to(self.folder)) for path in paths]
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise


def _keep(source: Path, target: Path) -> None:
    """Keep a file or a folder as it is now."""
    if source.is_dir():
        target.mkdir()
        for path in source.iterdir():
            _keep(path, target / path.name)
        return
    # Not the link that DVC may keep an output as.
    real = source.resolve()
    if real.stat().st_size > COPIED_BYTES:
        try:
            target.hardlink_to(real)
        except OSError:
            pass  # another file system, or one without hard links
        else:
            return
    shutil.copyfile(real, target)
    with naming(target), target.open("rb") as stream:
        os.fsync(stream.fileno())


# --- values as MLflow takes them -----------------------------------------------------------------


def clean_params(values: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as text: JSON but for text, with passwords masked, and cut with a note."""
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
    }
    return {key: _cut(redact(text), LONGEST_PARAM) for key, text in texts.items()}


def clean_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags with passwords masked, folders relative, and long values cut with a note."""
    return {key: _cut(_relative(redact(value)), LONGEST_TAG) for key, value in tags.items()}


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    note = f"... [cut, {len(text)} characters in all]"
    return text[: longest - len(note)] + note


def _relative(text: str) -> str:
    """Text with `.` for the project folder and `~` for the home folder, as others see it too."""
    for folder, short in ((os.getcwd(), "."), (os.path.expanduser("~"), "~")):
        for path in {folder, os.path.realpath(folder)} - {"/"}:
            text = re.sub(rf"(?<![\w.~-]){re.escape(path)}(?![\w-]|\.\w)", short, text)
    return text


def _finite(key: str, value: Any) -> bool:
    """Whether a metric's value is finite. Raises TypeError if it is no number at all."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"metric {key} must be a number, not {value!r}")
    return math.isfinite(value)
