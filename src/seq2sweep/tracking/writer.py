"""How a stage says what happens to its runs: it is on disk when a call returns. Needs no mlflow."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from seq2sweep.redaction import redact
from seq2sweep.tracking.outbox import (
    FILES,
    RECORDS,
    Damaged,
    Outbox,
    append,
    killed,
    naming,
    open_to_write,
    read_records,
)
from seq2sweep.tracking.values import LONGEST_DIGEST, clean_tags, finite, param_text, relative

# Above it a file is linked, not copied. Weights are never changed in place; a text file may be.
COPIED_BYTES = 16 * 2**20

Status = Literal["FINISHED", "FAILED", "KILLED"]


class Writer:
    """Record a run. As a context manager it ends the run itself, however that comes.

    An exception ends it as FAILED with the tag `error`, KeyboardInterrupt and SystemExit (which
    stages raise on SIGTERM) as KILLED, anything else as FINISHED. No call waits for MLflow. A full
    disk raises OSError and leaves nothing half written.
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
        """Start a run that MLflow shows as `title`, or go on with one.

        root: the folder of all outboxes. name: of this one, for a run that may go on later (with
        `anew` as another run); without it a new one. parent: name of the outbox of the run that
        this one is shown under. done: unix seconds when the work of a run that goes on was done, if
        it is only asked for again: what MLflow has of a finished one stays. kind: becomes the tag
        of that name. Raises UserError while another process writes the same one.
        """
        self.name = name or f"{kind}-{uuid.uuid4().hex[:12]}"
        self.folder = root / self.name
        self._descriptor: int | None = open_to_write(self.folder)
        self._ended, self._done = False, done
        try:
            self._start(title, kind, name is not None, anew, parent, params, tags)
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        title: str,
        kind: str,
        goes_on: bool,
        anew: bool,
        parent: str | None,
        params: Mapping[str, Any] | None,
        tags: Mapping[str, str] | None,
    ) -> None:
        newest = _newest_key(self.folder)
        fresh = anew or newest is None
        state = Outbox(self.folder).state()
        if fresh and state is not None and state["do"] == "start":
            # It died before its journal began: what is in there from now on is not its own.
            self._append("curves", journal=None)
            self._append(**killed(state))
        self.key = f"{self.name}.{uuid.uuid4().hex[:8]}" if fresh else str(newest)
        self._append(
            "start",
            key=self.key,
            title=title,
            parent=parent,
            # Of the run of this name that is there now: later there may be others.
            parent_key=_newest_key(self.folder.with_name(parent)) if parent else None,
            goes_on=goes_on,
            done=self._done,
            tags=clean_tags({**(tags or {}), "kind": kind, **this_process()}),
        )
        if params:
            # A run that goes on keeps what it shows: the number of workers may be another now.
            self._append("params", values=_texts(params), only_new=True)

    def params(self, values: Mapping[str, Any]) -> None:
        """Record more parameters; MLflow refuses another value for a key."""
        self._append("params", values=_texts(values), only_new=False)

    def log(
        self,
        metrics: Mapping[str, float],
        step: int,
        time: float | None = None,
        *,
        on_parent: bool = False,
    ) -> None:
        """Record numbers at a step; `time` in unix seconds, now unless given."""
        values = {key: float(v) if finite(key, v) else None for key, v in metrics.items()}
        self._append("log", metrics=values, step=step, at=time, on_parent=on_parent)

    def tag(self, tags: Mapping[str, str], *, on_parent: bool = False) -> None:
        """Record tags, as `clean_tags` makes them."""
        self._append("tag", tags=clean_tags(tags), on_parent=on_parent)

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Record a file or a folder as it is now, inside the artifact `folder` if given."""
        with self._kept([path]) as files:
            self._append("artifact", files=files, folder=folder, only_new=self._done is not None)

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
        """Record a model with its files and folders; see seq2sweep.tracking.models."""
        with self._kept(files) as kept:
            self._append(
                "model",
                name=name,
                files=kept,
                params=_texts(params),
                metrics={key: float(v) for key, v in metrics.items() if finite(key, v)},
                dataset_name=dataset_name,
                dataset_digest=dataset_digest[:LONGEST_DIGEST],
                step=step,
                tags=clean_tags(tags or {}),
            )

    def register(
        self, model: str, name: str, alias: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """Make a model of this run a version of a registered one; see seq2sweep.tracking.registry.

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
            shown = error and relative(redact(error))
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
        record = {"do": do, "time": time.time(), **what}
        append(self._descriptor, self.folder / RECORDS, record)

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


def this_process() -> dict[str, str]:
    """This process as tags: host and number."""
    return {"process.host": socket.gethostname(), "process.id": str(os.getpid())}


def _newest_key(folder: Path) -> str | None:
    """Of the run that an outbox began last; None where there is none or it cannot be told."""
    with contextlib.suppress(FileNotFoundError, Damaged):
        records = [record.content for record in read_records(folder)]
        return next((str(r["key"]) for r in reversed(records) if r["do"] == "start"), None)
    return None


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: param_text(value) for key, value in values.items()}


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
