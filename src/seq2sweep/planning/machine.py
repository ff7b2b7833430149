"""What trains: given devices, or those of this machine, and how fast that is taken to be."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.parallel import available_cpus
from seq2sweep.planning import devices, sweeps
from seq2sweep.planning.calibration import Rate, Task, calibrate
from seq2sweep.planning.devices import Device
from seq2sweep.planning.memory import memory
from seq2sweep.planning.speed import LAUNCH_SECONDS, Speed
from seq2sweep.planning.workload import Workload
from seq2sweep.train.step import choose_precision


@dataclass(frozen=True)
class Wanted:
    """What of this machine's CPUs is to be tried."""

    training: bool
    trials: bool


@dataclass(frozen=True)
class Machine:
    """The devices of a plan; speeds are None where they are not known.

    speed: of the training on `workers` workers; trial: of one trial of the sweep, `slots` of which
    train at once, each on `per_trial` devices; decoding: of the one device that evaluates.
    """

    device: Device
    workers: int
    slots: int
    per_trial: float
    speed: Speed | None = None
    trial: Speed | None = None
    decoding: Speed | None = None
    notes: list[str] = field(default_factory=list)


def planned(
    config: Config,
    load: Workload,
    given: Device | None,
    project: Path,
    mfu: float | None,
    wanted: Wanted,
) -> Machine:
    """The devices that were given with --on, else this machine's GPUs, else its CPUs.

    CPUs are tried for some seconds. Raises UserError where the workers do not fit.
    """
    device = given or devices.local_gpus(config, project)
    if device is not None:
        return _gpus(config, device, mfu, given is not None)
    if mfu is not None:
        raise UserError("--mfu is a share of a GPU's peak: give the devices with --on")
    notes = []
    cluster = config.cluster
    if cluster.address or cluster.job_server:
        notes.append(
            "params.yaml names a cluster, which is not asked: this is for the machine here; "
            "--on plans for other devices"
        )
    if cluster.gpus_per_worker:
        notes.append(
            f"cluster.gpus_per_worker is {cluster.gpus_per_worker}, and this machine has not "
            f"{cluster.workers * cluster.gpus_per_worker} GPUs: time, memory and cost need "
            f"--on, such as --on '{cluster.workers * cluster.gpus_per_worker} x H100'"
        )
        return Machine(_cpu(config), cluster.workers, 1, 1.0, notes=notes)
    return _cpus(config, load, wanted, notes)


# --- GPUs ----------------------------------------------------------------------------------------


def _gpus(config: Config, device: Device, mfu: float | None, given: bool) -> Machine:
    share, why = (mfu, "as --mfu says") if mfu is not None else devices.assumed_mfu(device)
    assert device.peak is not None
    notes = []
    cluster, sweep = config.cluster, config.sweep
    asked = cluster.workers * max(1, cluster.gpus_per_worker)
    if given and (asked != device.count or not cluster.gpus_per_worker):
        notes.append(
            f"one worker a device: set cluster.workers to {device.count} and "
            "cluster.gpus_per_worker to 1"
        )
    if not sweep.gpus_per_trial:
        notes.append("sweep.gpus_per_trial is 0, which trains on CPUs: counted as 1")
    if cluster.fsdp and device.count > 1:
        notes.append("what cluster.fsdp sends between the devices is not counted in the time")
    each = sweep.gpus_per_trial or 1.0
    per_trial = sweep.workers_per_trial * each
    slots = int(device.count / per_trial + 1e-9)
    if not slots:
        notes.append(
            f"a trial of the sweep takes {per_trial:g} devices, more than there are: counted as "
            f"if {device.count} were enough"
        )
    how = f"{100 * share:.0f} % of the peak, {why}"
    one = share * device.peak

    def speed(number: float) -> Speed:
        return Speed(one * number, LAUNCH_SECONDS, how)

    return Machine(
        device,
        device.count,
        max(1, slots),
        min(per_trial, device.count),
        speed(device.count),
        speed(min(per_trial, device.count)),
        speed(1),
        notes,
    )


# --- CPUs ----------------------------------------------------------------------------------------


def _cpu(config: Config) -> Device:
    precision = choose_precision(config.train.precision, torch.device("cpu"), config.model.d_model)
    return Device("CPU", available_cpus(), precision, memory=None)


def _cpus(config: Config, load: Workload, wanted: Wanted, notes: list[str]) -> Machine:
    """This machine's CPUs; not tried where the training would not fit its memory."""
    device, cluster, sweep = _cpu(config), config.cluster, config.sweep
    cpus, workers = device.count, cluster.workers
    threads = cluster.cpus_per_worker or max(1, cpus // workers)
    if threads * workers > cpus:
        notes.append(
            f"{workers} workers of {threads} CPU each do not fit {cpus} CPUs: lower "
            "cluster.workers or cluster.cpus_per_worker"
        )
        return Machine(device, workers, 1, 1.0, notes=notes)
    per_trial = sweep.workers_per_trial * sweep.cpus_per_trial
    slots = max(1, min(int(cpus / per_trial + 1e-9), sweeps.count(config, load)))
    device = dataclasses.replace(device, memory=_memory_bytes() / workers)
    needed = memory(config, load, workers=workers, precision=device.precision, gpu=False).needed
    if needed > (device.memory or 0):
        notes.append("not tried on the CPUs here, as it does not fit their memory")
        return Machine(device, workers, slots, per_trial, notes=notes)
    trial = Task(
        sweeps.base_of_sweep(config, load),
        slots,
        sweep.workers_per_trial,
        max(1, int(sweep.cpus_per_trial)),
    )
    tasks = {"speed": Task(config, 1, workers, threads)} if wanted.training else {}
    if wanted.trials and not sweep.gpus_per_trial:
        tasks["trial"] = trial
    rates = dict(zip(tasks, calibrate(list(tasks.values()), load), strict=True)) if tasks else {}
    speeds = {name: _speed(rate, tasks[name]) for name, rate in rates.items()}
    if any(rate.busy for rate in rates.values()):
        notes.append(
            "other work held the CPUs while they were tried: times are for CPUs that are free, "
            "by the CPU time that was used"
        )
    return Machine(device, workers, slots, per_trial, **speeds, notes=notes)


def _speed(rate: Rate, task: Task) -> Speed:
    how = (
        f"tried here for some seconds, {task.workers} worker(s) of {task.threads} thread(s), "
        f"{rate.tokens_per_update:,} tokens an update"
    )
    return Speed(rate.flops_per_second, 0.0, how)


def _memory_bytes() -> float:
    """Of this machine, or of the container that this process is in."""
    total = float(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):  # no such limit
        total = min(total, float(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return total
