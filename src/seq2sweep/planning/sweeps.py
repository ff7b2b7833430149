"""What the sweep takes: the sum, and each of its variants."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from seq2sweep.config import Config
from seq2sweep.hardware import Precision
from seq2sweep.planning.machine import Machine
from seq2sweep.planning.memory import memory, sized
from seq2sweep.planning.speed import EXACT, Part, bounds, scored_seconds, training_parts
from seq2sweep.planning.workload import Workload, training
from seq2sweep.sweep.early_stopping import Rungs
from seq2sweep.sweep.variants import (
    Variant,
    in_one_precision,
    variants,
    with_trials_checkpoints,
)

BETWEEN_TRIALS = 0.3
"""Seconds from a trial to the next in the same place."""


@dataclass(frozen=True)
class Row:
    """A variant with all its seeds.

    seconds: of one of its trainings, with validation, checkpoints and its score, where it is
    scored, or its share of the scores that are made at once in its place; None: not known.
    least_seconds: the same, if it is stopped as early as it may be. steps: of one training;
    precision: that it is trained in; memory: bytes that one of its workers needs; checkpoint_bytes:
    what all of them keep in the end. how: where the rate is from; about: whether it is no more than
    about right; span: how many times as long it may take, at least and at most.
    """

    variant: str
    trainings: int
    parameters: int
    steps: int
    precision: Precision
    flops: float
    memory: float
    checkpoint_bytes: int
    seconds: float | None
    least_seconds: float | None
    how: str | None
    about: bool
    span: tuple[float, float]


@dataclass(frozen=True)
class Sweep:
    """at_most: whether early stopping may make it less. slots: trainings at once. seconds and
    least_seconds: of all; the latter if all but the base's are stopped as early as they may be.
    span: how many times `seconds` it may take, at least, with early stopping, and at most."""

    method: str
    rows: list[Row]
    refused: list[dict[str, str]]
    slots: int
    at_most: bool
    flops: float
    seconds: float | None
    least_seconds: float | None
    span: tuple[float, float]
    note: str | None


def sweep(config: Config, load: Workload, machine: Machine) -> Sweep:
    """The sweep of `config` on a machine.

    Raises UserError for an entry of the section that cannot be.
    """
    config = in_one_precision(config, machine.device.resolve)
    found, refused = variants(config, load.train)
    rungs = _rungs(config, found)
    trainings = Counter(each.variant for each in found)
    first = {each.variant: each for each in reversed(found)}
    scores = _scores_at_once(config, found, machine.slots)
    rows = [
        # The base's trials go to their end.
        _row(name, count, one, rungs if one.changes else [], load, machine, scores)
        for name, count in trainings.items()
        for one in [first[name]]
    ]
    note = None
    if config.sweep.method == "none":
        note = "to train variants too, set sweep.method, such as --set sweep.method=table3"
    if config.sweep.method == "optuna":
        asked = config.sweep.samples * config.sweep.seeds
        rows.append(_row("proposals", asked, found[0], rungs, load, machine, scores))
        note = "what Optuna will propose is not known: its trials are counted as the base variant"
    each = [row for row in rows for _ in range(row.trainings)]
    turns = _turns(config, found, each)
    if config.sweep.scheduler == "none":  # as `tune_runner` begins them
        turns = [sorted(turn, key=lambda row: -row.steps) for turn in turns]
    ends = [row.seconds for row in each if row.seconds is not None]
    # They are known of all rows or of none.
    all_ended, all_stopped = (
        sum(makespan([getattr(row, key) or 0.0 for row in turn], machine.slots) for turn in turns)
        for key in ("seconds", "least_seconds")
    )
    searched = config.sweep.method == "optuna"  # what it proposes is counted as the base
    stops = any(
        _stopped_at(one.config, rungs) < one.config.train.steps
        for one in found
        if one.changes or searched
    )
    least = all_stopped if stops and ends else None
    most = all_ended if ends or not rows else None
    low, high = (
        sum((row.seconds or 0.0) * row.span[side] for row in each) / sum(ends) if ends else 1.0
        for side in (0, 1)
    )
    return Sweep(
        config.sweep.method,
        rows,
        [{"variant": one.name, "cause": one.cause} for one in refused],
        max(1, min(machine.slots, max(map(len, turns)))),
        stops,
        sum(row.flops for row in rows),
        most,
        least,
        (low * least / most if least and most else low, high),
        note,
    )


def _turns(config: Config, found: Sequence[Variant], each: Sequence[Row]) -> list[Sequence[Row]]:
    """Trainings of which none begins before all of the turn before it have ended: Optuna's rounds,
    the base in the first of them, and the tries of learning rates before what is trained at the
    best. found: what is known of `each`, which is in order."""
    settings = config.sweep
    size = settings.round * settings.seeds
    tries = sum(not one.scored for one in found)
    begins = range(len(found) + size, len(each), size) if settings.method == "optuna" else [tries]
    return [each[first:last] for first, last in pairwise([0, *begins, len(each)])]


def _scores_at_once(config: Config, found: Sequence[Variant], slots: int) -> int:
    """In the place of one trial: each takes what one worker has, but no more than there are."""
    settings = config.sweep
    scored = sum(one.scored for one in found)
    if settings.method == "optuna":
        scored += settings.seeds * min(settings.round, settings.samples)
    return max(1, min(settings.workers_per_trial, -(-scored // slots)))


def _rungs(config: Config, found: Sequence[Variant]) -> list[int]:
    """Steps at which trials may be compared; none without early stopping."""
    settings = config.sweep
    if settings.scheduler == "none":
        return []
    longest = max((one.config.train.steps for one in found), default=0)
    return Rungs(
        settings.scheduler,
        len(found),
        grace_steps=settings.grace_steps,
        reduction_factor=settings.reduction_factor,
        longest=longest,
    ).steps


def _stopped_at(config: Config, rungs: Sequence[int]) -> int:
    """Steps after which early stopping may end a training at the earliest; all of them where no
    rung that counts comes before its end."""
    often, last = config.train.validate_every, config.train.steps
    rung = next((rung for rung in rungs if rung >= config.warmup_steps), last)
    # It is judged by its first validation at the rung or after it.
    return min(-(-rung // often) * often, last)


def makespan(seconds: Sequence[float], slots: int) -> float:
    """When the last of some works ends, each begun in turn in the place that is free first."""
    if not seconds:
        return 0.0
    places = [0.0] * max(1, min(slots, len(seconds)))
    for each in seconds:
        heapq.heapreplace(places, places[0] + each + BETWEEN_TRIALS)
    return max(places)


def _row(
    name: str,
    number: int,
    variant: Variant,
    rungs: list[int],
    load: Workload,
    machine: Machine,
    scores: int,
) -> Row:
    config = with_trials_checkpoints(variant.config)
    machine = replace(machine, device=machine.device.in_precision_of(config))
    seconds = least = None
    span = EXACT
    workers, device = config.sweep.workers_per_trial, machine.device
    room = machine.trial_memory(config)
    config, _ = sized(config, load, device, workers, room)
    whole = training(config, load)
    needed = memory(config, load, device, workers)
    kept = min(config.train.keep_checkpoints, whole.checkpoints)
    speed, scorer = (machine.trial_speed(config, load, one=one) for one in (False, True))
    if speed is not None and scorer is not None:
        parts = training_parts(config, whole, speed, workers)
        trained = sum(part.seconds or 0.0 for part in parts)
        # Tries of a learning rate are not.
        score = scored_seconds(config, load, load.valid, scorer) if variant.scored else 0.0
        score /= scores
        seconds = trained + score
        low, high = bounds([*parts, Part("score", score, "", scorer.span)])
        span = low / seconds, high / seconds
        least = trained * _stopped_at(config, rungs) / whole.steps + score
    return Row(
        name,
        number,
        whole.parameters,
        whole.steps,
        device.precision,
        number * whole.flops,
        needed.needed,
        number * kept * 4 * (1 + config.moments) * whole.parameters,
        seconds,
        least,
        speed.how if speed else None,
        speed is not None and speed.about,
        span,
    )
