"""What the sweep takes: the sum, and each of its variants."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from seq2sweep.config import Config
from seq2sweep.planning.devices import Device
from seq2sweep.planning.memory import memory
from seq2sweep.planning.speed import (
    BETWEEN_TRIALS,
    Speed,
    decoding_seconds,
    training_parts,
)
from seq2sweep.planning.workload import Workload, parameters, training
from seq2sweep.sweep.variants import Refused, Variant, base_of, variants


@dataclass(frozen=True)
class Row:
    """A variant with all its seeds.

    seconds: of one of its trainings, with validation, checkpoints and its score; None: not known.
    least_seconds: the same, if it is stopped at its first rung. steps: of one training; memory:
    bytes that one of its workers needs.
    """

    variant: str
    trainings: int
    parameters: int
    steps: int
    flops: float
    memory: float
    seconds: float | None
    least_seconds: float | None


@dataclass(frozen=True)
class Sweep:
    """at_most: whether early stopping may make it less. slots: trainings at once. seconds and
    least_seconds: of all; the latter if every trial but one is stopped at its first rung."""

    method: str
    rows: list[Row]
    refused: list[dict[str, str]]
    slots: int
    at_most: bool
    flops: float
    seconds: float | None
    least_seconds: float | None
    note: str | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def sweep(config: Config, load: Workload, speed: Speed | None, slots: int, device: Device) -> Sweep:
    """The sweep of `config` with `slots` trainings at once, each at `speed` on such devices.

    Raises UserError for an entry of the section that cannot be.
    """
    found, refused = variants(config, load.train)
    stops = config.sweep.scheduler != "none" and bool(found)
    rows = [_row(group, load, speed, device) for group in _by_variant(found)]
    note = None
    if config.sweep.method == "none":
        note = "to train variants too, set sweep.method, such as --set sweep.method=table3"
    if config.sweep.method == "optuna":
        base, asked = rows[0], config.sweep.samples * config.sweep.seeds
        flops = base.flops / base.trainings * asked
        rows.append(replace(base, variant="proposals", trainings=asked, flops=flops))
        note = "what Optuna will propose is not known: its trials are counted as the base variant"
    return Sweep(
        config.sweep.method,
        rows,
        [_refused(one) for one in refused],
        slots,
        stops,
        sum(row.flops for row in rows),
        _all([row.seconds for row in rows], rows, slots),
        _least(rows, slots) if stops else None,
        note,
    )


def base_of_sweep(config: Config, load: Workload) -> Config:
    """The variant that the others are compared with."""
    found = variants(config, load.train)[0]
    return found[0].config if found else base_of(config)


def count(config: Config, load: Workload) -> int:
    """Trainings of the sweep in all."""
    found = len(variants(config, load.train)[0])
    asked = config.sweep.samples * config.sweep.seeds
    return found + asked * (config.sweep.method == "optuna")


def checkpoint_bytes(config: Config, load: Workload) -> int:
    """What the trials keep in the end, each its newest checkpoints."""
    found = variants(config, load.train)[0]
    each = [v.config.train.keep_checkpoints * 12 * parameters(v.config.model, load) for v in found]
    return sum(each) * count(config, load) // len(found) if found else 0


def makespan(seconds: Sequence[float], slots: int) -> float:
    """When the last of some works ends, each begun in turn in the place that is free first."""
    if not seconds:
        return 0.0
    places = [0.0] * max(1, min(slots, len(seconds)))
    for each in seconds:
        heapq.heapreplace(places, places[0] + each + BETWEEN_TRIALS)
    return max(places)


def _by_variant(found: Sequence[Variant]) -> list[list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in found:
        groups.setdefault(variant.variant, []).append(variant)
    return list(groups.values())


def _row(group: Sequence[Variant], load: Workload, speed: Speed | None, device: Device) -> Row:
    config, number = group[0].config, len(group)
    whole, count = training(config, load), parameters(config.model, load)
    seconds = least = None
    workers = config.sweep.workers_per_trial
    needed = memory(config, load, workers=workers, precision=device.precision, gpu=device.gpu)
    if speed is not None:
        parts = training_parts(config, whole, speed, workers, count)
        trained = sum(part.seconds or 0.0 for part in parts)
        score = decoding_seconds(config, load, load.valid, speed)
        seconds = trained + score
        first_rung = max(config.sweep.grace_steps, config.train.warmup_steps)
        least = trained * min(1.0, first_rung / whole.steps) + score
    return Row(
        group[0].variant,
        number,
        count,
        whole.steps,
        number * whole.flops,
        needed.needed,
        seconds,
        least,
    )


def _all(seconds: Sequence[float | None], rows: Sequence[Row], slots: int) -> float | None:
    known = [
        each
        for each, row in zip(seconds, rows, strict=True)
        if each is not None
        for _ in range(row.trainings)
    ]
    return makespan(known, slots) if known or not rows else None


def _least(rows: Sequence[Row], slots: int) -> float | None:
    """One trial goes to its end, the shortest."""
    ends = [row.seconds for row in rows if row.seconds is not None]
    if not ends:
        return None
    shortened = _all([row.least_seconds for row in rows], rows, slots)
    return max(min(ends), shortened or 0.0)


def _refused(one: Refused) -> dict[str, str]:
    return {"variant": one.name, "cause": one.cause}
