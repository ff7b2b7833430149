"""Sweeps: Ray Tune runs the trials (tune_runner.py); what they leave on disk is ours.

Each variant has a place `<cluster.storage>/<name>/trials/<slug>/` with its journal, its
checkpoints and, once it has ended, result.json. A sweep that is run again under the same name
reads those, so it owes nothing to the state of the Tune run before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray

from seq2sweep import console
from seq2sweep.cluster import session
from seq2sweep.cluster.failures import describe
from seq2sweep.cluster.train_worker import use_threads
from seq2sweep.cluster.tune_runner import Room, train_all
from seq2sweep.cluster.tune_trial import FAILURE_NAME, validations
from seq2sweep.config import Config, is_address
from seq2sweep.errors import UserError
from seq2sweep.runs.layout import run_folder
from seq2sweep.runs.remote_run_store import driver_store, worker_store
from seq2sweep.runs.run_store import RunStore
from seq2sweep.sweep.early_stopping import Rungs
from seq2sweep.sweep.trial_record import INTERRUPTED, OnTrial, TrialRecord, TrialResult
from seq2sweep.sweep.variants import Variant

__all__ = ["TrialResult", "Variant", "run_sweep"]

Score = Callable[[Config, Path, Path], dict[str, Any]]


def run_sweep(
    config: Config,
    variants: Sequence[Variant],
    *,
    encoded: Path,
    project: Path,
    name: str,
    score: Score,
    scorer: str = "",
    final: bool = False,
    on_trial: OnTrial,
) -> list[TrialResult]:
    """Train all variants inside a `ray_session`, then score their checkpoints.

    config: whose `sweep` made the variants, all of different fingerprints.
    name: of the sweep in cluster.storage; trials that ended under it are not trained again.
    score: `score(config, checkpoint, encoded)` of an importable module; it runs in Ray's
    processes, several at once, and gives figures of a checkpoint on the validation set; its
    `translations`, one a line, are kept in the trial's folder.
    scorer: names the code behind `score`; scores that other code gave are not used again.
    final: a trial that failed, or whose scoring did, is not tried again by the next call that says
    so too: what follows from it must stay as it is.
    on_trial: called in this thread with an event, its variant and figures. Each variant has one
    "started" and one "finished", "stopped early" or "failed", whatever happens, with "result" for
    every validation between them; then "scored" if it has a checkpoint.

    Results come in the order of the variants. A failed trial is a result, not an error.
    Raises UserError when a trial does not fit the cluster.
    """
    _check(config)
    Room(config.sweep).require()
    folder = run_folder(config.cluster, project, name)
    schedule = _schedule(config)
    folder.mkdir(parents=True, exist_ok=True)
    store = driver_store(config.cluster.storage, folder)
    with store.driving():
        records = [
            TrialRecord.open(
                variant, store.child(f"trials/{variant.slug}"), schedule, scorer, final
            )
            for variant in variants
        ]
        rungs = _rungs(config, records)
        _forget_stops(records, rungs)
        data = store.publish(encoded.resolve())
        _train_records(config, records, data, store, rungs, on_trial)
        _score_all(config, records, data, score, on_trial)
        for record in records:
            record.settle()
    return [record.result() for record in records]


def _check(config: Config) -> None:
    """Raise UserError where trials of several workers have no folder that all nodes see."""
    storage = config.cluster.storage
    if is_address(storage) and config.sweep.workers_per_trial > 1:
        raise UserError(
            f"cluster.storage is {storage}, and trials of several workers need a folder that all "
            "nodes see: set one, or set sweep.workers_per_trial to 1"
        )


def _train_records(
    config: Config,
    records: list[TrialRecord],
    data: dict[str, str],
    sweep: RunStore,
    rungs: Rungs | None,
    on_trial: OnTrial,
) -> None:
    """Train what no earlier sweep has; when this returns or raises, each record has an end."""
    try:
        for record in records:
            if record.earlier:
                cause = record.earlier["cause"] if record.earlier["status"] == "failed" else None
                record.end(record.earlier["status"], cause, on_trial, time.monotonic())
        if not all(record.status for record in records):
            train_all(config, records, data, sweep, rungs, on_trial)
    finally:
        for record in records:
            if record.started and not record.status:
                record.end("failed", INTERRUPTED, on_trial, time.monotonic())


def _schedule(config: Config) -> str:
    """What decides whether a trial is stopped, as text."""
    sweep = config.sweep
    if sweep.scheduler == "none":
        return "none"
    rungs = f"from {sweep.grace_steps} by {sweep.reduction_factor}"
    return f"{sweep.scheduler} {rungs}, in order, after warm-up"


def _rungs(config: Config, records: list[TrialRecord]) -> Rungs | None:
    """What stops trials, told of all that earlier sweeps have seen of them; None: nothing does."""
    sweep = config.sweep
    if sweep.scheduler == "none":
        return None
    rungs = Rungs(
        sweep.scheduler,
        len(records),
        grace_steps=sweep.grace_steps,
        reduction_factor=sweep.reduction_factor,
        longest=max(record.variant.config.train.steps for record in records),
        warmup_steps=[record.variant.config.train.warmup_steps for record in records],
    )
    for index, record in enumerate(records):
        for step, perplexity in validations(record.folder):
            rungs.report(index, step, perplexity)
        if record.earlier or (record.folder / FAILURE_NAME).exists():
            rungs.end(index)
    return rungs


def _forget_stops(records: list[TrialRecord], rungs: Rungs | None) -> None:
    """A trial that an earlier sweep stopped resumes if it would not be stopped in this one."""
    for index, record in enumerate(records):
        stopped = record.earlier is not None and record.earlier["status"] == "stopped early"
        if stopped and (rungs is None or rungs.goes_on(index) is not False):
            record.earlier = None
    for index, record in enumerate(records):
        if rungs is not None and record.earlier is None:
            rungs.begin_again(index)


# --- scoring -------------------------------------------------------------------------------------


def _score_all(
    config: Config,
    records: list[TrialRecord],
    data: dict[str, str],
    score: Score,
    on_trial: OnTrial,
) -> None:
    """Score each newest checkpoint in a Ray task of its own; what was scored so before is read."""
    sweep = config.sweep
    task = ray.remote(num_cpus=sweep.cpus_per_trial, num_gpus=sweep.gpus_per_trial, max_retries=1)(
        _score_one
    )
    waiting: dict[Any, TrialRecord] = {}
    for record in records:
        if record.status == "failed" or record.reuse_cause():
            continue
        checkpoint = record.checkpoint()
        if checkpoint is None:
            record.cause = "ended before its first checkpoint: lower train.validate_every"
        elif record.reuse_scores():
            on_trial("scored", record.variant, record.scores)
        else:
            place = (record.store.location, record.store.attempt, checkpoint.name)
            reference = task.remote(score, record.variant.config, place, data, sweep.cpus_per_trial)
            waiting[reference] = record
    while waiting:
        session.require_alive()
        console.doing(f"scoring, {len(waiting)} trials to go")
        ready, _ = ray.wait(list(waiting), timeout=1.0)
        for reference in ready:
            record = waiting.pop(reference)
            try:
                figures = dict(ray.get(reference))
            except ray.exceptions.RayError as error:
                cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
                if isinstance(cause, UserError):
                    raise cause from None
                # The others' scores are not lost for this one.
                record.cause = f"not scored: {describe(error)}"
                continue
            record.keep_scores(figures)
            on_trial("scored", record.variant, record.scores)


def _score_one(
    score: Score, config: Config, place: tuple[str, str, str], data: dict[str, str], cpus: float
) -> dict[str, Any]:
    location, attempt, checkpoint = place
    store = worker_store(location, attempt)
    use_threads(cpus)
    return score(config, store.fetch(checkpoint), store.data(data))
