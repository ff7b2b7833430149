"""The whole plan: stages, data, model, memory, time and cost, as one dictionary."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.hardware import paper_rule
from seq2sweep.planning import data, machine, stages, sweeps
from seq2sweep.planning.machine import Machine
from seq2sweep.planning.memory import advice, memory
from seq2sweep.planning.speed import START_SECONDS, Part, Speed, decoding_seconds, training_parts
from seq2sweep.planning.stages import Stage
from seq2sweep.planning.sweeps import Sweep
from seq2sweep.planning.workload import Workload, parameters, training, workload
from seq2sweep.table1.rows import timing_seconds

NO_DVC = "unknown, as there is no dvc.yaml here"
RAW = Path("data/raw")
ENCODED = Path("data/encoded")


def plan(project: Path, *, on: str | None = None, mfu: float | None = None) -> dict[str, Any]:
    """What `dvc repro` in `project`, the working directory, will run, need, take and cost.

    on: devices such as `8 x P100`; else this machine's GPUs or CPUs. mfu: share of the devices'
    peak that training reaches, instead of what recorded runs reached or what is assumed.

    Keys: stages, data (`data.data_plan`), device, training, memory, sweep, total, notes;
    docs/plan.md describes them. Nothing in the project is changed.

    Raises UserError for what cannot be planned, OperationalError when DVC fails.
    """
    if mfu is not None and not 0 < mfu <= 1:
        raise UserError(f"--mfu is {mfu:g}: it must be above 0 and at most 1")
    config = configuration.load(project / "params.yaml")
    given = machine.parse(on, config, project) if on is not None else None
    found = stages.stages(project) or [Stage(name, True, NO_DVC) for name in START_SECONDS]
    runs = {stage.name for stage in found if stage.runs}
    made = {stage.name for stage in found} - runs
    pairs = data.known_pairs(config, RAW if "download" in made else None)
    load = workload(config, pairs, ENCODED if "encode" in made else None)
    here = machine.planned(config, given, project, mfu)
    of_sweep = sweeps.sweep(config, load, here)
    about = data.data_plan(config, _checkpoint_bytes(config, load, of_sweep, runs), runs, pairs)
    times = _parts(config, about, load, here, of_sweep)
    listed = [
        {
            "stage": stage.name,
            "runs": stage.runs,
            "why": stage.why,
            "seconds": _sum(times[stage.name]),
            "parts": [asdict(part) for part in times[stage.name]],
        }
        for stage in found
        if stage.name in times
    ]
    return {
        "stages": listed,
        "data": about,
        "device": _device(config, load, here),
        "training": _training(config, load, here, times["train"]),
        "memory": _memory(config, load, here),
        "sweep": _sweep(of_sweep, here),
        "total": _total(listed, here, of_sweep, here.training_speed(config, load)),
        "notes": here.notes + _too_large(config, here, of_sweep),
    }


def _parts(
    config: Config, about: dict[str, Any], load: Workload, here: Machine, of_sweep: Sweep
) -> dict[str, list[Part]]:
    """The time of each stage, part by part."""
    parts = {
        name: [Part("start and end", seconds, "stated")] for name, seconds in START_SECONDS.items()
    }
    for name, seconds in about["seconds"].items():
        parts[name].append(Part("work", seconds, "at rates measured elsewhere"))
    speed, decoder = here.training_speed(config, load), here.decoding_speed(config, load)
    if speed is None or decoder is None:
        unknown = Part("work", None, "the devices are not here")
        parts["train"].append(unknown)
        parts["evaluate"].append(unknown)
    else:
        found, count = training(config, load), parameters(config.model, load)
        parts["train"] += training_parts(config, found, speed, here.workers, count)
        decoding = decoding_seconds(config, load, load.test, decoder)
        how = f"{len(load.test[0]):,} sentences"
        parts["evaluate"].append(Part("decoding and scores", decoding, how))
    trials = sum(row.trainings for row in of_sweep.rows)
    how = f"{trials} trainings, {of_sweep.slots} at once"
    parts["sweep"].append(Part("trials", of_sweep.seconds, how))
    parts["table1"].append(Part("timings", timing_seconds(config.table1), "at rates elsewhere"))
    return parts


def _device(config: Config, load: Workload, here: Machine) -> dict[str, Any]:
    device, speed = here.device, here.training_speed(config, load)
    rate = speed.flops_per_second if speed else None
    return asdict(device) | {
        "workers": here.workers,
        "flops_per_second": rate,
        "mfu": rate / (device.count * device.peak) if rate and device.peak else None,
        "how": speed.how if speed else None,
        "about": speed.about if speed else None,
    }


def _training(config: Config, load: Workload, here: Machine, parts: list[Part]) -> dict[str, Any]:
    found, device = training(config, load), here.device
    updates = next((part.seconds for part in parts if part.part == "updates"), None)
    target_tokens = found.target_tokens_per_update * found.steps
    return {
        "parameters": parameters(config.model, load),
        "vocabulary_size": load.vocabulary_size,
        "steps": found.steps,
        "source_tokens": found.source_tokens_per_update * found.steps,
        "target_tokens": target_tokens,
        "flops": found.flops,
        "paper_rule_flops": paper_rule(updates, device.count, device.name) if updates else None,
        "target_tokens_per_second": target_tokens / updates if updates else None,
        "lengths": load.origin,
    }


def _memory(config: Config, load: Workload, here: Machine) -> dict[str, Any]:
    device, workers = here.device, here.workers
    found = memory(config, load, workers=workers, precision=device.precision, gpu=device.gpu)
    fits = None if device.memory is None else found.needed <= device.memory
    return asdict(found) | {
        "needed": found.needed,
        "available": device.memory,
        "fits": fits,
        "advice": advice(found, device.memory, config, workers)
        if device.memory is not None and not fits
        else None,
    }


def _sweep(of_sweep: Sweep, here: Machine) -> dict[str, Any]:
    per_trial = here.trial_devices
    rows = [
        asdict(row) | _bill(row.seconds, row.trainings * per_trial, here) for row in of_sweep.rows
    ]
    return asdict(of_sweep) | {"rows": rows}


def _too_large(config: Config, here: Machine, of_sweep: Sweep) -> list[str]:
    """A note on the variants that do not fit the device, or their share of it."""
    device = here.device
    if not device.gpu or device.memory is None:
        return []
    room = device.memory * min(1.0, config.sweep.gpus_per_trial or 1.0)
    names = [row.variant for row in of_sweep.rows if row.memory > room]
    said = f"these trials need more memory than there is ({', '.join(names)}): "
    return [said + "lower train.tokens_per_pass"] * bool(names)


def _total(
    listed: list[dict[str, Any]], here: Machine, of_sweep: Sweep, speed: Speed | None
) -> dict[str, Any]:
    """Of the stages that run; the devices are held in train, evaluate and sweep.

    speed: of the training. about: whether a rate of what runs may be off by a factor of two.
    """
    running = {stage["stage"]: stage["seconds"] for stage in listed if stage["runs"]}
    held = [running[name] for name in ("train", "evaluate", "sweep") if name in running]
    seconds = None if None in running.values() else sum(running.values())
    stops = of_sweep.at_most and "sweep" in running
    least = None
    if stops and seconds and of_sweep.seconds and of_sweep.least_seconds:
        least = seconds - of_sweep.seconds + of_sweep.least_seconds
    of_training = speed is not None and speed.about and bool(running.keys() & {"train", "evaluate"})
    of_trials = "sweep" in running and any(row.about for row in of_sweep.rows)
    return {
        "seconds": seconds,
        "about": of_training or of_trials,
        "at_most": stops,
        "least_seconds": least,
        **_bill(None if None in held else sum(held), here.device.count, here),
        "currency": here.device.currency,
    }


def _bill(seconds: float | None, count: float, here: Machine) -> dict[str, float | None]:
    """Hours of so many devices, what they cost, and their energy at most."""
    device = here.device
    hours = None if seconds is None else seconds * count / 3600
    return {
        "device_hours": hours,
        "cost": hours * device.per_hour if hours is not None and device.per_hour else None,
        "energy_kwh": hours * device.watts / 1000 if hours is not None and device.watts else None,
    }


def _checkpoint_bytes(config: Config, load: Workload, of_sweep: Sweep, runs: set[str]) -> int:
    """Of what is kept in the end: weights and moments of the run, weights that are exported, in
    DVC's cache too, and the newest of each trial."""
    settings, needed = config.train, 0
    if "train" in runs:
        kept = settings.keep_checkpoints + settings.keep_best
        kept += settings.steps // settings.keep_every if settings.keep_every else 0
        kept = min(kept, -(-settings.steps // settings.checkpoint_every))
        needed += kept * (12 + 4 + 4) * parameters(config.model, load)
    if "sweep" in runs:
        needed += sum(row.checkpoint_bytes for row in of_sweep.rows)
    return needed


def _sum(parts: list[Part]) -> float | None:
    seconds = [part.seconds for part in parts]
    return None if None in seconds else sum(each for each in seconds if each is not None)
