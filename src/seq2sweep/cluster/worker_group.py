"""How the workers of a training start: Ray Train's trainer, the watch over it, their network.

A worker that has begun watches itself (watchdog.py). What never begins only the driver can see:
what a start waits for is said, and not waited for ever.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import ray
import torch.distributed as dist
from ray.train.torch import TorchConfig, TorchTrainer

from seq2sweep import console
from seq2sweep.cluster import ray_internals, session
from seq2sweep.config import ClusterConfig

CHANGES_NO_RESULT = "how workers are asked for and find each other"

LOOK_SECONDS = 2.0
"""How often the driver looks whether those that it waits for live."""
START_SECONDS = 300.0
"""How long workers may take to start where there is room for them; 10 to 60 s is usual."""
GROW_SECONDS = 60.0
"""How often the driver looks whether workers that are missing have room now."""
VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""What gloo and NCCL read; one that the user has set stays."""


class RayTrainer(TorchTrainer):  # type: ignore[misc]
    """Ray Train's trainer with a controller that its driver knows and can end."""

    def __init__(self, cluster: ClusterConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._handle: Any = None
        self.controller: str | None = None
        """Ray's id (hex) of the actor that coordinates the workers; None before it is made."""
        alone = cluster.running_address is None
        each = self.scaling_config.resources_per_worker
        room = functools.partial(_room, each["CPU"], each.get("GPU", 0))
        ray_internals.tell_controller(
            self, self._keep, alone, room if cluster.min_workers else None
        )

    def _keep(self, handle: Any, name: str) -> None:
        self._handle, self.controller = handle, name

    def give_up(self) -> None:
        """End the workers, whatever they or Ray wait for; `fit` raises then."""
        if self._handle is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(self._handle)
        ray_internals.remove_orphans()


def _room(cpus: float, gpus: float) -> int:
    """How many workers of so many CPUs and GPUs what is free holds."""
    return session.places(session.free_nodes(), cpus, gpus)


# --- waiting for a start -------------------------------------------------------------------------


class WorkersNotStartedError(Exception):
    """Workers or trials did not start, though there was room for them."""


class StartWatch:
    """Called again and again while others are to work; says what it waits for while none does.

    Raises WorkersNotStartedError after START_SECONDS. These count from the beginning or from when
    somebody was last at work, but not while there is no room: for nodes that are to come, or for
    other jobs.
    """

    def __init__(
        self, what: str, at_work: Callable[[], bool], lack: Callable[[], str | None]
    ) -> None:
        """what: is to start, with its number; lack: of room, as `session.lack_of_room` gives it."""
        self.what, self.at_work, self.lack = what, at_work, lack
        self.looked = self.alive = time.monotonic()
        self.working = False

    def __call__(self) -> bool:
        """Whether they were at work when they were last looked for, once in LOOK_SECONDS."""
        now = time.monotonic()
        if now - self.looked < LOOK_SECONDS:
            return self.working
        if not session.require_alive.answers():
            return False
        before, self.looked = self.looked, now
        self.working = self.at_work()
        if self.working:
            self.alive = now
            return True
        lack = self.lack()
        if lack:
            self.alive += now - before
        console.doing(lack or f"waiting for {self.what} to start")
        if now - self.alive > START_SECONDS:
            raise WorkersNotStartedError(
                f"{self.what} did not start within {console.duration(now - self.alive)}, though "
                "there was room"
            )
        return False


class Start(StartWatch):
    """Of the workers of one attempt at a training."""

    def __init__(
        self, cluster: ClusterConfig, cpus: int, trainer: RayTrainer, begun: Callable[[], bool]
    ) -> None:
        """begun: whether a worker of this attempt has got to our code."""
        fewest, gpus = cluster.min_workers or cluster.workers, cluster.gpus_per_worker
        self.cluster, self.cpus, self.trainer = cluster, cpus, trainer
        self.counted = time.monotonic()

        def at_work() -> bool:
            ray_internals.remove_orphans()
            controller = trainer.controller
            return bool(controller and ray_internals.live_workers(controller) and begun())

        def lack() -> str | None:
            if trainer.controller and ray_internals.has_room(trainer.controller):
                return None
            what = f"{fewest} workers of {cpus} CPUs and {gpus} GPUs"
            return session.lack_of_room(what, fewest, cpus, gpus, cluster)

        super().__init__(f"{cluster.workers} workers", at_work, lack)

    def room_for_more(self) -> int:
        """For how many workers that are missing there is room; looked for once in GROW_SECONDS."""
        now, cluster = time.monotonic(), self.cluster
        if not cluster.min_workers or now - self.counted < GROW_SECONDS:
            return 0
        self.counted = now
        missing = cluster.workers - ray_internals.live_workers(self.trainer.controller or "")
        return min(missing, _room(self.cpus, cluster.gpus_per_worker)) if missing > 0 else 0


# --- the network that they talk over -------------------------------------------------------------


@dataclass
class NodeToNode(TorchConfig):  # type: ignore[misc]
    """Ray's process group of torch, on the interface that has Ray's address.

    timeout_s: seconds that workers wait for each other. A hang is the watchdog's to end; this clock
    runs on while a job is suspended.

    In a Ray of our own that is the loopback interface. Left alone, gloo takes the address that the
    host's name stands for, which on Debian is 127.0.1.1: no other node gets there. NCCL guesses,
    and takes Docker's bridge at times.
    """

    timeout_s: int = 7 * 24 * 3600

    @property
    def backend_cls(self) -> Any:
        return _OverRaysInterface


class _OverRaysInterface(TorchConfig().backend_cls):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        addresses = set(worker_group.execute(_address))
        if addresses == {ray_internals.LOOPBACK}:
            _meet_in_a_file(worker_group, backend_config)
            return
        if len(addresses) > 1:
            worker_group.execute(use_interface_of_ray)
        super().on_start(worker_group, backend_config)


def _meet_in_a_file(worker_group: Any, config: TorchConfig) -> None:
    """Make the process group of a Ray of our own.

    The server by which workers find each other would listen on all interfaces and ask nobody who
    they are: a file in Ray's folder does as well.
    """
    worker_group.execute(use_interface_of_ray)
    worker_group.execute(ray_internals.set_torch_variables)
    gpus = worker_group.get_resources_per_worker().get("GPU", 0)
    backend = config.backend or ("nccl" if gpus else "gloo")
    folder = worker_group.execute_single(0, ray_internals.session_folder)
    place = Path(folder) / f"meeting-{uuid.uuid4().hex}"
    worker_group.execute(join, str(place), backend, config.timeout_s)


def join(place: str, backend: str, seconds: float) -> None:
    """This worker becomes one of the process group whose file is at `place`."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        backend,
        store=dist.FileStore(place, size),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=seconds),
    )


def _address() -> str:
    """Of this node, as Ray knows it."""
    return str(ray.util.get_node_ip_address())


def use_interface_of_ray() -> None:
    """Have gloo and NCCL in this process use the interface with Ray's address, if one has it."""
    name = interface_of(_address())
    if name is not None:
        for variable in VARIABLES:
            os.environ.setdefault(variable, name)


def interface_of(address: str) -> str | None:
    """The network interface with this IP address; None where it is another's (a NAT)."""
    families = (socket.AF_INET, socket.AF_INET6)
    for name, addresses in psutil.net_if_addrs().items():
        # An IPv6 address may have its interface behind it, as in fe80::1%eth0.
        if any(a.family in families and a.address.split("%")[0] == address for a in addresses):
            return str(name)
    return None
