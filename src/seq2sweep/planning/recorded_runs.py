"""The finished trainings in `cluster.storage`: how fast each was, and what it trained."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seq2sweep.errors import UserError
from seq2sweep.hardware import cpu_features
from seq2sweep.paths import read_json
from seq2sweep.planning.workload import kind_of
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoints
from seq2sweep.runs.warm_start import RUN_NAME


@dataclass(frozen=True)
class Run:
    """A finished training, as its journal has it.

    each: threads of a worker, 1 with a GPU. flops_per_second: of one worker; flops_per_token: of a
    token of either side, of which an update has tokens_per_update; ended: unix seconds; kind: as of
    `workload.kind_of`, as far as its folder says.
    """

    device: str
    precision: str
    workers: int
    each: int
    flops_per_second: float
    flops_per_token: float
    tokens_per_update: float
    ended: float
    kind: Mapping[str, str] = field(default_factory=dict)


def recorded_runs(storage: Path, *, trials: bool) -> list[Run]:
    """The finished trainings below `cluster.storage`; of CPUs only those of processors like this.

    trials: those of sweeps too. A journal that is damaged, or of an earlier version, is left out,
    and so is a run that had other workers before, whose rate is that of neither: its checkpoints
    say so. An interruption is in no journal, so of a part without a regular checkpoint only another
    number of workers is noticed, by the hours of all of them.
    """
    paths = list(storage.glob(f"*/{JOURNAL_NAME}"))
    if trials:
        paths += storage.glob(f"*/trials/*/{JOURNAL_NAME}")
    found = []
    for path in paths:
        trained_by: dict[int, list[Any]] = {}
        with contextlib.suppress(UserError, OSError, KeyError, TypeError, ZeroDivisionError):
            for end in journal.entries(path, "checkpoint", "finished"):
                if end["kind"] == "checkpoint" and "cpu_features" not in end:
                    continue  # of an earlier version
                gpu = end["device"] != "CPU"
                own = ["workers"] if gpu else ["workers", "threads", "cpu_features"]
                # A step that is trained again counts as it was the last time.
                trained_by[end["step"]] = workers = [end["device"], *(end[key] for key in own)]
                if end["kind"] == "checkpoint" or any(w != workers for w in trained_by.values()):
                    continue
                alike = end["workers"] * end["train_seconds"] / 3600
                if not math.isclose(end["device_hours"], alike, rel_tol=1e-6):
                    continue
                if not gpu and end["cpu_features"] != cpu_features():
                    continue
                tokens = end["source_tokens"] + end["target_tokens"]
                run = Run(
                    end["device"].removeprefix("NVIDIA "),
                    end["precision"],
                    int(end["workers"]),
                    1 if gpu else int(end["threads"]),
                    end["flops_per_second"],
                    end["flops"] / tokens,
                    tokens / end["step"],
                    end["time"],
                    _kind(path.parent),
                )
                found.append(run)
    return found


def _kind(folder: Path) -> dict[str, str]:
    """By run.json; a trial has none, and its newest checkpoint knows of the model alone. Empty
    where neither says: of an earlier version, or not here."""
    if told := _kind_in(folder / RUN_NAME, "model", "train"):
        return told
    with contextlib.suppress(OSError):
        for checkpoint in reversed(checkpoints(folder)):
            if told := _kind_in(checkpoint / "state.json", "model"):
                return told
    return {}


def _kind_in(path: Path, *sections: str) -> dict[str, str]:
    """By the `identity` of a file, which has these sections whole; empty where it has no model."""
    with contextlib.suppress(UserError, OSError, AttributeError):
        identity = read_json(path)["identity"].items()
        own = {key: value for key, value in identity if key.partition(".")[0] in sections}
        return kind_of(own) if any(key.startswith("model.") for key in own) else {}
    return {}
