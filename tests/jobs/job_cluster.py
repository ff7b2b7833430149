"""A Ray head with its job server, as a process of its own, and a project to submit to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.cluster import local_cluster, reaper

ROOT = Path(__file__).parents[2]
LONGEST_START = 120.0
# A raylet whose agent takes longer than 30 seconds to start would end, and the head with it.
PATIENT = local_cluster.PATIENT | {"RAY_raylet_start_wait_time_s": f"{LONGEST_START:.0f}"}

# What a stage does is said by files in the storage: so no test has to wait by the clock.
STUB = """
import os, sys, time
from pathlib import Path
from seq2sweep.stages import stage


def train(config):
    meet = Path(config.cluster.storage) / "meet"
    with (meet / "runs").open("a") as runs:
        runs.write(f"{config.train.seed}\\n")
    print("the stub begins", flush=True)
    while not (meet / "go").exists():
        time.sleep(0.05)
    status = meet / "status"
    if status.exists():
        print("seq2sweep train: the stub says no", file=sys.stderr)
        sys.exit(int(status.read_text()))
    data = Path("data/encoded/train.json").read_text()
    Path("models/train").mkdir(parents=True)
    Path("models/train/weights").write_text(f"{config.train.seed} {data}")
    Path("models/train/commit").write_text(os.environ.get("SEQ2SWEEP_COMMIT", "none"))
    Path("models/train/value").write_text(os.environ.get("STUB_VALUE", "none"))


stage.run("train", "a stub", train, as_job=lambda config: True)
"""
DVC = """
stages:
  encode:
    cmd: mkdir -p data/encoded && printf 'made there' > data/encoded/train.json
    params: [data]
    outs: [data/encoded]
  train:
    cmd: python stub.py
    params: [train]
    deps: [data/encoded/train.json]
    outs: [models/train]
"""


@dataclass(frozen=True)
class Head:
    """Its job server's address, and what its clients need in their environment."""

    address: str
    folder: Path
    environment: dict[str, str]


@contextlib.contextmanager
def head() -> Iterator[Head]:
    """A cluster of one node that wants a token; its processes end with the block or with us."""
    folder = tempfile.mkdtemp(prefix="s2s-head-", dir="/tmp")
    home = Path(folder) / "home"
    home.mkdir()
    ports = _free_ports(4)
    token = uuid.uuid4().hex + uuid.uuid4().hex
    client = _environment() | {"HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    watching = reaper.start(folder)
    try:
        with (Path(folder) / "output").open("w") as output:
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
                    *("--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"),
                    *(f"--port={ports[0]}", f"--dashboard-port={ports[1]}"),
                    f"--dashboard-agent-listen-port={ports[2]}",
                    f"--ray-client-server-port={ports[3]}",
                    *("--num-cpus=2", "--object-store-memory=100000000", "--disable-usage-stats"),
                    f"--temp-dir={folder}/ray",
                ],
                env=client | PATIENT | {reaper.MARK: folder},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        address = f"http://127.0.0.1:{ports[1]}"
        _wait_until_it_takes_jobs(address, token, Path(folder))
        yield Head(address, Path(folder), client)
    finally:
        reaper.finish(watching, folder)
        shutil.rmtree(folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    """Without what a Ray in this process has set there; with this library and this Python."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "GIT_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean | {"PATH": path, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def _wait_until_it_takes_jobs(address: str, token: str, folder: Path) -> None:
    give_up = time.monotonic() + LONGEST_START
    while True:
        with contextlib.suppress(requests.RequestException):
            headers = {"Authorization": f"Bearer {token}"}
            if requests.get(f"{address}/api/jobs/", headers=headers, timeout=5).ok:
                return
        assert time.monotonic() < give_up, (folder / "output").read_text()
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Project:
    """A project of two stages: what they do is told by files in its storage."""

    def __init__(self, folder: Path, head: Head) -> None:
        self.folder, self.head = folder / "project", head
        self.storage = folder / "storage"
        self.meet = self.storage / "meet"
        self.meet.mkdir(parents=True)
        self.folder.mkdir()
        for name, text in {
            "stub.py": STUB,
            "dvc.yaml": DVC,
            ".gitignore": "/data/\n/models/\n__pycache__/\n",
            ".dvc/config": "[core]\n    analytics = false\n",
            ".dvc/.gitignore": "/config.local\n/tmp\n/cache\n",
        }.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)
        subprocess.run(["git", "init", "-q", "--template=", str(self.folder)], check=True)
        self.changes: dict[str, object] = {}
        self.set(
            {
                "cluster.storage": str(self.storage),
                "cluster.job_server": head.address,
                # Out of the job's copy of the project; no stub records anything.
                "tracking.uri": f"sqlite:///{folder / 'mlflow.db'}",
                # No stub reads it: it makes this project's job another one than all others.
                "sweep.seed": int(uuid.uuid4().hex[:7], 16),
            }
        )

    def set(self, changes: dict[str, object]) -> None:
        """Change params.yaml."""
        self.changes |= changes
        config = configuration.with_changes(presets.load("phrasebook").config, self.changes)
        (self.folder / "params.yaml").write_text(configuration.dump(config))

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """A command here, such as `-m dvc repro`."""
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env=self.head.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def submit(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        """`seq2sweep submit`."""
        return self.start("-m", "seq2sweep.cli", "submit", *options, **environment)

    def repro(self, *options: str) -> subprocess.Popen[str]:
        """`dvc repro`."""
        return self.start("-m", "dvc", "repro", *options)

    def go(self) -> None:
        """Let the stubs come to their end."""
        (self.meet / "go").touch()

    @property
    def runs(self) -> list[str]:
        """The seed of each training that has begun."""
        file = self.meet / "runs"
        return file.read_text().split() if file.exists() else []

    def results(self) -> Path:
        """The folder of the only job that has left results."""
        (manifest,) = self.storage.glob("jobs/*/manifest.json")
        return manifest.parent
