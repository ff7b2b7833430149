"""What each trial of a sweep runs. Ray imports this module there: nothing happens on import."""

from __future__ import annotations

import json
import math
import traceback
from pathlib import Path
from typing import Any

import torch
from ray import tune

from seq2sweep import config as configuration
from seq2sweep.cluster.storage import (
    JOURNAL_NAME,
    Recorder,
    checkpoint_name,
    checkpoint_step,
    remove_all_but_newest,
    resume_point,
)
from seq2sweep.cluster.worker import one_line, use_threads
from seq2sweep.train import journal
from seq2sweep.train.events import CheckpointDue, Finished, Validated
from seq2sweep.train.loop import train

METRIC = "valid_perplexity"
FAILURE_NAME = "failure.json"


def run_trial(assignment: dict[str, int], trials: list[dict[str, Any]]) -> None:
    """Train variant `trials[assignment["index"]]` in this process, reporting validations to Tune.

    A trial is described by `config` (nested dictionaries), `encoded` and `folder` (absolute
    paths), `cpus`, `gpus`, and `done`: it ended in an earlier sweep of this name.
    """
    settings = trials[assignment["index"]]
    folder = Path(settings["folder"])
    if settings["done"]:
        _report_again(folder, before=math.inf)
        return
    (folder / FAILURE_NAME).unlink(missing_ok=True)
    try:
        _train(settings, folder)
    except Exception as error:
        content = {"cause": one_line(error), "traceback": traceback.format_exc()}
        (folder / FAILURE_NAME).write_text(json.dumps(content, indent=2), encoding="utf-8")
        raise


def _train(settings: dict[str, Any], folder: Path) -> None:
    """Train from the newest checkpoint on.

    Tune stops a trial inside a report, and nothing after it runs. So a validation is reported
    when all else of its step, the checkpoint or the end, is on disk.
    """
    config = configuration.from_dict(settings["config"])
    # Where Tune may stop a trial there must be a checkpoint, or its BLEU would be of another step
    # than its perplexity.
    config = configuration.with_changes(
        config, {"train.checkpoint_every": config.train.validate_every}
    )
    use_threads(settings["cpus"])
    resume = resume_point(folder)
    done = checkpoint_step(resume) if resume else 0
    unreported = _report_again(folder, before=min(done + 1, config.train.steps))
    recorder = Recorder(folder / JOURNAL_NAME)
    for event in train(
        config,
        Path(settings["encoded"]),
        device=torch.device("cuda" if settings["gpus"] else "cpu"),
        resume=resume,
    ):
        recorder.append(event)
        if isinstance(event, CheckpointDue):
            event.write(folder / checkpoint_name(event.step))
            remove_all_but_newest(folder, config.train.keep_checkpoints)
        if isinstance(event, Validated):
            unreported = _result(event.step, event.metrics[METRIC])
        if unreported and _ends_step(event, config):
            tune.report(unreported)
            unreported = {}
    recorder.close()


def _ends_step(event: object, config: configuration.Config) -> bool:
    """Whether the loop yields nothing more at this step that a stopped trial must have kept."""
    if isinstance(event, Finished):
        return True
    if not isinstance(event, Validated | CheckpointDue) or event.step == config.train.steps:
        return False
    due = event.step % config.train.checkpoint_every == 0
    return isinstance(event, CheckpointDue) == due


def _report_again(folder: Path, before: float) -> dict[str, float]:
    """Tell the scheduler what it was told before, since it keeps no scores between sweeps.

    Reports validations of steps below `before`; the next one, if the journal has it, is returned.
    """
    entries, _ = journal.read(folder / JOURNAL_NAME)
    for entry in entries:
        if entry["kind"] != "validated":
            continue
        # The journal writes null for what is no number.
        value = entry[METRIC]
        result = _result(entry["step"], math.inf if value is None else value)
        if entry["step"] >= before:
            return result
        tune.report(result)
    return {}


def _result(step: int, perplexity: float) -> dict[str, float]:
    return {"step": step, METRIC: perplexity}
