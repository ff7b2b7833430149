"""What a run's folder `<cluster.storage>/<run>/` holds: its journal and its checkpoints, and which
of these are kept."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from seq2sweep import console
from seq2sweep.config import ClusterConfig, Config, TrainConfig
from seq2sweep.errors import UserError
from seq2sweep.runs import journal
from seq2sweep.storage.atomic import remove
from seq2sweep.train import checkpointing

JOURNAL_NAME = "journal.jsonl"
FAILURE_NAME = "failure.json"
"""What a trial that failed says of it, until it begins again."""
_CHECKPOINT = re.compile(r"(step|interrupted)-\d{8,}")


def run_folder(config: ClusterConfig, project: Path, name: str) -> Path:
    """A run's folder on the driver's machine, where a run in an object store is downloaded to.

    Absolute, because Ray's workers have working directories of their own. UserError for a link to a
    disk that is not there: training would start anew below the place where it is mounted.
    """
    folder = project / config.folder / name
    for path in (folder, *folder.parents):
        _require_target(path, "work in a new folder")
    return folder.resolve()


def _require_target(path: Path, otherwise: str) -> None:
    """Raise UserError for a link to a disk that is not there.

    otherwise: what happens without the link.
    """
    if path.is_symlink() and not path.exists():
        raise UserError(
            f"{path} leads to {path.readlink()}, which is not there: mount that disk, or "
            f"remove the link to {otherwise}"
        )


def checkpoint_name(step: int) -> str:
    """`step-00001000`: names sort by step."""
    return f"step-{step:08d}"


def interrupted_name(step: int) -> str:
    """`interrupted-00001000`: to resume from after an interruption, and never averaged."""
    return f"interrupted-{step:08d}"


def is_checkpoint_name(name: str) -> bool:
    """Whether it is one that `checkpoint_name` or `interrupted_name` made."""
    return _CHECKPOINT.fullmatch(name) is not None


def checkpoint_step(folder: Path) -> int:
    """The step in a name that `checkpoint_name` or `interrupted_name` made."""
    return int(folder.name.rpartition("-")[2])


def is_regular(checkpoint: Path) -> bool:
    """Whether it is one that every run of these settings has, not what an interruption left."""
    return checkpoint.name.startswith("step-")


def last_step(checkpoints: Iterable[Path]) -> int:
    """The step after which training resumes that has these."""
    return max(map(checkpoint_step, checkpoints), default=0)


def by_step(folder: Path, names: Iterable[str]) -> list[Path]:
    """The checkpoints among the names in a folder, oldest first."""
    found = [folder / name for name in names if is_checkpoint_name(name)]
    return sorted(found, key=lambda path: (checkpoint_step(path), path.name))


def checkpoints(folder: Path) -> list[Path]:
    """All of them by step, whether whole or not, also those that an interruption left.

    Raises OSError where the folder is not there or cannot be read: that says nothing of them.
    """
    return by_step(folder, os.listdir(folder))  # not Path.glob(), which finds nothing then


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest regular one whose files match its manifest."""
    return _newest_whole(filter(is_regular, reversed(checkpoints(folder))))


def resume_point(folder: Path) -> Path | None:
    """Where training resumes: the newest whole checkpoint, also one that an interruption left."""
    return _newest_whole(reversed(checkpoints(folder)))


def _newest_whole(newest_first: Iterable[Path]) -> Path | None:
    for path in newest_first:
        with contextlib.suppress(checkpointing.CheckpointError):
            checkpointing.verify(path)
            return path
    return None


def remove_damaged(folder: Path) -> list[Path]:
    """Remove checkpoints that do not match their manifests; returns the others, oldest first.

    Nothing can resume from them, and none may be counted among those that are kept. Only whoever
    holds `only_writer` may do this. UserError for a link to a disk that is not there.
    """
    whole = []
    for path in checkpoints(folder):
        _require_target(path, "train without that checkpoint")
        try:
            checkpointing.verify(path)
            whole.append(path)
        except checkpointing.CheckpointError as damage:
            remove(path)
            console.say(f"{damage}; removed")
    return whole


@dataclass(frozen=True)
class Retention:
    """Which checkpoints of a run are kept, by their steps and validation losses alone.

    What is dropped once would never be kept later: so it makes no difference whether this is asked
    after every checkpoint, or once after several.
    named: steps that are kept besides.
    """

    settings: TrainConfig
    named: Collection[int]

    @classmethod
    def of(cls, config: Config) -> Self:
        """Of a run with this configuration."""
        return cls(config.train, config.evaluate.checkpoint_steps)

    def kept(self, losses: Mapping[int, float | None]) -> set[int]:
        """Of the steps of checkpoints: the newest, the best, every n-th, and those that are named.

        losses: the validation loss at each step; None: not known.
        """
        every = self.settings.keep_every
        return {
            *sorted(losses)[-self.settings.keep_checkpoints :],
            *best(losses, self.settings.keep_best),
            *(step for step in losses if step in self.named or (every and step % every == 0)),
        }

    def always(self, losses: Mapping[int, float | None] | None = None) -> set[int]:
        """Steps whose checkpoints a finished run has.

        losses: as `losses` gives them; without them those that it has whatever its losses, by
        arithmetic, as there may be billions of steps and few that are kept.
        """
        last = self.settings.steps
        made = range(self.settings.checkpoint_every, last, self.settings.checkpoint_every)
        if losses:
            return self.kept({step: losses.get(step) for step in (*made, last)})
        newest, multiples = replace(self.settings, keep_best=0).kept_steps()
        return {*newest, *multiples, *(step for step in self.named if step in made), last}

    def kept_by(self, step: int) -> str:
        """The key of params.yaml by which a checkpoint of `always` is kept, whatever its loss."""
        if step not in replace(self, named=()).always():
            return "evaluate.checkpoint_steps"
        every = self.settings.keep_every
        return f"train.{'keep_every' if every and step % every == 0 else 'keep_checkpoints'}"

    def most(self) -> int:
        """How many checkpoints a run keeps at once, at most, whatever its losses.

        By arithmetic, as there may be billions of steps.
        """
        often, every = self.settings.checkpoint_every, self.settings.keep_every
        made = -(-self.settings.steps // often)
        newest = min(made, self.settings.keep_checkpoints)
        older = range(often, often * (made - newest) + 1, often)
        multiples = older[every // often - 1 :: every // often] if every else range(0)
        others = {step for step in self.named if step in older and step not in multiples}
        return min(made, newest + self.settings.keep_best + len(multiples) + len(others))

    def losses(
        self, folder: Path, known: Iterable[Path], read: Callable[[Path], float | None]
    ) -> dict[int, float | None]:
        """The validation loss by step, where it makes a difference to what is kept.

        As the journal in a run's folder has it, which stays as it is when steps are trained again,
        and has it of checkpoints that are not there any more. What it lacks `read` says of one of
        the `known` checkpoints. Raises UserError when a line of it is damaged.
        """
        if not self.settings.keep_best:
            return {}
        regular = {checkpoint_step(path): path for path in known if is_regular(path)}
        losses: dict[int, float | None] = {
            entry["step"]: entry["valid_loss"]
            for entry in journal.entries(folder / JOURNAL_NAME, "validated")
            if "valid_loss" in entry
        }
        return {step: read(path) for step, path in regular.items() if step not in losses} | losses

    def superfluous(
        self, known: Iterable[Path], losses: Mapping[int, float | None], newest: Path
    ) -> list[Path]:
        """Which of the `known` checkpoints need not be kept beside the newest whole one.

        That one stays, whatever the settings. Newer ones will be written again: they count for
        nothing yet, and stay.
        losses: as `losses` gives them.
        """
        older = [path for path in known if checkpoint_step(path) <= checkpoint_step(newest)]
        regular = {checkpoint_step(path): path for path in older if is_regular(path)}
        keep = self.kept({step: losses.get(step) for step in regular})
        stay = {newest, *(regular[step] for step in keep)}
        return [path for path in older if path not in stay]


def best(losses: Mapping[int, float | None], count: int) -> list[int]:
    """The `count` steps of lowest known loss, best first; of equals the newer is better."""
    known = {step: loss for step, loss in losses.items() if loss is not None}
    return sorted(known, key=lambda step: (known[step], -step))[:count]


def prune(folder: Path, retention: Retention, newest: Path) -> None:
    """Remove what a run's folder need not keep; a kill in between leaves the rest to the next call.

    newest: the newest whole checkpoint. Only whoever holds `only_writer` may do this. Raises
    OSError, after which it may be called again.
    """
    for leftover in folder.glob(".*.removed"):
        _remove_hidden(leftover)
    known = checkpoints(folder)
    losses = retention.losses(folder, known, valid_loss)
    for path in retention.superfluous(known, losses, newest):
        if path.is_symlink():
            console.say(f"{path} is not needed any more: removed, but not {path.readlink()}")
        hidden = path.with_name(f".{path.name}.removed")
        path.rename(hidden)  # gone at once for whoever looks for checkpoints
        _remove_hidden(hidden)


def _remove_hidden(path: Path) -> None:
    """Or leave it to the next call where NFS keeps a file of it that somebody still reads."""
    try:
        remove(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EBUSY):
            raise


def valid_loss(checkpoint: Path) -> float | None:
    """By the state.json of a checkpoint that is here; None: not known."""
    try:
        return checkpointing.read_progress(checkpoint).valid_loss
    except checkpointing.CheckpointError:
        return None
