"""Workers on several nodes talk over the network that Ray talks over."""

from __future__ import annotations

import os
import socket
from typing import Any

import psutil
import ray
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

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
        if len(set(worker_group.execute(_address))) > 1:
            worker_group.execute(use_interface_of_ray)
        super().on_start(worker_group, backend_config)


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
