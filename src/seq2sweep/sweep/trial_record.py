"""What is known of each trial of a sweep, in memory and in its folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Self

from seq2sweep import config as configuration
from seq2sweep import console, hardware
from seq2sweep.config import is_address
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, checkpoint_step
from seq2sweep.runs.run_store import Ending, RunStore, read_summary
from seq2sweep.storage.atomic import sha256
from seq2sweep.storage.retry import with_retries
from seq2sweep.sweep.variants import Variant

RESULT_NAME = "result.json"
TRAINED_BY_NAME = "trained_by.json"
"""What trained it, and how far: it stays when somebody removes the other to have it tried again."""
TRANSLATIONS_NAME = "valid.translations.txt"
NODES_NAME = "nodes"
"""Folder with a file for each node that a trial of one worker ran on: when it came there."""

INTERRUPTED = "interrupted; run again to resume"
ROOM = "train.tokens_per_pass", "sweep.cpus_per_trial", "sweep.gpus_per_trial"
"""What a trial that ran out of memory is told to change (`cluster.failures`), none of which is in
its fingerprint: a failure with other values says nothing of these."""
OnTrial = Callable[[str, Variant, dict[str, Any]], None]


@dataclass(frozen=True)
class TrialResult:
    """How one variant ended.

    variant: `trained_with` what it was; steps: reached; checkpoint: folder of the newest; metrics:
    `TrialRecord.figures` and what `score` gave; cause: why it failed or has no score; translations:
    of the validation set, one a line, a file that is there when it was scored; nodes: that a trial
    of one worker ran on. origin: `hardware.ORIGIN` as in the journal: of trees `metrics` have a
    precision that is another. made_by: as of `lineage.made_by`; None: not known.
    """

    variant: Variant
    store: RunStore = field(compare=False)
    status: Ending
    cause: str | None
    steps: int
    checkpoint: Path | None
    metrics: dict[str, Any]
    journal: Path
    translations: Path
    wall_seconds: float
    nodes: list[str]
    origin: dict[str, Any] = field(default_factory=dict)
    made_by: Mapping[str, str] | None = None

    @property
    def scored(self) -> bool:
        """Whether there is a score on the validation set."""
        return self.variant.config.data.score in self.metrics

    @contextlib.contextmanager
    def fetched(self) -> Iterator[Path]:
        """Its checkpoint, on this machine; a copy of one in a bucket goes when the block ends."""
        assert self.checkpoint is not None
        name = self.checkpoint.name
        folder = self.store.retried(lambda: self.store.fetch(name))
        try:
            yield folder
        finally:
            self.store.clear()


@dataclass
class TrialRecord:
    """What this process knows of a variant, and its folder.

    schedule: by what rule trials are stopped; scorer: names the code that scores; earlier:
    result.json, if the variant needs no training because it ended in a sweep before; final: what
    has no figures is not tried again with the same `ROOM`; made_by: with what this sweep trains,
    `lineage.made_by`, and from the end on what trained it; before: to which step it was trained,
    and by what, when an earlier sweep recorded its end; on_trial: as of `run_sweep`.
    """

    variant: Variant
    store: RunStore
    schedule: str
    scorer: str
    earlier: dict[str, Any] | None
    final: bool = False
    made_by: Mapping[str, str] | None = None
    on_trial: OnTrial = lambda *told: None
    started: float = 0.0
    wall_seconds: float = 0.0
    status: Ending | None = None
    cause: str | None = None
    last_step: int = -1
    scores: dict[str, Any] = field(default_factory=dict)
    translated: str | None = None  # sha256 (hex) of the translations that were scored
    before: tuple[int, Mapping[str, str] | None] | None = None
    newest: list[Path | None] = field(default_factory=list)  # as `checkpoint` found it last
    lacks: str | None = None  # of what an earlier sweep left

    @classmethod
    def open(
        cls,
        variant: Variant,
        store: RunStore,
        schedule: str,
        scorer: str,
        final: bool,
        made_by: Mapping[str, str] | None = None,
        on_trial: OnTrial = lambda *told: None,
    ) -> Self:
        """Read what an earlier sweep left; one that stopped the trial by another rule is void."""
        store.retried(store.refresh)
        earlier = _read(store.folder / RESULT_NAME)
        # A kill may have left them of different ends: the one that got further is the newer.
        both = [each or {} for each in (earlier, _read(store.folder / TRAINED_BY_NAME))]
        ours = [each for each in both if each.get("fingerprint") == variant.fingerprint]
        known = max(ours, key=lambda each: each.get("trained_step") or 0, default={})
        if earlier:
            same = earlier["status"] == "finished" or earlier["schedule"] == schedule
            kept = final and earlier.get("room") in (None, _room(variant))  # None: an older one's
            again = earlier["status"] == "failed" and not kept
            if earlier["fingerprint"] != variant.fingerprint or not same or again:
                earlier = None
        record = cls(variant, store, schedule, scorer, earlier, final, made_by, on_trial)
        if lacks := record._lacks_checkpoint():
            record.lacks, record.earlier = lacks, None
        step = known.get("trained_step")
        if known and (step is None or lacks):  # of an earlier version, or not as far any more
            reached = checkpoint_step(newest) if (newest := record.checkpoint()) else None
            step = reached if step is None or reached is None else min(step, reached)
        record.before = None if step is None else (step, known.get("made_by"))
        return record

    @classmethod
    def open_all(cls, asked: Sequence[tuple[Variant, RunStore]], *how: Any) -> list[Self]:
        """`open` each, 16 at once, as each waits for a disk or a bucket; which lack a checkpoint is
        said. In their order."""
        with ThreadPool(16) as pool:
            records = list(pool.imap(lambda one: cls.open(*one, *how), asked))
        for record in records:
            if record.lacks:
                console.say(f"{record.variant.name}: {record.lacks}; it is trained again")
        return records

    def _lacks_checkpoint(self) -> str | None:
        """What of an earlier sweep's trial its scores are of and is not there any more."""
        if not self.earlier or self.earlier["status"] == "failed":
            return None
        if self.earlier["status"] == "finished":
            if not self._has_last_checkpoint():
                return f"{checkpoint_name(self.variant.config.train.steps)} is missing or damaged"
        elif self.earlier["scores"] or self.earlier.get("trained_step") is not None:
            newest, step = self.checkpoint(), self.earlier.get("scored_step")
            if newest is None:
                return "its checkpoints are missing or damaged"
            if step not in (None, checkpoint_step(newest)):
                return f"its scores are of step {step}, and its newest checkpoint is {newest.name}"
        return None

    def _trained_by(self) -> Mapping[str, str] | None:
        """What trained it last: this sweep's, if it has got further than it was before."""
        if self.earlier:
            return self.earlier.get("made_by")
        newest = self.checkpoint() if self.before else None
        if self.before and newest and checkpoint_step(newest) == self.before[0]:
            return self.before[1]
        return self.made_by

    def _has_last_checkpoint(self) -> bool:
        newest = self.checkpoint()
        return newest is not None and checkpoint_step(newest) == self.variant.config.train.steps

    @property
    def folder(self) -> Path:
        """Its journal and small files, as of the last `refresh` of the store."""
        return self.store.folder

    def start(self, at: float) -> None:
        """Tell once that the trial began; `at` and other times here are of time.monotonic."""
        if not self.started:
            self.started = at
            made_by = self.earlier.get("made_by") if self.earlier else self.made_by
            details = {"done_before": self.earlier is not None, "made_by": made_by}
            self.on_trial("started", self.variant, details)

    def report(self, result: dict[str, Any]) -> None:
        """Tell of a validation, once."""
        # A trial that was tried again tells the scheduler once more what it told before.
        if result["step"] > self.last_step:
            self.last_step = result["step"]
            self.on_trial("result", self.variant, result)

    def end(self, status: Ending, cause: str | None, at: float) -> None:
        """Tell once how the trial ended, and keep it in the folder unless it failed."""
        if self.status:
            return
        self.start(at)
        self.status, self.cause = status, cause
        # Who interrupts does not wait for a bucket, which may be why.
        hurried = cause == INTERRUPTED and is_address(self.store.location)
        if not hurried:
            if not self.earlier:  # nobody has trained it since `open`
                self.store.retried(self.store.refresh)
            self.made_by = self._trained_by()
        figures = self.figures()
        if hurried and self.before and figures.get("step", 0) <= self.before[0]:
            self.made_by = self.before[1]
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
            "made_by": self.made_by,
        }
        self.on_trial(status, self.variant, figures | details)

    def save(self) -> None:
        """Write result.json, and before it trained_by.json."""
        step = checkpoint_step(newest) if (newest := self.checkpoint()) else None
        trained = {
            "fingerprint": self.variant.fingerprint,
            "trained_step": step,
            "made_by": self.made_by,
        }
        self._write(TRAINED_BY_NAME, trained)
        content = trained | {
            "status": self.status,
            "cause": self.cause,
            "schedule": self.schedule,
            "wall_seconds": self.wall_seconds,
            "told_step": self.last_step if self.earlier is None else self.told_before(),
            "scores": self.scores,
            "scored_step": step if self.scores else None,
            "translations_sha256": self.translated,
            "scored_as": self._scored_as(bool(self.scores))[0],
            "room": _room(self.variant) if self.status == "failed" else None,
        }
        self._write(RESULT_NAME, content)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        with_retries(lambda: self.store.write(name, json.dumps(content, indent=2) + "\n"))

    def told_before(self) -> int | None:
        """The last validation by which an earlier sweep judged the trial; None: not known.

        Its journal may go on, as of a sweep before that one, in which nothing was stopped.
        """
        return (self.earlier or {}).get("told_step")

    def settle(self) -> None:
        """Keep in the folder that the trial has no figures, if it has none and that is final."""
        if self.final and self.cause:
            self.save()

    def reuse_cause(self) -> bool:
        """Take why there are no scores from an earlier sweep, if that is final."""
        if self.final:
            self.cause = self._scored_before().get("cause")
        return self.cause is not None

    def reuse_scores(self) -> bool:
        """Take what an earlier sweep scored in the same way, of these translations, if it did."""
        path, before = self.folder / TRANSLATIONS_NAME, self._scored_before()
        there = with_retries(lambda: sha256(path)) if path.exists() else None
        if there is not None and before.get("translations_sha256") == there:
            self.scores, self.translated = before.get("scores") or self.scores, there
        return bool(self.scores)

    def _scored_before(self) -> dict[str, Any]:
        """result.json, if what it says of scores was found in the same way; else empty."""
        before = self.earlier or {}
        same = before.get("scored_as") in self._scored_as(bool(before.get("scores")))
        return before if same else {}

    def keep_scores(self, figures: dict[str, Any]) -> None:
        """Write what `score` gave: translations first, since result.json says they are there."""
        self.scores = {key: value for key, value in figures.items() if key != "translations"}
        lines = "".join(f"{line}\n" for line in figures["translations"])
        self.translated = hashlib.sha256(lines.encode()).hexdigest()
        with_retries(lambda: self.store.write(TRANSLATIONS_NAME, lines))
        self.save()

    def _scored_as(self, has_scores: bool) -> list[str]:
        """What its scores, or that it has none, depend on besides the variant; then the same as
        earlier versions wrote it, with all of `data`, which makes texts that `scorer` knows."""
        # How many sentences are translated at once changes no score, but may be why there is none.
        same = ["evaluate.tokens_per_batch"] if has_scores else []
        config = self.variant.config
        own = configuration.fingerprint(config, "evaluate", without=same)
        own += f"-{config.data.source}-{config.data.target}"
        older = configuration.fingerprint(config, "evaluate", "data", without=same)
        # BLEU counts words by it. Where it is false nothing is added, so that older scores stay.
        case = "-lowercase" * config.prepare.lowercase
        return [f"{self.scorer}-{of}{case}" for of in (own, older)]

    def figures(self) -> dict[str, Any]:
        """The newest of each figure in the journal up to the checkpoint that is scored.

        What a trial that has ended otherwise has written beyond it is of steps that are lost. Of
        one that failed, or that has no checkpoint, it is all there is.
        """
        path, others = self.folder / JOURNAL_NAME, ("kind", "time")
        scored = None if self.status == "failed" else self.checkpoint()
        end = math.inf if scored is None else checkpoint_step(scored)
        return with_retries(
            lambda: {
                key: value
                for entry in journal.entries(path)
                if entry["step"] <= end
                for key, value in entry.items()
                if key not in others
            }
        )

    def ended_as(self) -> Ending:
        """How a trial ended that did not fail: a stopped one never got to the last step.

        Its journal alone may be of a training before, whose last checkpoint was lost since.
        """
        self.store.retried(self.store.refresh)
        finished = with_retries(lambda: read_summary(self.folder))
        return "finished" if finished and self._has_last_checkpoint() else "stopped early"

    def checkpoint(self) -> Path | None:
        """The newest whole one, perhaps not in the folder: `TrialResult.fetched`."""
        if self.earlier and self.newest:  # nobody trains it: it is looked for once
            return self.newest[0]
        files = with_retries(lambda: sorted(self.folder.glob("step-*/*")))
        stamps = [(str(file), (of := file.stat()).st_size, of.st_mtime_ns) for file in files]
        key = (self.store.location, tuple(stamps))
        # Of a bucket the files here may be older than what has been trained elsewhere since.
        if key not in _verified or not files or is_address(self.store.location):
            _verified[key] = with_retries(self.store.newest_checkpoint)
        self.newest = [_verified[key]]
        return self.newest[0]

    def result(self) -> TrialResult:
        """All of it, once the trial has ended."""
        assert self.status is not None
        figures = self.figures()
        return TrialResult(
            variant=self.variant.trained_with(figures.get("tokens_per_pass")),
            store=self.store,
            status=self.status,
            cause=self.cause,
            steps=int(figures.get("step", 0)),
            checkpoint=self.checkpoint(),
            metrics=figures | self.scores,
            journal=self.folder / JOURNAL_NAME,
            translations=self.folder / TRANSLATIONS_NAME,
            wall_seconds=self.wall_seconds,
            nodes=nodes_of(self.folder),
            origin={key: figures[key] for key in hardware.ORIGIN if key in figures},
            made_by=self.made_by,
        )


def _room(variant: Variant) -> dict[str, Any]:
    values = configuration.flatten(variant.config, "train", "sweep")
    return {key: values[key] for key in ROOM}


def _read(path: Path) -> dict[str, Any] | None:
    """What `TrialRecord.save` wrote there, if it is there whole."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def nodes_of(folder: Path) -> list[str]:
    """The nodes that a trial of one worker ran on, in the order in which it came there last."""
    came: dict[str, float] = {}
    for path in (folder / NODES_NAME).glob("[!.]*"):  # not what a kill has left half written
        with contextlib.suppress(ValueError):  # nor what somebody else has put there
            came[path.name] = float(path.read_text())
    return sorted(came, key=lambda name: came[name])


_verified: dict[tuple[str, tuple[tuple[str, int, int], ...]], Path | None] = {}
"""The newest checkpoint by location and files: each round of a search asks for all trials, and
files that are as they were are not read again."""
