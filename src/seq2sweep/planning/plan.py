"""The whole plan: stages, data, model, memory, time and cost, as one dictionary."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.hardware import paper_rule
from seq2sweep.planning import data, devices, stages, sweeps
from seq2sweep.planning import machine as machines
from seq2sweep.planning.machine import Machine
from seq2sweep.planning.memory import advice, memory
from seq2sweep.planning.speed import START_SECONDS, Part, decoding_seconds, training_parts
from seq2sweep.planning.workload import Workload, parameters, training, workload

NO_DVC = "unknown, as there is no dvc.yaml here"
RAW = Path("data/raw")
ENCODED = Path("data/encoded")


def plan(project: Path, *, on: str | None = None, mfu: float | None = None) -> dict[str, Any]:
    """What `dvc repro` in `project`, the working directory, will run, need, take and cost.

    on: devices such as `8 x P100`; else this machine's GPUs or CPUs, which are tried for some
    seconds. mfu: share of the devices' peak that training reaches, instead of what is assumed.

    Keys: stages, data (`data.data_plan`), device, training, memory, sweep, total, notes;
    docs/plan.md describes them. Nothing in the project is changed.

    Raises UserError for what cannot be planned, Failure when DVC or the trial fails.
    """
    if mfu is not None and not 0 < mfu <= 1:
        raise UserError(f"--mfu is {mfu:g}: it must be above 0 and at most 1")
    config = configuration.load(project / "params.yaml")
    given = devices.parse(on, config, project) if on is not None else None
    found = stages.stages(project)
    encoded = ENCODED if found and not _runs(found, "encode") else None
    raw = RAW if found and not _runs(found, "download") else None
    counted = data.known_pairs(config, raw)
    load = workload(config, counted, encoded)
    running = [stage.name for stage in found if stage.runs] if found else list(START_SECONDS)
    about = data.data_plan(config, _checkpoint_bytes(config, load, running), running, counted)
    machine = machines.planned(config, load, given, project, mfu, _wanted(found))
    return _put_together(config, found, about, load, machine)


def _put_together(
    config: Config,
    found: list[stages.Stage] | None,
    about: dict[str, Any],
    load: Workload,
    machine: Machine,
) -> dict[str, Any]:
    of_sweep = sweeps.sweep(config, load, machine.trial, machine.slots, machine.device)
    times = _parts(config, about, load, machine, of_sweep)
    listed = [
        {
            "stage": name,
            "runs": stage is None or stage.runs,
            "why": NO_DVC if stage is None else stage.why,
            "seconds": _sum(parts),
            "parts": [asdict(part) for part in parts],
        }
        for name, parts in times.items()
        for stage in [next((s for s in found or () if s.name == name), None)]
    ]
    return {
        "stages": listed,
        "data": about,
        "device": _device(machine),
        "training": _training(config, load, machine, times["train"]),
        "memory": _memory(config, load, machine),
        "sweep": of_sweep.to_dict()
        | {
            "rows": [
                asdict(row) | _bill(row.seconds, row.trainings * machine.per_trial, machine)
                for row in of_sweep.rows
            ]
        },
        "total": _total(listed, machine, of_sweep),
        "notes": machine.notes + _too_large(config, machine, of_sweep),
    }


def _parts(
    config: Config,
    about: dict[str, Any],
    load: Workload,
    machine: Machine,
    of_sweep: sweeps.Sweep,
) -> dict[str, list[Part]]:
    """The time of each stage, part by part."""
    started = {
        name: [Part("start and end", seconds, "stated")] for name, seconds in START_SECONDS.items()
    }
    for name, seconds in about["seconds"].items():
        started[name].append(Part("work", seconds, "at rates measured elsewhere"))
    unknown = [Part("work", None, "not tried")]
    if machine.speed is None:
        started["train"] += unknown
        started["evaluate"] += unknown
    else:
        found, count = training(config, load), parameters(config.model, load)
        started["train"] += training_parts(config, found, machine.speed, machine.workers, count)
        decoder = machine.decoding or machine.speed
        seconds = decoding_seconds(config, load, load.test, decoder)
        how = f"{len(load.test[0]):,} sentences"
        started["evaluate"].append(Part("decoding and scores", seconds, how))
    trials = sum(row.trainings for row in of_sweep.rows)
    how = f"{trials} trainings, {machine.slots} at once"
    started["sweep"].append(Part("trials", of_sweep.seconds, how))
    return started


def _device(machine: Machine) -> dict[str, Any]:
    device, speed = machine.device, machine.speed
    rate = speed.flops_per_second if speed else None
    return asdict(device) | {
        "workers": machine.workers,
        "flops_per_second": rate,
        "mfu": rate / (device.count * device.peak) if rate and device.peak else None,
        "how": speed.how if speed else None,
    }


def _training(
    config: Config, load: Workload, machine: Machine, parts: list[Part]
) -> dict[str, Any]:
    found = training(config, load)
    updates = next((part.seconds for part in parts if part.part == "updates"), None)
    per_second = found.steps * found.target_tokens_per_update / updates if updates else None
    return {
        "parameters": parameters(config.model, load),
        "vocabulary_size": load.vocabulary_size,
        "steps": found.steps,
        "source_tokens": found.source_tokens_per_update * found.steps,
        "target_tokens": found.target_tokens_per_update * found.steps,
        "flops": found.flops,
        "paper_rule_flops": paper_rule(updates, machine.device.count, machine.device.name)
        if updates
        else None,
        "target_tokens_per_second": per_second,
        "lengths": load.origin,
    }


def _memory(config: Config, load: Workload, machine: Machine) -> dict[str, Any]:
    device, workers = machine.device, machine.workers
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


def _too_large(config: Config, machine: Machine, of_sweep: sweeps.Sweep) -> list[str]:
    """A note on the variants that do not fit the device, or their share of it."""
    device = machine.device
    if not device.gpu or device.memory is None:
        return []
    room = device.memory * min(1.0, config.sweep.gpus_per_trial or 1.0)
    names = [row.variant for row in of_sweep.rows if row.memory > room]
    said = f"these trials need more memory than there is ({', '.join(names)}): "
    return [said + "lower train.tokens_per_pass"] * bool(names)


def _total(
    listed: list[dict[str, Any]], machine: Machine, of_sweep: sweeps.Sweep
) -> dict[str, Any]:
    """Of the stages that run; the devices are held in train, evaluate and sweep."""
    running = [stage for stage in listed if stage["runs"]]
    held = [
        stage["seconds"] for stage in running if stage["stage"] in ("train", "evaluate", "sweep")
    ]
    known = all(stage["seconds"] is not None for stage in running)
    bill = _bill(sum(held) if None not in held else None, machine.device.count, machine)
    stops = of_sweep.at_most and any(stage["stage"] == "sweep" for stage in running)
    least = None
    if stops and known and of_sweep.seconds is not None and of_sweep.least_seconds is not None:
        least = sum(stage["seconds"] for stage in running)
        least -= of_sweep.seconds - of_sweep.least_seconds
    return {
        "seconds": sum(stage["seconds"] for stage in running) if known else None,
        "at_most": stops,
        "least_seconds": least,
        **bill,
        "currency": machine.device.currency,
    }


def _bill(seconds: float | None, count: float, machine: Machine) -> dict[str, float | None]:
    """Hours of so many devices, what they cost, and their energy at most."""
    device = machine.device
    hours = None if seconds is None else seconds * count / 3600
    return {
        "device_hours": hours,
        "cost": hours * device.per_hour if hours is not None and device.per_hour else None,
        "energy_kwh": hours * device.watts / 1000 if hours is not None and device.watts else None,
    }


def _checkpoint_bytes(config: Config, load: Workload, running: list[str]) -> int:
    """Of what is kept in the end: weights and moments of the run, weights that are exported, in
    DVC's cache too, and the newest of each trial."""
    settings, count = config.train, parameters(config.model, load)
    kept = settings.keep_checkpoints + settings.keep_best
    kept += settings.steps // settings.keep_every if settings.keep_every else 0
    kept = min(kept, -(-settings.steps // settings.checkpoint_every))
    of_run = kept * (12 + 4 + 4) * count * ("train" in running)
    return of_run + sweeps.checkpoint_bytes(config, load) * ("sweep" in running)


def _sum(parts: list[Part]) -> float | None:
    seconds = [part.seconds for part in parts]
    return None if None in seconds else sum(each for each in seconds if each is not None)


def _runs(found: list[stages.Stage], name: str) -> bool:
    return any(stage.name == name and stage.runs for stage in found)


def _wanted(found: list[stages.Stage] | None) -> machines.Wanted:
    """What has to be tried on CPUs: nothing for stages that will not run."""
    if found is None:
        return machines.Wanted(training=True, trials=True)
    return machines.Wanted(
        training=_runs(found, "train") or _runs(found, "evaluate"), trials=_runs(found, "sweep")
    )
