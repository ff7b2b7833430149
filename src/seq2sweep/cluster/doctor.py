"""Is the cluster fit for training? Asked of every node, on the node itself: `seq2sweep doctor`.

What each node says of itself stands at the end: Ray runs those functions there.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import shutil
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import ray
import torch
from tqdm import tqdm

import seq2sweep
from seq2sweep.cluster import ray_internals, session
from seq2sweep.cluster.local_cluster import MORE_ROOM
from seq2sweep.cluster.tasks import on_node
from seq2sweep.config import Config, is_address
from seq2sweep.errors import UserError
from seq2sweep.health import Finding
from seq2sweep.model import flops
from seq2sweep.runs.layout import Retention
from seq2sweep.storage.locks import try_lock
from seq2sweep.storage.object_store import ObjectStore

ALL = "the cluster"
PATIENCE = 60.0
"""Seconds that a node may take for an answer: it has to import torch first."""
MOST_SKEW = 2.0
"""Seconds that clocks may differ. Journals, records and files' ages are compared between nodes."""
BLOCK_BYTES = 64 * 2**20
SLOW_BYTES_PER_SECOND = 100e6
"""A gigabit. Below it, sending gradients of 60M parameters takes longer than computing them."""
TEMPORARY_BYTES = 2 * 10**9
"""What Ray's session and logs may need."""
PCI_DEVICES = Path("/sys/bus/pci/devices")
DRIVER_SECONDS = 20.0
"""A driver that hangs never answers."""
PACKAGES = ("torch", "ray", "numpy", "safetensors", "sentencepiece")
"""Whose versions must be the same on all machines for the same result, or for talking at all."""


@dataclass(frozen=True)
class _Machine:
    """A live node: a name for people, Ray's id, and the GPUs that Ray counts there."""

    name: str
    id: str
    gpus: float


def examine(config: Config, project: Path) -> list[Finding]:
    """All findings, inside of a `ray_session`; a folder in the storage is made and removed."""
    machines = _machines()
    findings = [_workers(config), *_trials(config)]
    with _meeting(config.cluster.storage, project) as (meeting, refused):
        if wrong := refused or write(meeting, "driver"):
            mend = "set cluster.storage to a folder or a bucket that may be written"
            return [*findings, Finding(ALL, "storage", "problem", wrong, mend)]
        return [*findings, *_of_all(machines, meeting, config)]


@contextlib.contextmanager
def _meeting(storage: str, project: Path) -> Iterator[tuple[str, str | None]]:
    """A place in the storage for files of the driver and of all nodes; and why there is none."""
    name, refused = f".doctor-{uuid.uuid4().hex[:12]}", None
    if is_address(storage):
        place = f"{storage.rstrip('/')}/{name}"
    else:
        place = str((project / storage).resolve() / name)
        try:
            Path(place).mkdir(parents=True)
        except OSError as error:
            refused = str(error)
    try:
        yield place, refused
    finally:
        if is_address(storage):
            with contextlib.suppress(OSError, UserError):
                for left in (there := ObjectStore(place)).sizes():
                    there.delete(left)
        else:
            shutil.rmtree(place, ignore_errors=True)


def _of_all(machines: list[_Machine], meeting: str, config: Config) -> Iterator[Finding]:
    asked = {machine: on_node(machine.id, facts, meeting, machine.id) for machine in machines}
    until = time.monotonic() + PATIENCE  # of all alike: they were asked at once
    told: dict[_Machine, dict[str, Any]] = {}
    for machine, reference in asked.items():
        try:
            told[machine] = _answer(machine, reference, until)
        except _NoAnswerError as silent:
            yield silent.finding
    for machine in told:
        try:
            yield from _of_machine(machine, told[machine], config)
            yield _storage(machine, told, meeting)
            yield _clock(machine)
            if machine is not (first := next(iter(told))):
                yield _bandwidth(first, machine)
        except _NoAnswerError as silent:
            yield silent.finding


# --- asking --------------------------------------------------------------------------------------


def _machines() -> list[_Machine]:
    alive = [found for found in ray.nodes() if found["Alive"]]
    hosts = Counter(found["NodeManagerHostname"] for found in alive)

    def name(found: dict[str, Any]) -> str:
        host = str(found["NodeManagerHostname"])
        return host if hosts[host] == 1 else f"{host} (node {found['NodeID'][:8]})"

    return [
        _Machine(name(found), found["NodeID"], float(found["Resources"].get("GPU", 0)))
        for found in alive
    ]


class _NoAnswerError(Exception):
    """A node did not answer."""

    def __init__(self, machine: _Machine, text: str) -> None:
        super().__init__(text)
        mend = (
            "install the same environment there as here (constraints.txt); if it is there, look "
            "at the node's logs in Ray's temporary folder"
        )
        self.finding = Finding(machine.name, "answer", "problem", text, mend)


def _answer(machine: _Machine, reference: ray.ObjectRef[Any], until: float | None = None) -> Any:
    """until: by time.monotonic(); None: PATIENCE from now. Raises _NoAnswerError after that."""
    left = PATIENCE if until is None else max(0.0, until - time.monotonic())
    try:
        return ray.get(reference, timeout=left)
    except ray.exceptions.GetTimeoutError:
        raise _NoAnswerError(machine, f"none in {PATIENCE:g} s") from None
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        raise _NoAnswerError(machine, lines[-1]) from None


# --- each machine --------------------------------------------------------------------------------


def _check(
    where: str, what: str, well: bool, text: str, level: Literal["warning", "problem"], remedy: str
) -> Finding:
    """level, remedy: where it is not well."""
    if well:
        return Finding(where, what, "well", text)
    return Finding(where, what, level, text, remedy)


def _of_machine(machine: _Machine, told: dict[str, Any], config: Config) -> Iterator[Finding]:
    name, free = machine.name, told["free_temporary"]
    there, here = told["versions"], versions()
    other = [f"{key} {there[key]} (here {here[key]})" for key in here if there[key] != here[key]]
    text = ", ".join(other or (f"{key} {value}" for key, value in there.items()))
    mend = "install what constraints.txt names on all nodes"
    yield _check(name, "versions", not other, text, "problem", mend)
    missing = told["dashboard"]
    mend = "install ray[default], as constraints.txt has it: the job server needs it"
    yield _check(name, "ray[default]", not missing, missing or "installed", "problem", mend)
    yield _gpus(machine, told)
    if told["storage"] is None:
        yield _disk(machine, told["free"], config)
    text = f"{tqdm.format_sizeof(free, 'B')} free"
    yield _check(name, "temporary files", free >= TEMPORARY_BYTES, text, "warning", MORE_ROOM)


def _gpus(machine: _Machine, told: dict[str, Any]) -> Finding:
    names = [f"{count} x {name}" for name, count in Counter(told["gpus"]).items()]
    text = ", ".join(names) or "none"
    if told["driver"]:
        text += f"; driver {told['driver']}, torch for CUDA {told['cuda'] or '- (CPU only)'}"
    if told["driver_fault"]:
        mend = "load the driver again (nvidia-smi must answer), or restart the machine"
        return Finding(machine.name, "GPUs", "problem", told["driver_fault"], mend)
    if machine.gpus and len(told["gpus"]) < machine.gpus:
        mend = "install a torch for CUDA and a driver that is new enough for it"
        text = f"Ray counts {machine.gpus:g}, torch sees {text}"
        return Finding(machine.name, "GPUs", "problem", text, mend)
    mend = "install a torch for CUDA if they are to be used"
    well = bool(told["gpus"]) or not told["driver"]
    return _check(machine.name, "GPUs", well, text, "warning", mend)


def _disk(machine: _Machine, free: int, config: Config) -> Finding:
    """Whether the checkpoints fit: weights and the optimizer's moments, in float32."""
    parameters = flops.parameter_count(config.model, config.vocabulary.size)
    # One is written before another goes.
    needed = 4 * (1 + config.moments) * parameters * (Retention.of(config).most() + 2)
    size = tqdm.format_sizeof
    text = f"{size(free, 'B')} free, about {size(needed, 'B')} needed for checkpoints"
    where = "TMPDIR" if is_address(config.cluster.storage) else "cluster.storage"
    mend = f"free some, set {where} to another disk, or keep fewer (train.keep_*)"
    return _check(machine.name, "storage's disk", free > needed, text, "problem", mend)


# --- between machines ----------------------------------------------------------------------------


def _storage(machine: _Machine, told: dict[_Machine, dict[str, Any]], meeting: str) -> Finding:
    """Whether it wrote to the storage, and reads what the driver and the other nodes wrote."""
    storage, _, _ = meeting.rpartition("/")
    mend = (
        "give this node the endpoint and the credentials of the others, before Ray starts there"
        if is_address(meeting)
        else "mount the same folder, writable, on all nodes, and set cluster.storage to it"
    )
    error = told[machine]["storage"]
    if error is not None:
        return Finding(machine.name, "storage", "problem", error, mend)
    seen = _answer(machine, on_node(machine.id, names_seen, meeting))
    others = {"driver": "the driver"} | {
        other.id: other.name for other in told if told[other]["storage"] is None
    }
    unseen = [name for key, name in others.items() if key not in seen]
    text = f"{storage}: written, locked, and what others wrote is read"
    if unseen:
        text = f"does not see what {' and '.join(unseen)} wrote in {storage}"
    return _check(machine.name, "storage", not unseen, text, "problem", mend)


def _clock(machine: _Machine) -> Finding:
    """Its clock against the driver's, by the quickest of a few questions."""
    rounds = []
    for _ in range(5):
        before = time.time()
        there = _answer(machine, on_node(machine.id, clock))
        after = time.time()
        rounds.append((after - before, there - (before + after) / 2))
    took, ahead = min(rounds)
    text = f"{ahead:+.3f} s against the driver's (± {took / 2:.3f} s)"
    well, mend = abs(ahead) <= MOST_SKEW + took / 2, "let NTP (chrony) set all nodes' clocks"
    return _check(machine.name, "clock", well, text, "warning", mend)


def _bandwidth(one: _Machine, other: _Machine) -> Finding:
    """How fast a block comes from one node to another."""
    sent = on_node(one.id, block, BLOCK_BYTES)
    ray.wait([sent], timeout=PATIENCE, fetch_local=False)
    rate = BLOCK_BYTES / _answer(other, on_node(other.id, seconds_to_fetch, [sent]))
    text = f"{tqdm.format_sizeof(rate, 'B')}/s"
    mend = "train on fewer nodes, or raise train.tokens_per_update: gradients travel every update"
    what = f"{one.name} to {other.name}"
    return _check(ALL, what, rate >= SLOW_BYTES_PER_SECOND, text, "warning", mend)


def _workers(config: Config) -> Finding:
    """Whether the workers of a training fit."""
    machines = session.nodes()
    text = session.describe(machines)
    try:
        cpus = session.cpus_per_worker(config.cluster, machines)
    except UserError as error:
        return Finding(ALL, "workers", "problem", text, str(error))
    text += f": room for {config.cluster.workers} worker(s) of {cpus} CPU(s)"
    idle = session.idle_in_training(config.cluster)
    return _check(ALL, "workers", not idle, text, "warning", idle or "")


def _trials(config: Config) -> Iterator[Finding]:
    """Whether a trial of the sweep fits, if there is to be one."""
    # Not for the nodes, which import this module to answer.
    from seq2sweep.cluster.tune_runner import idle_gpus, require_room

    if config.sweep.method == "none":
        return
    text = session.describe(session.nodes())
    try:
        require_room(config)
    except UserError as error:
        yield Finding(ALL, "trials", "problem", text, str(error))
    else:
        text, idle = f"{text}: room for a trial of the sweep", idle_gpus(config.sweep)
        yield _check(ALL, "trials", not idle, text, "warning", idle or "")


# --- what a node says of itself ------------------------------------------------------------------


def facts(meeting: str, name: str) -> dict[str, Any]:
    """Versions, devices, room, and what became of a file that this machine wrote.

    meeting: a folder or an address in the storage, where the driver wrote its own file; name: of
    ours.
    """
    driver, driver_fault = _driver()
    disk = Path(tempfile.gettempdir() if is_address(meeting) else meeting)
    return {
        "versions": versions(),
        "dashboard": ray_internals.dashboard_fault(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "driver": driver,
        "driver_fault": driver_fault,
        "cuda": torch.version.cuda,
        "storage": write(meeting, name),
        # Where checkpoints are written.
        "free": shutil.disk_usage(disk).free if disk.exists() else None,
        "free_temporary": shutil.disk_usage(ray_internals.session_folder()).free,
    }


def versions() -> dict[str, str]:
    """Python, the packages that count, and a sum of this package's own code."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package).partition("+")[0]  # +cpu: a build of the same
        except PackageNotFoundError:
            found[package] = "missing"
    root = Path(seq2sweep.__file__).parent
    code = hashlib.sha256()
    for file in sorted(root.rglob("[!.]*.py")):  # no editor's
        code.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return found | {"seq2sweep": code.hexdigest()[:12]}


def clock() -> float:
    """Unix seconds here."""
    return time.time()


def names_seen(meeting: str) -> list[str]:
    """Whose files this machine can read, and reads as they were written."""
    if is_address(meeting):
        there = ObjectStore(meeting)
        return [name for name in there.sizes() if there.read(name) == name.encode()]
    return [path.name for path in Path(meeting).iterdir() if path.read_text() == path.name]


def block(count: int) -> bytes:
    """So many bytes, to be sent elsewhere."""
    return bytes(count)


def seconds_to_fetch(references: list[ray.ObjectRef[Any]]) -> float:
    """How long the only object takes to come here."""
    before = time.perf_counter()
    ray.get(references[0])
    return time.perf_counter() - before


def write(meeting: str, name: str) -> str | None:
    """Leave a file at the meeting place, which only one can have made; what went wrong."""
    try:
        if is_address(meeting):
            there = ObjectStore(meeting)
            there.create(name, name.encode())
            if there.create(name, b"another"):
                return (
                    f"{there.address}: its server replaces an object that is to be made only if it "
                    "is not there (If-None-Match), so two trainings could write at once"
                )
            return None
        path = Path(meeting) / name
        path.write_text(name)
        with path.open("a") as stream:
            try_lock(stream.fileno(), path, "cluster.storage")
    except (OSError, UserError) as error:
        return str(error)
    return None


def _driver() -> tuple[str | None, str | None]:
    """Version of the NVIDIA driver, if there is one; and what is wrong with it, if it is dead."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=DRIVER_SECONDS)
    except FileNotFoundError:
        return None, None
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"nvidia-smi: {error}"
    if told.returncode == 0:
        return told.stdout.strip().partition("\n")[0], None
    vendors = [file.read_text().strip() for file in PCI_DEVICES.glob("*/vendor")]
    if vendors and "0x10de" not in vendors and not Path("/dev/dxg").exists():
        return None, None  # no GPU of NVIDIA's, nor WSL's: a head of its workers' image
    said = (told.stdout + told.stderr).strip().partition("\n")[0]
    return None, f"nvidia-smi: {said or f'status {told.returncode}'}"
