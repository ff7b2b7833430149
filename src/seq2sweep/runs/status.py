"""Where a run stands: what its folder holds, and what it should hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from seq2sweep import console
from seq2sweep.config import Config
from seq2sweep.errors import Failure
from seq2sweep.runs import journal
from seq2sweep.runs.layout import (
    JOURNAL_NAME,
    checkpoint_step,
    is_regular,
    remove_damaged,
    resume_point,
)
from seq2sweep.runs.retention import always_kept, prune
from seq2sweep.storage.locks import only_writer
from seq2sweep.storage.retry import with_retries

T = TypeVar("T")


@dataclass(frozen=True)
class Standing:
    """What was found in a run's folder.

    checkpoints: whole ones, oldest first; summary: figures of the loop's Finished, None before it;
    lost: the first step whose checkpoint a finished run should have and has not.
    """

    checkpoints: list[Path]
    summary: dict[str, Any] | None
    lost: int | None

    @property
    def is_done(self) -> bool:
        """Whether the run is at its end, with all that it should have."""
        return self.summary is not None and self.lost is None

    @property
    def reached(self) -> int:
        """The step that training goes on after: below the one that was lost."""
        steps = map(checkpoint_step, self.checkpoints)
        return max((step for step in steps if self.lost is None or step < self.lost), default=0)


def look(
    config: Config, folder: Path, until: int | None = None, *, again: bool = False
) -> Standing:
    """Where the run of this configuration stands in a folder.

    until: the run is wanted up to this step, for its newest checkpoint: no earlier one is missed.
    again: of a run that has not finished only the newest checkpoint is read.
    Removes what is damaged, which is said, and of a finished run what need not be kept. Waits for
    a worker that is still writing there. Raises Failure when the storage stays away.
    """
    return from_storage(folder, lambda: _look(config, folder, until, again))


def _look(config: Config, folder: Path, until: int | None, again: bool) -> Standing:
    with only_writer(folder):
        summary = end_of(folder / JOURNAL_NAME)
        if again and summary is None:
            newest = resume_point(folder)
            return Standing([newest] if newest else [], None, None)
        found = remove_damaged(folder, lambda damage: console.say(f"{damage}; removed"))
        if summary is None:
            return Standing(found, None, None)
        lost = missing(config, found, until)
        if lost is None:
            # Where training was killed before it could.
            prune(folder, config.train, config.evaluate.checkpoint_steps, found[-1])
            found = [path for path in found if path.exists()]
    return Standing(found, summary, lost)


def end_of(path: Path) -> dict[str, Any] | None:
    """Figures of the loop's Finished, by a journal; None where it has none."""
    found = None
    for found in journal.entries(path, "finished"):  # noqa: B007 - the last one
        pass
    return {k: v for k, v in found.items() if k not in ("kind", "time")} if found else None


def missing(config: Config, found: list[Path], until: int | None = None) -> int | None:
    """The first step whose checkpoint a finished run should have and is not among those found."""
    has = {checkpoint_step(path) for path in found if is_regular(path)}
    always = always_kept(config.train, config.evaluate.checkpoint_steps)
    return min(({config.train.steps} if until else always) - has, default=None)


def reached(folder: Path, before: int | None = None) -> int:
    """The step that training would go on after, below step `before` if that is given."""
    kept = from_storage(folder, lambda: resume_point(folder, before))
    return checkpoint_step(kept) if kept else 0


def from_storage(folder: Path | str, work: Callable[[], T]) -> T:
    """Do what storage may refuse for a while; Failure when it stays away."""
    try:
        return with_retries(work)
    except OSError as error:
        if error.errno is None:
            raise Failure(str(error)) from None
        raise Failure(
            f"{folder} cannot be used ({error.strerror}): fix the storage and run `dvc repro` "
            "again, which goes on from there"
        ) from None
