"""The whole plan: stages, data, model, memory, time and cost, as one dictionary."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import Config, TransformerConfig
from seq2sweep.errors import UserError
from seq2sweep.hardware import paper_rule
from seq2sweep.model import flops
from seq2sweep.parallel import sharers_of_gpu
from seq2sweep.planning import data, machine, stages, sweeps
from seq2sweep.planning.machine import Machine
from seq2sweep.planning.memory import advice, memory, sized
from seq2sweep.planning.speed import (
    IDLE_SWEEP_SECONDS,
    START_SECONDS,
    Part,
    Speed,
    bounds,
    decoding_seconds,
    scored_seconds,
    training_parts,
)
from seq2sweep.planning.stages import Stage
from seq2sweep.planning.sweeps import Sweep
from seq2sweep.planning.workload import Training, Workload, training, workload
from seq2sweep.project_files import ENCODED, PARAMS, RAW
from seq2sweep.runs.layout import Retention
from seq2sweep.table1.rows import timing_seconds

NO_DVC = "unknown, as there is no dvc.yaml here"
HELD = ("train", "evaluate", "sweep")
"""The stages that compute on the devices."""
SELF_TRAINING = ("teacher", "silver", "student")
"""Those that do where there is self-training, and else nothing."""


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
    config = configuration.load(project / PARAMS)
    given = machine.parse(on, config, project) if on is not None else None
    found = stages.stages(project) or [Stage(name, True, NO_DVC) for name in START_SECONDS]
    runs = {stage.name for stage in found if stage.runs}
    made = {stage.name for stage in found} - runs
    pairs = data.known_pairs(config, RAW if "download" in made else None)
    load = workload(config, pairs, ENCODED if "encode" in made else None)
    here = machine.planned(config, given, project, mfu)
    of_sweep = sweeps.sweep(config, load, here)
    notes = here.notes + _too_large(config, here, of_sweep)
    config, why = sized(config, load, here.device, here.workers, here.device.memory)
    whole, speed = training(config, load), here.training_speed(config, load)
    checkpoints, exported = _model_bytes(config, whole, of_sweep, runs)
    about = data.data_plan(config, checkpoints, runs, pairs, exported)
    times = _parts(config, about, load, here, whole, of_sweep)
    listed = [
        {
            "stage": stage.name,
            "runs": stage.runs,
            "why": stage.why,
            "seconds": _sum([part.seconds for part in times[stage.name]]),
            "parts": [asdict(part) for part in times[stage.name]],
        }
        for stage in found
        if stage.name in times
    ]
    return {
        "stages": listed,
        "data": about,
        "device": _device(here, speed),
        "training": _training(whole, load, here, times["train"]),
        "memory": _memory(config, load, here) | {"tokens_why": why},
        "sweep": asdict(of_sweep)
        | {
            "rows": [
                asdict(row) | _bill(row.seconds, row.trainings * here.trial_devices, here)
                for row in of_sweep.rows
            ]
        },
        "total": _total(
            config, {name: times[name] for name in times if name in runs}, here, of_sweep
        ),
        "notes": notes,
    }


def _parts(
    config: Config,
    about: dict[str, Any],
    load: Workload,
    here: Machine,
    whole: Training,
    of_sweep: Sweep,
) -> dict[str, list[Part]]:
    """The time of each stage, part by part."""
    idle = {"sweep": IDLE_SWEEP_SECONDS} if config.sweep.method == "none" else {}
    parts = {
        name: [Part("start and end", seconds, "stated")]
        for name, seconds in (START_SECONDS | idle).items()
    }
    for name, seconds in about["seconds"].items():
        parts[name].append(Part("work", seconds, "at rates measured elsewhere"))
    speed, decoder = here.training_speed(config, load), here.decoding_speed(config, load)
    if speed is None or decoder is None:
        unknown = Part("work", None, "the devices are not here")
        taught = SELF_TRAINING if config.self_training.sentences else ()
        for name in ("train", "evaluate", "attention", *taught):
            parts[name].append(unknown)
    else:
        trained = training_parts(config, whole, speed, here.workers)
        # Trees are searched for twice: among well-formed ones, and among all symbols.
        searches = 2 if config.data.task == "parsing" else 1
        decoding = searches * scored_seconds(config, load, load.test, decoder)
        scored = Part(
            "decoding and scores", decoding, f"{len(load.test[0]):,} sentences", decoder.span
        )
        parts["train"] += trained
        parts["evaluate"].append(scored)
        parts["attention"].append(_heads(config, load, decoder))
        if config.self_training.sentences:
            loading = Part("Ray and torch", START_SECONDS["train"], "stated")
            parts["teacher"] += [loading, *trained]
            parts["silver"].append(_parsing(config, load, decoder))
            parts["student"] += [loading, *trained, scored]
    trials = sum(row.trainings for row in of_sweep.rows)
    how = f"{trials} trainings, {of_sweep.slots} at once"
    parts["sweep"].append(Part("trials", of_sweep.seconds, how, of_sweep.span))
    parts["table1"].append(Part("timings", timing_seconds(config.table1), "at rates elsewhere"))
    return parts


def _heads(config: Config, load: Workload, decoder: Speed) -> Part:
    """Of the test sentences that heads are measured on: a pass with all heads, and one without each
    of them, which only the Transformer's can be."""
    asked, model = config.attention, config.model
    share = min(1.0, asked.measured / len(load.test[0])) if asked.sentences else 0.0
    heads = 3 * model.layers * model.heads if isinstance(model, TransformerConfig) else 0
    computed = share * flops.forward_flops(model, load.vocabulary_size, *load.test)
    seconds = (1 + heads) * computed / decoder.flops_per_second
    return Part("heads", seconds, f"{heads} heads at most, left out one by one", decoder.span)


def _parsing(config: Config, load: Workload, decoder: Speed) -> Part:
    """Of sentences without trees, by two parsers; they are taken to be as long as those with."""
    asked, train = config.self_training, load.train
    how = replace(config, evaluate=replace(config.evaluate, beam=asked.beam))
    lengths = train.source_lengths, train.target_lengths
    seconds = 2 * decoding_seconds(how, load, lengths, decoder) * asked.sentences / len(train)
    return Part("parsing", seconds, f"{asked.sentences:,} sentences, two parsers", decoder.span)


def _device(here: Machine, speed: Speed | None) -> dict[str, Any]:
    device, rate = here.device, speed and speed.flops_per_second
    return asdict(device) | {
        "workers": here.workers,
        "flops_per_second": rate,
        "mfu": rate / (device.count * device.peak) if rate and device.peak else None,
        "how": speed and speed.how,
        "detail": speed.detail if speed else (),
        "about": speed and speed.about,
    }


def _training(whole: Training, load: Workload, here: Machine, parts: list[Part]) -> dict[str, Any]:
    device = here.device
    updates = next((part.seconds for part in parts if part.part == "updates"), None)
    target_tokens = whole.target_tokens_per_update * whole.steps
    return {
        "parameters": whole.parameters,
        "vocabulary_size": load.vocabulary_size,
        "steps": whole.steps,
        "source_tokens": whole.source_tokens_per_update * whole.steps,
        "target_tokens": target_tokens,
        "flops": whole.flops,
        "paper_rule_flops": paper_rule(updates, device.count, device.name) if updates else None,
        "target_tokens_per_second": target_tokens / updates if updates else None,
        "lengths": load.origin,
    }


def _memory(config: Config, load: Workload, here: Machine) -> dict[str, Any]:
    device, available = here.device, here.device.memory
    found = memory(config, load, device, here.workers)
    fits = None if available is None else found.needed <= available
    said = None
    if available is not None and not fits:
        said = advice(config, load, device, here.workers, available)
    return asdict(found) | {
        "needed": found.needed,
        "available": available,
        "fits": fits,
        "advice": said,
    }


def _too_large(config: Config, here: Machine, of_sweep: Sweep) -> list[str]:
    """A note on the variants that do not fit the device, or their share of it. config: as asked
    for, with a train.tokens_per_pass that may be auto."""
    room = here.trial_memory(config, of_sweep.slots)
    names = [row.variant for row in of_sweep.rows if room is not None and row.memory > room]
    if not names:
        return []
    gpu, share = here.device.gpu, config.sweep.gpus_per_trial or 1.0
    shared = sharers_of_gpu(share) > 1 if gpu else of_sweep.slots > 1
    mends = ["lower train.tokens_per_pass"] * (config.train.tokens_per_pass != "auto")
    mends += [f"raise sweep.{'gpus' if gpu else 'cpus'}_per_trial, so that fewer share it"] * shared
    said = f"these trials need more memory than there is ({', '.join(names)}): "
    return [said + (" or ".join(mends) or "take devices with more")]


def _total(
    config: Config, running: dict[str, list[Part]], here: Machine, of_sweep: Sweep
) -> dict[str, Any]:
    """Of the stages that run; the devices are held in HELD, and in SELF_TRAINING where it is done.

    about: whether a rate of what runs is no more than about right. least_seconds, most_seconds:
    what all may take; only what a rate says is shorter or longer then, and a sweep that may stop.
    """
    computing = HELD + SELF_TRAINING * (config.self_training.sentences > 0)
    # A sweep may take more of this machine's GPUs than the training asks for.
    of_trials = max(here.device.count, of_sweep.slots * here.trial_devices)
    held = [
        part.seconds and part.seconds * (of_trials if name == "sweep" else here.device.count)
        for name in computing
        for part in running.get(name, ())
    ]
    parts = [part for each in running.values() for part in each]
    seconds = _sum([part.seconds for part in parts])
    least, most = (None, None) if seconds is None else bounds(parts)
    return {
        "seconds": seconds,
        "about": any(high > 1 for _, high in (part.span for part in parts)),
        "at_most": of_sweep.at_most and "sweep" in running,
        "least_seconds": least,
        "most_seconds": most,
        **_bill(_sum(held), 1, here),
        "currency": here.device.currency,
    }


def _bill(seconds: float | None, count: float, here: Machine) -> dict[str, float | None]:
    """Hours of so many devices, what they cost, and their energy at full power."""
    device = here.device
    hours = None if seconds is None else seconds * count / 3600
    return {
        "device_hours": hours,
        "cost": hours * device.per_hour if hours is not None and device.per_hour else None,
        "energy_kwh": hours * device.watts / 1000 if hours is not None and device.watts else None,
    }


def _model_bytes(
    config: Config, whole: Training, of_sweep: Sweep, runs: set[str]
) -> tuple[int, int]:
    """Of checkpoints that are kept in the end, with weights and moments, the newest of each trial
    too; and of weights that are exported."""
    trained = {"train"} | ({"teacher", "student"} if config.self_training.sentences else set())
    weights = len(trained & runs) * Retention.of(config).most() * 4 * whole.parameters
    checkpoints = (1 + config.moments) * weights
    # A bucket's are not on this disk, but for those that are being scored.
    if "sweep" in runs and not configuration.is_address(config.cluster.storage):
        checkpoints += sum(row.checkpoint_bytes for row in of_sweep.rows)
    return checkpoints, weights


def _sum(seconds: list[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None
