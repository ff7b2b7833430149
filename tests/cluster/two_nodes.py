"""Two nodes with networks of their own, and home between them with the servers that they need.

Each node is a network namespace with one interface, on a bridge that home is on as well. Nodes and
home have a temporary folder and a home folder each, and no folder in common.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from seq2sweep.cluster import reaper
from tests.tracking.servers import free_port

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/clusters.md"
PRIVATE = "/tmp/ray-$USER"  # there
NODES = ("head", "worker")
BUCKET = "runs"
LONGEST_START = 180.0


@dataclass
class Machines:
    """folder: of all that they write; home: its address; addresses: of the nodes; environment: of
    the commands at home."""

    folder: Path
    name: str
    home: str
    addresses: dict[str, str]
    environment: dict[str, str]
    storage_address: str = ""
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def job_server(self) -> str:
        return f"http://{self.addresses['head']}:8265"

    def start_node(self, node: str) -> None:
        """The docs' command for it, in its namespace."""
        place, seen = self.folder / node, self.folder / "node"
        for each in (place, seen):
            each.mkdir(exist_ok=True)
        (command,) = (line for line in commands_of_docs() if ("--head" in line) == (node == "head"))
        command = command.replace("HEAD_ADDRESS", self.addresses["head"])
        private = seen / "private"
        shutil.rmtree(place / private.name, ignore_errors=True)  # of a start before
        command = command.replace(PRIVATE, str(private))
        # A quarter of this computer for each, and a mark by which all of it is found and ended.
        command += " --num-cpus=1 --object-store-memory=100000000"
        settings, command = split_settings(command)
        environment = self.environment | settings | {reaper.MARK: str(self.folder)}
        environment |= {"HOME": str(seen), "TMPDIR": str(seen), "RAY_TMPDIR": str(seen)}
        # Ray has its folder at the same path on all nodes, as machines of their own would: each
        # sees its own there, which no other and nobody at home sees.
        own = (
            f"mount --bind {place} {seen} && cd {seen} && mkdir -m 700 {private} && exec {command}"
        )
        with (place / "output").open("ab") as output:
            self.nodes[node] = subprocess.Popen(
                ["ip", "netns", "exec", f"{self.name}-{node}", "sh", "-c", own],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill_node(self, node: str) -> None:
        """As if its cable were pulled and its power gone."""
        subprocess.run(["ip", "-n", f"{self.name}-{node}", "link", "set", "eth0", "down"])
        self.end_processes(node)

    def end_processes(self, node: str) -> None:
        """SIGKILL to all that runs in its namespace."""
        told = subprocess.run(
            ["ip", "netns", "pids", f"{self.name}-{node}"], capture_output=True, text=True
        )
        for pid in told.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        self.nodes.pop(node).wait()

    def wait_for_nodes(self, count: int) -> None:
        """Until the cluster takes jobs and so many nodes have come."""
        headers = {"Authorization": f"Bearer {self.environment['RAY_AUTH_TOKEN']}"}
        give_up = time.monotonic() + LONGEST_START
        while True:
            with contextlib.suppress(requests.RequestException, KeyError):
                url = f"{self.job_server}/nodes?view=summary"
                summary = requests.get(url, headers=headers, timeout=5).json()["data"]["summary"]
                alive = [n for n in summary if n["raylet"].get("state") == "ALIVE"]
                jobs = requests.get(f"{self.job_server}/api/jobs/", headers=headers, timeout=5)
                if len(alive) >= count and jobs.ok:
                    return
            assert time.monotonic() < give_up, self.logs()
            for node, process in list(self.nodes.items()):
                if process.poll() is not None:
                    # As a service manager would: on a busy machine Ray gives up after 30 s.
                    self.end_processes(node)
                    self.start_node(node)
            time.sleep(0.3)

    def logs(self) -> str:
        """What the nodes and servers said."""
        files = [*self.folder.glob("*/output"), *self.folder.glob("*.log")]
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-3000:]}" for file in files)


def commands_of_docs() -> list[str]:
    """The lines of docs/clusters.md that start a head and a node by hand."""
    return [
        line.strip()
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("    ") and "ray start" in line
    ]


def split_settings(command: str) -> tuple[dict[str, str], str]:
    """The settings of variables before a command, and the command."""
    settings = {}
    while match := re.match(r"(\w+)=(\S+)\s+", command):
        settings[match[1]] = match[2]
        command = command[match.end() :]
    return settings, command


@contextlib.contextmanager
def machines() -> Iterator[Machines]:
    """A head, a worker and an S3 server at home; skips where there can be no such networks."""
    folder = Path(tempfile.mkdtemp(prefix="s2n-", dir="/tmp"))
    watching = reaper.start(str(folder))
    name = f"s2n{uuid.uuid4().hex[:4]}"
    try:
        with _networks(name) as (home, addresses):
            made = Machines(folder, name, home, addresses, _environment(folder))
            with _storage(made):
                for count, node in enumerate(NODES, 1):
                    made.start_node(node)
                    made.wait_for_nodes(count)
                yield made
    finally:
        reaper.finish(watching, str(folder))
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _networks(name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A bridge with home and two namespaces on it; gives their addresses."""
    if shutil.which("ip") is None or os.getuid() != 0:
        pytest.skip("network namespaces need root, and the program ip (Debian: iproute2)")
    subnet = f"10.{random.randrange(64, 255)}.{random.randrange(255)}"
    addresses = {node: f"{subnet}.{number}" for number, node in enumerate(NODES, 2)}
    try:
        _ip(f"link add {name} type bridge")
        _ip(f"addr add {subnet}.1/24 dev {name}")
        _ip(f"link set {name} up")
        for node in NODES:
            space, cable = f"{name}-{node}", f"{name}{node[:1]}"
            _ip(f"netns add {space}")
            _ip(f"link add {cable} type veth peer name eth0 netns {space}")
            _ip(f"link set {cable} master {name} up")
            _ip(f"-n {space} addr add {addresses[node]}/24 dev eth0")
            _ip(f"-n {space} link set eth0 up")
            _ip(f"-n {space} link set lo up")
        yield f"{subnet}.1", addresses
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    finally:
        for node in NODES:
            subprocess.run(["ip", "netns", "del", f"{name}-{node}"], capture_output=True)
        subprocess.run(["ip", "link", "del", name], capture_output=True)


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, text=True)


def _environment(folder: Path) -> dict[str, str]:
    """Of home's commands: this library and Python, keys of the S3 server, the cluster's token."""
    others = ("RAY_", "GIT_", "AWS_", "GLOO_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    home = folder / "home"
    home.mkdir()
    return clean | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(home),
        "TMPDIR": str(home),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": uuid.uuid4().hex + uuid.uuid4().hex,
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": uuid.uuid4().hex,
        "AWS_DEFAULT_REGION": "us-east-1",
        # A node that is gone is noticed after a second or two.
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "4",
        "RAY_health_check_initial_delay_ms": "5000",
        # As workers are asked for again that only a node had room for that is gone.
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "20",
    }


@contextlib.contextmanager
def _storage(made: Machines) -> Iterator[None]:
    """An S3 server at home with a bucket."""
    pytest.importorskip("moto.server")
    port = free_port()
    made.storage_address = f"http://{made.home}:{port}"
    made.environment["AWS_ENDPOINT_URL"] = made.storage_address
    with (made.folder / "storage.log").open("wb") as log, running(
        [sys.executable, "-m", "moto.server", "-H", made.home, "-p", str(port)],
        made.environment, log,
    ):  # fmt: skip
        give_up = time.monotonic() + LONGEST_START
        while True:
            with contextlib.suppress(requests.RequestException):
                if requests.put(f"{made.storage_address}/{BUCKET}", timeout=5).ok:
                    break
            assert time.monotonic() < give_up, made.logs()
            time.sleep(0.2)
        yield


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: dict[str, str], log: object
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the time of a block."""
    process: subprocess.Popen[bytes] = subprocess.Popen(
        command,
        env=environment,
        stdout=log,
        stderr=log,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
