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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from seq2sweep.errors import UserError
from seq2sweep.redaction import redact
from seq2sweep.storage.atomic import naming_temporary
from seq2sweep.tracking.addressee import Addressee, of_addressee
from seq2sweep.tracking.outbox import DamagedRecordError, Outbox

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from seq2sweep.runs.run_store import Status

# What MLflow takes; of a tag MLflow 3 takes 8000 characters, older servers 5000.
LONGEST_PARAM = 6000
LONGEST_TAG = 5000
LONGEST_DIGEST = 36
LONGEST_TITLE = 250
"""Of a database that holds texts to their length, as PostgreSQL does."""

RUN_PAGE = "RUN_PAGE"

# What MLflow calls metrics: those of a prefix are a section of its charts, and those of system/ its
# page of system metrics.
SCORE, COST, TRAIN, SYSTEM = "score/", "cost/", "train/", "system/"

CURVES: dict[str, Mapping[str, str]] = {
    "logged": {
        "loss": f"{TRAIN}loss",
        "perplexity": f"{TRAIN}perplexity",
        "gradient_norm": f"{TRAIN}gradient_norm",
        "learning_rate": f"{TRAIN}learning_rate",
        "tokens_per_second": f"{TRAIN}tokens_per_second",
        "rss_bytes": f"{SYSTEM}rss_bytes",
        "peak_rss_bytes": f"{SYSTEM}peak_rss_bytes",
        "peak_gpu_bytes": f"{SYSTEM}peak_gpu_bytes",
        # MLflow's own names for what a node has in use.
        "cpu_percent": f"{SYSTEM}cpu_utilization_percentage",
        "memory_percent": f"{SYSTEM}system_memory_usage_percentage",
        "gpu_memory_percent": f"{SYSTEM}gpu_memory_usage_percentage",
    },
    "validated": {
        "valid_loss": f"{TRAIN}valid_loss",
        "valid_perplexity": f"{TRAIN}valid_perplexity",
    },
}
"""The metrics of each kind of journal entry that become curves, and MLflow's names of them; the
other ones are of the moment."""


def named(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    """Figures under the names that they have in MLflow."""
    return {f"{prefix}{name}": value for name, value in figures.items()}


def present(figures: Mapping[str, Any], names: Iterable[str]) -> dict[str, float]:
    """The named figures that are there and not null."""
    return {name: figures[name] for name in names if figures.get(name) is not None}


class Recorder:
    """Record a run. As a context manager it ends the run itself, however that comes.

    An exception ends it as failed with the tag `error`, KeyboardInterrupt and SystemExit (which
    stages raise on SIGTERM) as interrupted, anything else as finished. No call waits for MLflow. A
    full disk raises OSError and leaves nothing half written. Passwords in addresses are masked in
    all that is recorded, and long values are cut with a note.
    """

    def __init__(
        self,
        root: Path,
        title: str,
        *,
        kind: str,
        journal: Path | None = None,
        parent: str | None = None,
        parent_id: str | None = None,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        to: Addressee | None = None,
    ) -> None:
        """Start a run that MLflow shows as `title`, or resume one.

        root: the folder of all outboxes. journal: of a training, whose folder names the run, and
        whose curves are recorded with all that is appended until the run's end; where it is there,
        the run is the one that began it, else a new one. parent: name of the outbox of the run that
        this one is shown under. parent_id: MLflow's id of that run, where it is known: its outbox
        may be elsewhere, and a colleague's run may have that name too. kind: becomes the tag of
        that name. name: of the outbox, by which `attach` finds the run; else it is made up. to: who
        gets it; None: whoever delivers. Raises UserError while another process writes the same one.
        """
        made_up = f"{kind}-{uuid.uuid4().hex[:12]}"
        self.name = journal.parent.name if journal else name or made_up
        self.folder, self.to = root / self.name, to
        self._outbox, self._journal, self._ended = Outbox(self.folder), journal, False
        # Whether artifacts replace those of a FINISHED run, as of one that was trained again.
        self.replaces = False
        self._descriptor: int | None = self._outbox.open()
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            resumes = journal is not None and journal.exists()
            earlier, running = self._outbox.last("start"), self._outbox.running()
            if running and not resumes:
                self._append(**self._outbox.interrupted(running))
            fresh = f"{self.name}.{uuid.uuid4().hex[:8]}"
            self.key = str(earlier["key"]) if earlier and resumes else fresh
            above = parent and _newest_key(root / parent, to)
            process = {"process.host": socket.gethostname(), "process.id": str(os.getpid())}
            self._append(
                "start",
                time=time.time(),
                key=self.key,
                title=cut(title, LONGEST_TITLE),
                # The run of this name that is there now: later there may be others.
                parent=parent and (above or f"{parent}."),
                parent_id=None if above else parent_id,
                journal=journal and os.path.relpath(journal, self.folder),
                tags=clean_tags({**(tags or {}), "kind": kind, **process}) | of_addressee(to),
            )
            if params:
                # A resumed run keeps what it shows: the number of workers may be another now.
                self.params(params)
            on_error.pop_all()

    def params(self, values: Mapping[str, Any]) -> None:
        """Record parameters that were not known when the run began; what it has stays."""
        self._append("params", values=clean_params(values))

    def log(self, metrics: Mapping[str, float], step: int = 0, *, on_parent: bool = False) -> None:
        """Record numbers at a step; MLflow draws a bar of what has one number, at step 0."""
        values = {key: float(v) if _finite(key, v) else None for key, v in metrics.items()}
        self._append("log", time=self._time(), metrics=values, step=step, on_parent=on_parent)

    def tag(self, tags: Mapping[str, str], *, on_parent: bool = False) -> None:
        """Record tags, as `clean_tags` makes them."""
        self._append("tag", tags=clean_tags(tags), on_parent=on_parent)

    def describe(self, markdown: str) -> None:
        """Record the description that MLflow shows of a run.

        RUN_PAGE in it becomes the address of this run's page, without the server's.
        """
        self._append("describe", markdown=_storable(redact(markdown)))

    def artifact(self, path: Path) -> None:
        """Record a file or a folder as it is now."""
        # One time for all: each that MLflow refuses may yet come after the others.
        how = {"replace": True, "time": self._time()} if self.replaces else {}
        self._append("artifact", [path], **how)

    def text(self, name: str, text: str) -> None:
        """Record a text as the file `name`."""
        with TemporaryDirectory(prefix="seq2sweep-") as folder:
            path = Path(folder) / name
            with naming_temporary():
                path.write_text(text, encoding="utf-8")
            self.artifact(path)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Record a table as the file `name` (.json), which MLflow shows as one; so that its page
        of tables has those of several runs side by side."""
        self.text(name, json.dumps({"columns": columns, "data": rows}, ensure_ascii=False))
        shown = json.dumps([{"path": name, "type": "table"}])
        self._append("tag", tags={"mlflow.loggedArtifacts": shown}, on_parent=False)

    def view(self, name: str, title: str, state: Mapping[str, Any]) -> None:
        """Record how MLflow's page of runs is to show the variants under this run."""
        self._append("view", time=time.time(), name=name, title=title, state=state)

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
        dataset: tuple[str, str],
        step: int = 0,
        tags: Mapping[str, str] | None = None,
        flavor: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a model with its files and folders, and its metrics on a dataset.

        dataset: name and digest, as in `dataset`. step: the training step of the weights. flavor:
        of one that MLflow can load, its `loader`, `beam` and `alpha`.
        """
        self._append(
            "model",
            files,
            time=time.time(),
            name=name,
            params=clean_params(params),
            metrics={key: float(v) for key, v in metrics.items() if _finite(key, v)},
            dataset=(dataset[0], dataset[1][:LONGEST_DIGEST]),
            step=step,
            tags=clean_tags(tags or {}),
            **({} if flavor is None else {"flavor": flavor}),
        )

    def register(
        self, model: str, name: str, alias: str, tags: Mapping[str, str] | None = None
    ) -> None:
        """Make a model of this run a version of a registered one.

        model: its name in the run. name, alias: of the registered model, and what this version is
        called until a later record of the same name and alias.
        """
        self._append(
            "register",
            time=time.time(),
            model=model,
            name=name,
            alias=alias,
            tags=clean_tags(tags or {}),
        )

    def curves(self, journal: Path, until: int | None = None) -> None:
        """Record the curves of a training's journal as it is now: a later one may begin it anew.

        until: the last step that counts; None: all do.
        """
        if journal.exists():
            self._append("curves", files=[journal], until=until)

    def finish(self, status: Status = "finished", error: str | None = None) -> None:
        """Say how the run ended; a second call changes nothing. Records may still follow."""
        if not self._ended:
            at = self._time() if status == "finished" else time.time()
            shown = error and clean_tags({"error": error})["error"]
            # A journal that comes later is of another run.
            curves = self._journal is not None and self._journal.exists()
            self._append("end", time=at, status=status, error=shown, curves=curves)
            self._ended = True

    def close(self) -> None:
        """Nothing follows; a run that was not finished counts as interrupted."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if error is None:
                self.finish()
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                self.finish("interrupted")
            else:
                self.finish("failed", " ".join(f"{type(error).__name__}: {error}".split()))
        except OSError as failure:
            if error is None:
                raise
            # The first error is what matters; the next stage ends this run as interrupted.
            error.add_note(f"the end of the run could not be recorded: {failure}")
        finally:
            self.close()

    def _time(self) -> float:
        """Now, or when the training finished: one that is asked for again has one end."""
        if self._journal is not None:
            # Imported here: it imports torch, which takes seconds.
            from seq2sweep.runs import journal

            with contextlib.suppress(UserError):  # it is damaged, as delivery will tell
                # The last one counts, where it was trained again as checkpoints were lost.
                if ends := [*journal.entries(self._journal, "finished")]:
                    return float(ends[-1]["time"])
        return time.time()

    def _append(self, do: str, files: Sequence[Path] | None = None, **arguments: Any) -> None:
        if self._descriptor is None:
            raise ValueError(f"the run {self.name} is closed")
        self._outbox.append(self._descriptor, {"do": do, **arguments}, files)


def attach(
    root: Path,
    name: str,
    files: Sequence[Path],
    markdown: str,
    run_id: str | None = None,
    to: Addressee | None = None,
) -> None:
    """Give files to the newest run of an outbox that an earlier stage named so, over those of the
    same names, and its experiment a description; unless a later call has. Nothing, where MLflow
    knows no such run.

    root: the folder of all outboxes. run_id: MLflow's, where the stage knew it: once the outbox is
    gone, a colleague's run may have that name too. to: as of a Recorder.
    """
    box = Outbox(root / f"attached-{uuid.uuid4().hex[:12]}")
    descriptor = box.open()
    try:
        key = _newest_key(root / name, to)
        which = {"key": key or f"{name}.", "run_id": None if key else run_id}
        tags = of_addressee(to)
        now = time.time()
        box.append(descriptor, {"do": "attach", "time": now, **which, "tags": tags})
        box.append(descriptor, {"do": "artifact", "replace": True, "time": now}, files)
        note = {"do": "describe", "markdown": redact(markdown), "experiment": True}
        box.append(descriptor, {**note, "time": now})
    except BaseException:
        shutil.rmtree(box.folder, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _newest_key(folder: Path, to: Addressee | None) -> str | None:
    """Of the run that was begun last in an outbox for this addressee; None where none is known."""
    keys = []
    with contextlib.suppress(FileNotFoundError, DamagedRecordError):
        starts = [one.content for one in Outbox(folder).records() if one.content["do"] == "start"]
        keys = [one["key"] for one in starts if to is None or to.place_of(one) == to.place]
    return str(keys[-1]) if keys else None


# --- values as MLflow takes them -----------------------------------------------------------------


def params_as_text(values: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as text: JSON but for text, with passwords masked and folders relative."""
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
    }
    return {key: _relative(redact(text)) for key, text in texts.items()}


def clean_params(values: Mapping[str, Any]) -> dict[str, str]:
    """`params_as_text`, long ones cut with a note."""
    return {key: cut(text, LONGEST_PARAM) for key, text in params_as_text(values).items()}


def clean_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags with passwords masked, folders relative, and long values cut with a note."""
    return {key: cut(_relative(redact(value)), LONGEST_TAG) for key, value in tags.items()}


def cut(text: str, longest: int) -> str:
    """At most `longest` characters of a text; a note at the end where it has more."""
    text = _storable(text)
    if len(text) <= longest:
        return text
    note = f"... [cut, {len(text)} characters in all]"
    return text[: longest - len(note)] + note


def _storable(text: str) -> str:
    """With a `?` for half of a surrogate pair, as of a file's name that is no UTF-8: no database
    takes one."""
    return text.encode("utf-8", "replace").decode()


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
