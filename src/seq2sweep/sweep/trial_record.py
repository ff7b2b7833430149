"""What is known of each trial of a sweep, in memory and in its folder."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seq2sweep import config as configuration
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME, newest_checkpoint
from seq2sweep.storage.atomic import write_json, write_whole
from seq2sweep.storage.retry import with_retries
from seq2sweep.sweep.variants import Variant

RESULT_NAME = "result.json"
TRANSLATIONS_NAME = "valid.translations.txt"
NODES_NAME = "nodes"
"""Folder with an empty file for each node that a trial of one worker ran on."""

Status = Literal["finished", "stopped early", "failed"]
OnTrial = Callable[[str, Variant, dict[str, Any]], None]


@dataclass(frozen=True)
class TrialResult:
    """How one variant ended.

    steps: reached; checkpoint: folder of the newest; metrics: the newest of each figure in the
    journal and what `score` gave; cause: why it failed or has no score; translations: of the
    validation set, one a line, a file that is there when it was scored; nodes: that a trial of one
    worker ran on.
    """

    variant: Variant
    status: Status
    cause: str | None
    steps: int
    checkpoint: Path | None
    metrics: dict[str, Any]
    journal: Path
    translations: Path
    wall_seconds: float
    nodes: list[str]


@dataclass
class TrialRecord:
    """What this process knows of a variant, and its folder.

    schedule: by what rule trials are stopped; scorer: names the code that scores; earlier:
    result.json, if the variant needs no training because it ended in a sweep before; final: what
    has no figures is not tried again.
    """

    variant: Variant
    folder: Path
    schedule: str
    scorer: str
    earlier: dict[str, Any] | None
    final: bool = False
    started: float = 0.0
    wall_seconds: float = 0.0
    status: Status | None = None
    cause: str | None = None
    last_step: int = -1
    scores: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(
        cls, variant: Variant, folder: Path, schedule: str, scorer: str, final: bool
    ) -> TrialRecord:
        """Read what an earlier sweep left; one that stopped the trial by another rule is void."""
        folder.mkdir(parents=True, exist_ok=True)
        try:
            earlier = json.loads((folder / RESULT_NAME).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            earlier = None
        if earlier:
            same = earlier["status"] == "finished" or earlier["schedule"] == schedule
            again = earlier["status"] == "failed" and not final
            if earlier["fingerprint"] != variant.fingerprint or not same or again:
                earlier = None
        return cls(variant, folder, schedule, scorer, earlier, final)

    def start(self, on_trial: OnTrial, at: float) -> None:
        """Tell once that the trial began; `at` and other times here are of time.monotonic."""
        if not self.started:
            self.started = at
            on_trial("started", self.variant, {"done_before": self.earlier is not None})

    def report(self, result: dict[str, Any], on_trial: OnTrial) -> None:
        """Tell of a validation, once."""
        # A trial that was tried again tells the scheduler once more what it told before.
        if result["step"] > self.last_step:
            self.last_step = result["step"]
            on_trial("result", self.variant, result)

    def end(self, status: Status, cause: str | None, on_trial: OnTrial, at: float) -> None:
        """Tell once how the trial ended, and keep it in the folder unless it failed."""
        if self.status:
            return
        self.start(on_trial, at)
        self.status, self.cause = status, cause
        figures = self.figures()
        if self.earlier:
            self.wall_seconds = self.earlier["wall_seconds"]
        else:
            self.wall_seconds = figures.get("wall_seconds", at - self.started)
            if status != "failed":
                self.save()
        details = {
            "cause": cause,
            "wall_seconds": self.wall_seconds,
            "journal": str(self.folder / JOURNAL_NAME),
            "nodes": nodes_of(self.folder),
        }
        on_trial(status, self.variant, figures | details)

    def save(self) -> None:
        """Write result.json."""
        content = {
            "fingerprint": self.variant.fingerprint,
            "status": self.status,
            "cause": self.cause,
            "schedule": self.schedule,
            "wall_seconds": self.wall_seconds,
            "scores": self.scores,
            "scored_as": self.scored_as() if self.scores or self.cause else None,
        }
        with_retries(lambda: write_json(self.folder / RESULT_NAME, content))

    def settle(self) -> None:
        """Keep in the folder that the trial has no figures, if it has none and that is final."""
        if self.final and self.cause:
            self.save()

    def reuse_cause(self) -> bool:
        """Take why there are no scores from an earlier sweep, if that is final."""
        if not self.final or not self.earlier or self.earlier["scored_as"] != self.scored_as():
            return False
        self.cause = self.earlier.get("cause")
        return self.cause is not None

    def reuse_scores(self) -> bool:
        """Take what an earlier sweep scored in the same way, if it did."""
        if not self.earlier or self.earlier["scored_as"] != self.scored_as():
            return False
        if not self.earlier["scores"] or not (self.folder / TRANSLATIONS_NAME).exists():
            return False
        self.scores = self.earlier["scores"]
        return True

    def keep_scores(self, figures: dict[str, Any]) -> None:
        """Write what `score` gave: translations first, since result.json says they are there."""
        self.scores = {key: value for key, value in figures.items() if key != "translations"}
        lines = "".join(f"{line}\n" for line in figures["translations"])
        with_retries(lambda: write_whole(self.folder / TRANSLATIONS_NAME, lines))
        self.save()

    def scored_as(self) -> str:
        """What the scores depend on besides the variant."""
        values = configuration.fingerprint(self.variant.config, "evaluate", "data")
        return f"{self.scorer}-{values}"

    def figures(self) -> dict[str, Any]:
        """The newest of each figure in the journal."""
        path = self.folder / JOURNAL_NAME

        def newest() -> dict[str, Any]:
            entries = journal.entries(path)
            return {k: v for e in entries for k, v in e.items() if k not in ("kind", "time")}

        return with_retries(newest)

    def ended_as(self) -> Status:
        """How a trial ended that did not fail: a stopped one never got to the journal's end."""
        path = self.folder / JOURNAL_NAME
        finished = with_retries(lambda: any(True for _ in journal.entries(path, "finished")))
        return "finished" if finished else "stopped early"

    def checkpoint(self) -> Path | None:
        """The newest one that is sound."""
        files = with_retries(lambda: list(self.folder.glob("step-*/*")))
        return _newest_sound(self.folder, tuple(sorted(map(_stamp, files))))

    def result(self) -> TrialResult:
        """All of it, once the trial has ended."""
        assert self.status is not None
        figures = self.figures()
        return TrialResult(
            variant=self.variant,
            status=self.status,
            cause=self.cause,
            steps=int(figures.get("step", 0)),
            checkpoint=self.checkpoint(),
            metrics=figures | self.scores,
            journal=self.folder / JOURNAL_NAME,
            translations=self.folder / TRANSLATIONS_NAME,
            wall_seconds=self.wall_seconds,
            nodes=nodes_of(self.folder),
        )


def nodes_of(folder: Path) -> list[str]:
    """The nodes that a trial of one worker ran on, in the order in which it came there last."""
    found = list((folder / NODES_NAME).glob("*"))
    return [path.name for path in sorted(found, key=lambda path: path.stat().st_mtime_ns)]


def _stamp(file: Path) -> tuple[str, int, int]:
    found = file.stat()
    return str(file), found.st_size, found.st_mtime_ns


@functools.cache
def _newest_sound(folder: Path, files: tuple[tuple[str, int, int], ...]) -> Path | None:
    """Each round of a search asks for all trials: files that are as they were are not read again.

    files: of all checkpoints in the folder, with their sizes and times.
    """
    return with_retries(lambda: newest_checkpoint(folder))
