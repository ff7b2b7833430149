"""What trains: the devices that are given, or those of this machine, and how fast they are.

Peak rates are those of `seq2sweep.hardware`; memory, links, watts and prices of infra/prices.yaml.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch

from seq2sweep import hardware
from seq2sweep.config import ClusterConfig, Config
from seq2sweep.errors import UserError
from seq2sweep.hardware import Precision, own_groups
from seq2sweep.parallel import available_cpus, processes_on_gpus, sharers_of_gpu
from seq2sweep.planning import roofline, speed
from seq2sweep.planning.exchange import Links
from seq2sweep.planning.prices import PRICES, read_table
from seq2sweep.planning.recorded_runs import Run, recorded_runs
from seq2sweep.planning.roofline import Rates
from seq2sweep.planning.speed import Speed
from seq2sweep.planning.workload import Workload, training, with_updates
from seq2sweep.train.step import choose_precision

NETWORK = 100.0
"""Gbit/s of a machine to the others, where nothing is said of it: assumed."""

ASSUMED_MFU: tuple[tuple[str, float, str], ...] = (
    # Where no roofline serves: of other models, and of devices whose memory's rate is not known.
    # 8 P100 at 10.6 TFLOP/s and the FLOPs of Table 2's models as counted here.
    (r"Tesla P100.*", 0.3, "the paper's own times mean 0.24 for base and 0.35 for big"),
    # Eager PyTorch: the stream between products is float32 and goes through memory each time.
    (r"H100.*|H200.*|GH200.*|B200.*", 0.15, "bf16 in eager PyTorch"),
    (r"A100.*|A10|A30|A40|L4.*|.*RTX.*", 0.25, "bf16 in eager PyTorch"),
)
OTHER_MFU = 0.25, "not measured"
FLOAT32_MFU = 0.3, "float32, as the paper's P100 had it"


@dataclass(frozen=True)
class Device:
    """So many of one kind. None: not known.

    name: as torch gives it, less a leading `NVIDIA `, or `CPU`. peak: FLOP/s of one in
    `precision`; memory: bytes of one; per_hour: of one, in `currency`; watts: of one, at most.
    bandwidth: bytes a second of its memory; link: the same to each way of the others of its
    machine; network: bits a second of a machine to the others.
    """

    name: str
    count: int
    precision: Precision
    peak: float | None = None
    memory: float | None = None
    watts: float | None = None
    per_hour: float | None = None
    currency: str = ""
    bandwidth: float | None = None
    link: float | None = None
    network: float = 1e9 * NETWORK

    @property
    def gpu(self) -> bool:
        return self.name != "CPU"

    def resolve(self, d_model: int) -> Precision:
        """What `train.precision: auto` is on it for a model of this width."""
        if not self.gpu:
            return choose_precision("auto", torch.device("cpu"), d_model)
        if hardware.peak_flops(self.name, "float32") is None:  # of a name that nothing is known of
            return self.precision
        return "bf16" if hardware.peak_flops(self.name, "bf16") else "float32"

    def in_precision_of(self, config: Config) -> Device:
        """The same in the precision that `config` is trained in."""
        wanted = config.train.precision
        precision = self.resolve(config.model.d_model) if wanted == "auto" else wanted
        peak = hardware.peak_flops(self.name, precision)
        return dataclasses.replace(self, precision=precision, peak=peak)

    def rates(self, each: float = 1.0) -> Rates | None:
        """What is reached on such a part of one; None where too little is known of it."""
        if self.peak is None or self.bandwidth is None or self.link is None:
            return None
        return Rates(
            each * roofline.PRODUCT_SHARE[self.precision] * self.peak,
            each * roofline.BANDWIDTH_SHARE * self.bandwidth,
            Links(roofline.LINK_SHARE * self.link, roofline.LINK_SHARE * self.network / 8),
        )


@dataclass(frozen=True)
class Machine:
    """The devices of a plan, and what trains on them.

    workers: of the training; each: CPUs or GPUs of one of them. slots: trials at once, each on
    trial_devices CPUs or GPUs. runs: trainings that were recorded on any devices.
    mfu: as --mfu gives it. enough: whether the devices are there; nothing is known of time else.
    """

    device: Device
    workers: int
    each: float = 1.0
    slots: int = 1
    trial_devices: float = 1.0
    runs: list[Run] = field(default_factory=list)
    mfu: float | None = None
    enough: bool = True
    notes: list[str] = field(default_factory=list)

    def training_speed(self, config: Config, load: Workload) -> Speed | None:
        """Of the training, all its workers together."""
        return self._speed(config, load, self.workers, self.each)

    def trial_speed(self, config: Config, load: Workload, *, one: bool = False) -> Speed | None:
        """Of one trial of the sweep that trains `config`; one: of one of its workers."""
        workers = config.sweep.workers_per_trial
        return self._speed(config, load, 1 if one else workers, self.trial_devices / workers)

    def trial_memory(self, config: Config, slots: int = 0) -> float | None:
        """Bytes that one worker of a trial has; None: unknown. slots: trials at once, if fewer."""
        if self.device.memory is None:
            return None
        if self.device.gpu:
            return self.device.memory / sharers_of_gpu(config.sweep.gpus_per_trial or 1.0)
        at_once = (slots or self.slots) * config.sweep.workers_per_trial
        return self.device.memory * self.workers / at_once

    def decoding_speed(self, config: Config, load: Workload) -> Speed | None:
        """Of a training on what evaluates: one GPU, or all CPUs, however many the training has."""
        workers, devices = (1, 1) if self.device.gpu else (self.workers, self.device.count)
        return self._speed(config, load, workers, devices / workers)

    def _speed(self, config: Config, load: Workload, workers: int, each: float) -> Speed | None:
        """By the nearest recorded run; else by a roofline, or, as with --mfu, by the peak.

        Raises UserError where it takes the peak of a GPU, and that is not known.
        """
        if not self.enough:
            return None
        device, found, size = self.device, training(config, load), load.vocabulary_size

        def predicted(workers: int, each: float, times: float) -> Speed | None:
            rates = device.rates(each)
            if rates is None or not roofline.serves(config.model):
                return None
            sized = with_updates(config, times)
            whole = found if times == 1.0 else training(sized, load)
            return speed.predicted(sized, whole, size, rates, device.precision, workers)

        if self.mfu is None:
            near = speed.recorded(
                self.runs, device.name, device.precision, found, workers, each, predicted
            )
            if known := near or predicted(workers, each, 1.0):
                return known
        if not device.gpu:
            return speed.assumed_of_cpus(device.precision, config.model.d_model, workers * each)
        if device.peak is None:
            raise _unknown_peak(device, config)
        share, why = (self.mfu, "as --mfu says") if self.mfu else assumed_mfu(device)
        how = f"{'assumed: ' * (not self.mfu)}{100 * share:.0f} % of the peak, {why}"
        return Speed(share * device.peak * workers * each, how, speed.LAUNCH_SECONDS, gpu=True)


def planned(config: Config, given: Device | None, project: Path, mfu: float | None) -> Machine:
    """The devices that were given with --on, else this machine's GPUs, else its CPUs.

    Raises UserError where --mfu is given for CPUs.
    """
    device = given or local_gpus(config, project)
    storage = project / config.cluster.folder
    if device is not None:
        return _gpus(config, device, storage, mfu, given is not None)
    if mfu is not None:
        raise UserError("--mfu is a share of a GPU's peak: give the devices with --on")
    return _cpus(config, storage)


def _gpus(config: Config, device: Device, storage: Path, mfu: float | None, given: bool) -> Machine:
    cluster, sweep = config.cluster, config.sweep
    notes = [] if given else _elsewhere(cluster) + _fewer(device.count, cluster)
    if given and (cluster.workers != device.count or not cluster.gpus_per_worker):
        notes.append(
            f"one worker a device: set cluster.workers to {device.count} and "
            "cluster.gpus_per_worker to 1"
        )
    sweeps = sweep.method != "none"
    if sweeps and not sweep.gpus_per_trial:
        notes.append("sweep.gpus_per_trial is 0, which trains on CPUs: counted as 1")
    unknown = device.rates() is None or not roofline.serves(config.model)
    if device.count > 1 and mfu is None and unknown:
        notes.append("what the devices send to each other is not counted in the time")
    # Of a machine that is here trials take all, however few the training asks for.
    gpus = device.count if given else torch.cuda.device_count()
    share = sweep.gpus_per_trial or 1.0
    per_trial = sweep.workers_per_trial / sharers_of_gpu(share)
    slots = processes_on_gpus(gpus, share) // sweep.workers_per_trial
    if sweeps and not slots:
        notes.append(_no_room(per_trial, "devices", gpus))
    if not given:
        each, cpus = sweep.workers_per_trial * sweep.cpus_per_trial, available_cpus()
        slots = min(slots, int(cpus / each + 1e-9))
        if sweeps and each > cpus:
            notes.append(_no_room(each, "CPUs", cpus))
    return Machine(
        device,
        device.count,
        slots=max(1, slots),
        trial_devices=min(per_trial, gpus),
        # Not those of trials: nothing says what share of a GPU they had.
        runs=recorded_runs(storage, trials=False),
        mfu=mfu,
        notes=notes,
    )


def _is_elsewhere(cluster: ClusterConfig) -> bool:
    return bool(cluster.running_address or cluster.job_server)


def _fewest(cluster: ClusterConfig) -> int:
    """Workers with which a run starts here; on a cluster, which is not asked, all have room."""
    return cluster.workers if _is_elsewhere(cluster) else cluster.min_workers or cluster.workers


def _elsewhere(cluster: ClusterConfig) -> list[str]:
    if not _is_elsewhere(cluster):
        return []
    return [
        "a cluster is named, by params.yaml or $RAY_ADDRESS, and is not asked: this is for the "
        "machine here; --on plans for other devices"
    ]


def _fewer(workers: int, cluster: ClusterConfig) -> list[str]:
    if workers >= cluster.workers:
        return []
    return [
        f"of {cluster.workers} workers {workers} have room here: counted is a run of these, which "
        "cluster.min_workers lets start"
    ]


def _cpus(config: Config, storage: Path) -> Machine:
    """This machine's CPUs; not enough where GPUs are asked for, or more CPUs than there are."""
    cluster, sweep, notes = config.cluster, config.sweep, []
    device = Device("CPU", available_cpus(), "float32").in_precision_of(config)
    workers, cpus = cluster.workers, device.count
    fewest = _fewest(cluster)
    # As a run has it: where not all have room, the most with which the fewest do.
    threads = cluster.cpus_per_worker or max(1, cpus // (workers if workers <= cpus else fewest))
    notes += _elsewhere(cluster)
    if cluster.gpus_per_worker:
        gpus = workers * cluster.gpus_per_worker
        notes.append(
            f"cluster.gpus_per_worker is {cluster.gpus_per_worker}, and this machine has not "
            f"{gpus} GPUs: time, memory and cost need --on, such as --on '{gpus} x H100'"
        )
        return Machine(device, workers, enough=False, notes=notes)
    if threads * fewest > cpus:
        mends = [f"cluster.{'min_' * (fewest < workers)}workers"] * (fewest > 1)
        mends += ["cluster.cpus_per_worker"] * (threads > 1)  # null is 1 here
        less = " or ".join(mends)
        mend = " here" if _is_elsewhere(cluster) else f": lower {less}"
        notes.append(f"{fewest} workers of {threads} CPU each do not fit {cpus} CPUs{mend}")
        return Machine(device, workers, enough=False, notes=notes)
    workers = min(workers, cpus // threads)
    notes += _fewer(workers, cluster)
    per_trial = sweep.workers_per_trial * sweep.cpus_per_trial
    slots = int(cpus / per_trial + 1e-9)
    if sweep.method != "none":
        if not slots:
            notes.append(_no_room(per_trial, "CPUs", cpus))
        gpus = torch.cuda.device_count()
        wanted = sweep.workers_per_trial * sweep.gpus_per_trial
        if wanted:
            notes.append(
                f"a trial of the sweep takes {wanted:g} GPUs, of which there are {gpus} here: "
                "counted on CPUs; --on plans for GPUs"
            )
    slots = max(1, slots)
    # Half a CPU a trial is two trials on each, and what such trials reached is no rate of a CPU.
    each = min(max(1, int(sweep.cpus_per_trial)), cpus / (slots * sweep.workers_per_trial))
    return Machine(
        dataclasses.replace(device, memory=_memory_bytes() / workers),
        workers,
        each=threads,
        slots=slots,
        trial_devices=sweep.workers_per_trial * each,
        runs=recorded_runs(storage, trials=sweep.cpus_per_trial >= 1),
        notes=notes,
    )


def _no_room(takes: float, what: str, there: int) -> str:
    return (
        f"a trial of the sweep takes {takes:g} {what}, more than there are: counted as if {there} "
        "were enough"
    )


def _memory_bytes() -> float:
    """Of this machine, or of the container or the job that this process is in."""
    return min([float(psutil.virtual_memory().total), *(most for most, _ in own_groups())])


# --- devices by name -----------------------------------------------------------------------------


def parse(text: str, config: Config, project: Path) -> Device:
    """The devices that `8 x P100` names; the first of the table where several kinds are called so.

    `64 x H100, 100 Gbit/s` says what a machine of eight has to the others. Raises UserError for a
    device that the table does not have.
    """
    match = re.fullmatch(
        r"\s*(?:(\d{1,9})\s*[xX×*]\s*)?(\S.*?)\s*(?:,\s*(\d+(?:\.\d+)?)\s*Gb(?:it)?/s\s*)?", text
    )
    count = int(match.group(1) or 1) if match else 0
    network = match.group(3) if match else None
    if match is None or count < 1 or (network is not None and not float(network)):
        raise UserError(f"--on {text!r}: write it as `8 x P100`, or `64 x H100, 100 Gbit/s`")
    table = read_table(project)
    wanted = _words(match.group(2))
    for name in table["devices"]:
        if wanted and wanted <= _words(name):
            found = _described(name, count, "float32", table).in_precision_of(config)
            if network is None:
                return found
            return dataclasses.replace(found, network=1e9 * float(network))
    raise UserError(
        f"--on {text}: {PRICES} has no device {match.group(2)}; it has "
        f"{', '.join(table['devices'])}"
    )


def local_gpus(config: Config, project: Path) -> Device | None:
    """This machine's GPUs, as many as params.yaml asks for, or as there are where they are enough
    for cluster.min_workers; else None."""
    cluster = config.cluster
    count = min(cluster.workers, torch.cuda.device_count()) * cluster.gpus_per_worker
    if not count or count < _fewest(cluster):
        return None
    name = torch.cuda.get_device_name(0).removeprefix("NVIDIA ")
    precision = choose_precision(config.train.precision, torch.device("cuda"), config.model.d_model)
    found = _described(name, count, precision, read_table(project, needed=False))
    memory = float(torch.cuda.get_device_properties(0).total_memory)
    return dataclasses.replace(found, memory=memory)


def _described(name: str, count: int, precision: Precision, table: dict[str, Any]) -> Device:
    """So many devices of a name, with what is known of them."""
    about = table["devices"].get(name, {})

    def billions(key: str) -> float | None:
        return about[key] * 1e9 if key in about else None

    return Device(
        name,
        count,
        precision,
        hardware.peak_flops(name, precision),
        billions("memory_gb"),
        about.get("watts"),
        about.get("per_hour"),
        table["currency"],
        billions("memory_gb_per_s"),
        billions("link_gb_per_s"),
        billions("network_gbit") or 1e9 * NETWORK,
    )


def _unknown_peak(device: Device, config: Config) -> UserError:
    known = device.resolve(config.model.d_model) != device.precision
    other = "set train.precision to auto, or " if known else ""
    return UserError(
        f"the {device.precision} peak of {device.name} is not known: {other}add the peak to "
        "PEAK_TFLOPS in src/seq2sweep/hardware.py"
    )


def assumed_mfu(device: Device) -> tuple[float, str]:
    """Share of the peak that training is taken to reach, and why that."""
    for pattern, mfu, why in ASSUMED_MFU:
        if re.fullmatch(pattern, device.name):
            return (mfu, why) if device.precision == "bf16" or "P100" in pattern else FLOAT32_MFU
    return OTHER_MFU if device.precision == "bf16" else FLOAT32_MFU


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s-]+", name.lower().removeprefix("nvidia "))) - {""}
