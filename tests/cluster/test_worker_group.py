"""Which interface workers on several nodes use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist

from seq2sweep.cluster import ray_internals, worker_group


def test_the_interface_of_an_address() -> None:
    loopback = worker_group.interface_of("127.0.0.1")
    assert loopback is not None
    assert "127.0.0.1" in [a.address for a in psutil.net_if_addrs()[loopback]]
    assert worker_group.interface_of("192.0.2.1") is None  # an address for documentation: nobody's


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_group, "_address", lambda: "127.0.0.1")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    # Set first, so that what is set in its place is taken back in the end.
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    worker_group.use_interface_of_ray()
    assert os.environ["NCCL_SOCKET_IFNAME"] == "ib0"
    assert os.environ["GLOO_SOCKET_IFNAME"] == worker_group.interface_of("127.0.0.1")


def test_only_workers_on_several_nodes_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    class Group:
        def __init__(self, addresses: list[str]) -> None:
            self.addresses = addresses
            self.called: list[object] = []

        def execute(self, work: object) -> list[str]:
            self.called.append(work)
            return self.addresses

    started: list[object] = []
    monkeypatch.setattr(
        worker_group._OverRaysInterface.__base__,
        "on_start",
        lambda self, group, config: started.append(group),
    )
    for addresses, calls in ((["10.0.0.1"] * 2, 1), (["10.0.0.1", "10.0.0.2"], 2)):
        group = Group(addresses)
        worker_group.NodeToNode().backend_cls().on_start(group, worker_group.NodeToNode())
        assert len(group.called) == calls
        assert started[-1] is group


def test_workers_wait_for_each_other_however_long_their_job_is_suspended() -> None:
    assert worker_group.NodeToNode().timeout_s >= 7 * 24 * 3600


def test_workers_of_our_own_ray_meet_by_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's own server for this listens on all interfaces, and asks for nothing."""

    class Alone:
        """A group of one worker, which is this process."""

        def execute(self, work: Callable[..., object], *given: object) -> list[object]:
            return [work(*given)]

        def execute_single(self, rank: int, work: Callable[..., object]) -> object:
            return work()

        def get_resources_per_worker(self) -> dict[str, float]:
            return {"CPU": 1}

    monkeypatch.setattr(worker_group, "_address", lambda: ray_internals.LOOPBACK)
    monkeypatch.setattr(ray_internals, "session_folder", lambda: str(tmp_path))
    monkeypatch.setattr(ray_internals, "set_torch_variables", lambda: None)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    worker_group.NodeToNode().backend_cls().on_start(Alone(), worker_group.NodeToNode())
    try:
        assert dist.get_world_size() == 1
        assert dist.get_backend() == "gloo"
        assert os.environ["GLOO_SOCKET_IFNAME"] == worker_group.interface_of(ray_internals.LOOPBACK)
        assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["meeting"]
    finally:
        dist.destroy_process_group()
