"""Workers talk over the network that Ray talks over: on one machine of our own, over none."""

from __future__ import annotations

import os
import socket
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import ray
import torch.distributed as dist
from ray.train.torch import TorchConfig
from ray.train.torch.config import _set_torch_distributed_env_vars, _TorchBackend

from seq2sweep.cluster.private import LOOPBACK

CHANGES_NO_RESULT = "how workers find each other"

VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""What gloo and NCCL read; one that the user has set stays."""


class NodeToNode(TorchConfig):  # type: ignore[misc]
    """Ray's process group of torch, on the interface that has Ray's address.

    Left alone, gloo takes the address that the host's name stands for, which on Debian is
    127.0.1.1: no other node gets there. NCCL guesses, and takes Docker's bridge at times.
    """

    @property
    def backend_cls(self) -> type[_TorchBackend]:
        return _OverRaysInterface


class _OverRaysInterface(_TorchBackend):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        addresses = set(worker_group.execute(_address))
        if addresses == {LOOPBACK}:
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
    worker_group.execute(_set_torch_distributed_env_vars)
    gpus = worker_group.get_resources_per_worker().get("GPU", 0)
    backend = config.backend or ("nccl" if gpus else "gloo")
    place = Path(worker_group.execute_single(0, _session_folder)) / f"meeting-{uuid.uuid4().hex}"
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


def _session_folder() -> str:
    return str(ray._private.worker._global_node.get_session_dir_path())


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
