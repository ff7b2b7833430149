"""Where a new run begins: at its first step, or where a run stands that differs from it in nothing
but how many steps it has.

Each run's folder has a `run.json` with its `Origin`: all that determines its result. Other values
are another run in another folder; but the steps up to the shorter one's end are the same in both,
and no machine should compute them twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seq2sweep import code_fingerprint
from seq2sweep.config import DEFAULTS, KEEPING, architectures, keys_by_length
from seq2sweep.errors import UserError, first_of
from seq2sweep.runs import journal
from seq2sweep.runs.layout import (
    JOURNAL_NAME,
    best,
    checkpoint_name,
    checkpoint_step,
    checkpoints,
    interrupted_name,
    last_step,
)
from seq2sweep.storage.atomic import whole_folder, write_json
from seq2sweep.storage.locks import only_user, only_writer
from seq2sweep.train import checkpointing
from seq2sweep.train.events import CheckpointDue, Sized

RUN_NAME = "run.json"
# In what a run may differ from the one that it takes its first steps from.
LENGTH = {"train.steps", "train.tokens_per_pass", *KEEPING}
PRECISION = "train.precision"
OPTIMIZERS_BY_LENGTH = {"adam_then_sgd"}
"""Whose learning rate at a step depends on the number of steps."""
BEGIN_SECONDS = 3600.0
"""Whoever begins reads all that it takes over, which may be many gigabytes."""

Identity = dict[str, Any]
"""All that determines a run's result: parameters by dotted key, fingerprints of data and code."""


@dataclass(frozen=True)
class Origin:
    """Where a run comes from: what run.json holds.

    code: the meaning of each module behind `identity["code"]`; log_every: of a training, steps
    between two means of its loss, whose first ones a longer run takes over.
    """

    identity: Identity
    code: dict[str, str]
    log_every: int = 1

    def differences(self, other: Origin) -> str:
        """What differs in another origin, and of code where."""
        lines = checkpointing.differences(self.identity, other.identity)
        modules = code_fingerprint.differences(self.code, other.code)
        if not modules:
            return "; ".join(lines)
        code = f"code of {first_of(modules)}"
        return "; ".join(code if line.startswith("code was ") else line for line in lines)


def run_name(identity: Identity, kind: str = "train") -> str:
    """The kind and a hash: the same name, the same result. Of a sweep, of what all trials have."""
    text = json.dumps(identity, sort_keys=True)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def begin(
    folder: Path, origin: Origin, kept: Collection[int], *, in_bucket: bool = False
) -> str | None:
    """Make a run's folder with the steps that another run has done already; one that is there is
    made again where that has more of them.

    kept: steps whose checkpoints the run is to have in the end, whatever their losses. in_bucket:
    whether its checkpoints are in an object store, of which its journal says here. Waits while
    another process does this in the same storage. Raises UserError where one works in a folder that
    is to be made again.

    Returns a line for the user: from which run it resumes, or beside which one it starts anew, and
    what differs; None when there is nothing to tell.
    """
    storage = folder.parent
    storage.mkdir(parents=True, exist_ok=True)
    with only_user(storage, "begin.lock", BEGIN_SECONDS):
        others = [run for run in _existing_runs(storage) if run.folder.name != folder.name]
        begun = folder.exists()
        if line := _more_steps(_ExistingRun(folder, origin), others, kept, in_bucket):
            return line
        if begun:
            # Without run.json if somebody has brought it from another storage.
            write_json(folder / RUN_NAME, asdict(origin))
            return None
        with whole_folder(folder) as beside:
            write_json(beside / RUN_NAME, asdict(origin))
        return _differs_from(others, origin)


@dataclass(frozen=True)
class _ExistingRun:
    """Another run."""

    folder: Path
    origin: Origin

    def entries(self) -> Iterator[dict[str, Any]]:
        """Its journal, as far as it is not damaged."""
        with contextlib.suppress(UserError):
            yield from journal.entries(self.folder / JOURNAL_NAME)

    def is_finished(self) -> bool:
        return any(entry["kind"] == "finished" for entry in self.entries())

    def reached(self) -> int:
        return last_step(self.checkpoints())

    def checkpoints(self) -> list[Path]:
        """Oldest first; none of a run that is being removed."""
        with contextlib.suppress(FileNotFoundError):
            return checkpoints(self.folder)
        return []

    def shared(self, identity: Identity, kept: Collection[int]) -> list[Path]:
        """Its checkpoints that the other run would have as well, newest first."""
        own = self.origin.identity
        # A key that one of them lacks has its default there.
        keys = {key for key in {*identity, *own} if identity.get(key) != own.get(key)}
        if "train.steps" in keys and _depends_on_length(identity):
            return []
        if not keys <= LENGTH | {PRECISION} or not self._has_kept_the_best(identity):
            return []
        end, grids = own["train.steps"], (self.origin.log_every, own["train.validate_every"])
        # At its end a run logs and validates once more, which a longer one never did.
        beyond = {end} if any(end % every for every in grids) else set()
        usable = [
            path
            for path in reversed(self.checkpoints())
            if checkpoint_step(path) < identity["train.steps"]
            and checkpoint_step(path) not in beyond
            and (PRECISION not in keys or precision_of(path) == identity[PRECISION])
        ]
        has = {checkpoint_step(path) for path in usable}
        missing = min({*kept, *self._best(identity)} - has, default=identity["train.steps"])
        # Whoever resumes after a step that is to be kept and is gone would end without it.
        return [path for path in usable if checkpoint_step(path) < missing]

    def reusable(self, identity: Identity, kept: Collection[int]) -> int:
        """The newest step of those, or 0."""
        return last_step(self.shared(identity, kept))

    def _best(self, identity: Identity) -> list[int]:
        """Those of the other run's steps that had the lowest loss here, whether they are there or
        not: a step that the other one never has may have displaced one of them."""
        every, end = identity["train.checkpoint_every"], identity["train.steps"]
        losses = {
            entry["step"]: entry.get("valid_loss")
            for entry in self.entries()
            if entry["kind"] == "validated" and entry["step"] % every == 0 and entry["step"] <= end
        }
        return best(losses, identity["train.keep_best"])

    def _has_kept_the_best(self, identity: Identity) -> bool:
        """Which are the best can only be told from those that were kept."""
        own, grid = self.origin.identity, ("train.checkpoint_every", "train.keep_best")
        alike = all(own.get(key) == identity[key] for key in grid)
        return alike or not identity["train.keep_best"]


def _depends_on_length(identity: Identity) -> bool:
    """Whether a step is another one in a run of another length."""
    # A key that has its default is in no identity.
    return _optimizer(identity) in OPTIMIZERS_BY_LENGTH or not keys_by_length().isdisjoint(identity)


def _optimizer(identity: Identity) -> str:
    """As `Config.optimizer`, of a run of this version."""
    given = {**DEFAULTS, **identity}
    named: str = given["train.optimizer"]
    if named != "as_published":
        return named
    # Beside the name of a kind stands what its file means.
    model = architectures()[given["model.architecture"].split()[0]]
    published: str = model.PUBLISHED_OPTIMIZER
    return published


def begin_sweep(folder: Path, origin: Origin) -> str | None:
    """Make the folder of a sweep's trials, unless it is there.

    Returns a line for the user where an earlier sweep is there, none of whose trials is used, and
    why; else None.
    """
    if (folder / RUN_NAME).exists():
        return None
    earlier = _existing_runs(folder.parent, "sweep-*")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RUN_NAME, asdict(origin))
    if not earlier:
        return None
    return (
        f"starts new trials: those of {earlier[0].folder} differ in "
        f"{earlier[0].origin.differences(origin)}"
    )


def _existing_runs(storage: Path, names: str = "train-*") -> list[_ExistingRun]:
    """All runs of a storage, those that came last first."""
    found = []
    for path in storage.glob(f"{names}/{RUN_NAME}"):
        # One that is being removed, or is damaged, is not this run's concern.
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            origin = Origin(**json.loads(path.read_text(encoding="utf-8")))
            found.append((path.stat().st_mtime, _ExistingRun(path.parent, origin)))
    return [run for _, run in sorted(found, key=lambda item: item[0], reverse=True)]


class _NothingMoreError(Exception):
    """A folder stays as it is: what another run seemed to have more is damaged."""


def _more_steps(
    own: _ExistingRun, others: list[_ExistingRun], kept: Collection[int], in_bucket: bool
) -> str | None:
    """Make a run's folder, or make it again, where another run has more of its steps; a line of it.

    One that is there may have been begun, left for other values, and be wanted again.
    """
    folder, identity = own.folder, own.origin.identity
    # Checkpoints in an object store are not here; its journal is. Elsewhere they may be lost.
    kind = CheckpointDue.kind
    told = [entry["step"] for entry in own.entries() if in_bucket and entry["kind"] == kind]
    reached = max(own.reached(), *told, 0)
    # It keeps what auto chose: the other may be many times slower on its devices, or refused there.
    precision = _precision(reversed(own.checkpoints()))
    longer = [
        run
        for run in others
        if run.reusable(identity, kept) > reached
        and (precision is None or precision == _precision(run.shared(identity, kept)))
    ]
    with contextlib.ExitStack() as ours:
        if longer and folder.exists():
            ours.enter_context(only_user(folder))
            ours.enter_context(only_writer(folder))
        for run in sorted(longer, key=lambda run: run.reusable(identity, kept), reverse=True):
            with contextlib.suppress(_NothingMoreError), whole_folder(folder) as beside:
                step = _take_over(run, identity, kept, beside)
                if step <= reached:
                    raise _NothingMoreError
                _keep_number(own, beside)
                write_json(beside / RUN_NAME, asdict(own.origin))
                differences = run.origin.differences(own.origin)
                return f"resumes after step {step} of {run.folder}: {differences}"
    return None


def _keep_number(own: _ExistingRun, folder: Path) -> None:
    """Let a run whose folder is made again have the number of tokens a pass that auto chose for it,
    as its run in MLflow has."""
    chosen = next((entry for entry in own.entries() if entry["kind"] == Sized.kind), None)
    if chosen is None:
        return
    path = folder / JOURNAL_NAME
    others = (entry for entry in journal.entries(path) if entry["kind"] != Sized.kind)
    # At step 0, or whoever takes over fewer steps would lose it.
    lines = [json.dumps(entry) + "\n" for entry in (chosen | {"step": 0}, *others)]
    path.write_text("".join(lines), encoding="utf-8")


def _differs_from(others: list[_ExistingRun], origin: Origin) -> str | None:
    """A line of the run beside which a new one begins at its first step."""
    # The newest that is not finished: somebody may take this one for its end.
    trained = sorted(filter(_ExistingRun.reached, others), key=_ExistingRun.is_finished)
    if not trained:
        return None
    other = trained[0]
    return (
        f"starts a new run: {other.folder}, at step {other.reached()}, differs in "
        f"{other.origin.differences(origin)}"
    )


def _take_over(run: _ExistingRun, identity: Identity, kept: Collection[int], folder: Path) -> int:
    """Link or copy checkpoints and journal; the newest step of those that are whole, or 0.

    Raises OSError where the storage fails: that says nothing of the checkpoints, and to begin anew
    could not be taken back.
    """
    taken: list[Path] = []
    for path in run.shared(identity, kept):
        step = checkpoint_step(path)
        regular = step % identity["train.checkpoint_every"] == 0
        if not regular and taken:
            continue  # only good to resume from
        place = folder / (checkpoint_name(step) if regular else interrupted_name(step))
        try:
            _link_files(path, place)
            checkpointing.verify(place)
            taken.append(place)
        except (FileNotFoundError, checkpointing.CheckpointError):
            shutil.rmtree(place, ignore_errors=True)
            if step in kept or identity["train.keep_best"]:
                # Whoever resumes after it would end without it.
                while taken:
                    shutil.rmtree(taken.pop())
    reached = last_step(taken)
    if reached:
        # Who asks for a number of tokens a pass has that one.
        auto = identity.get("train.tokens_per_pass") == "auto"
        left_out = ("finished",) if auto else ("finished", "sized")
        lines = [
            json.dumps(entry) + "\n"
            # After the checkpoints, as it may be training; all of it, or its curves had a hole.
            for entry in journal.entries(run.folder / JOURNAL_NAME)
            if entry["step"] <= reached and entry["kind"] not in left_out
        ]
        (folder / JOURNAL_NAME).write_text("".join(lines), encoding="utf-8")
    return reached


def _link_files(checkpoint: Path, place: Path) -> None:
    """The same bytes once on the disk, where it can do that: checkpoints are never changed."""
    place.mkdir(exist_ok=True)
    for name in (*checkpointing.FILES, checkpointing.MANIFEST):
        try:
            os.link(checkpoint / name, place / name)
        except OSError:
            shutil.copyfile(checkpoint / name, place / name)


def precision_of(checkpoint: Path) -> Any:
    """What a checkpoint was trained in, where `auto` was asked for; None: not known, or gone.

    Raises OSError when the storage does not let it be read.
    """
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        text = (checkpoint / "state.json").read_text(encoding="utf-8")
        return json.loads(text)["identity"][PRECISION]
    return None


def _precision(checkpoints: Iterable[Path]) -> Any:
    """`precision_of` the first that says it; None where none does."""
    return next(filter(None, map(precision_of, checkpoints)), None)
