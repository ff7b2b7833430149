"""Two nodes that share nothing but a bucket: trained from home by `dvc repro`, through three kills.

Head and worker are started by the commands of docs/clusters.md, in network namespaces; MLflow keeps
its records in PostgreSQL, and the bucket is one of an S3 server, both at home.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow import MlflowClient

from seq2sweep import config as configuration
from seq2sweep import presets
from tests.clone import copy_project
from tests.cluster import two_nodes
from tests.cluster.chaos import wait_until
from tests.cluster.two_nodes import BUCKET, Machines
from tests.tracking.servers import MlflowServer, postgresql

STEPS = 800
LOG_EVERY = 20
CHANGES = {
    "data.phrasebook.train": 1500,
    "data.phrasebook.valid": 60,
    "data.phrasebook.test": 60,
    "vocabulary.size": 500,
    "model.layers": 1,
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.d_k": 16,
    "model.d_v": 16,
    "train.steps": STEPS,
    "train.tokens_per_update": 1500,
    "train.log_every": LOG_EVERY,
    "train.validate_every": 200,
    "train.checkpoint_every": 50,
    "cluster.workers": 2,
    "cluster.min_workers": 1,
    "cluster.cpus_per_worker": 1,
    "cluster.storage": f"s3://{BUCKET}/demo",
    "cluster.job_environment": ["MLFLOW_TRACKING_URI"],
}


class Home:
    """A project, and the commands that its user types."""

    def __init__(self, machines: Machines, mlflow: MlflowServer | None) -> None:
        """mlflow: where it records; None: in a file of the project."""
        self.machines, self._mlflow = machines, mlflow
        self.folder = machines.folder / "project"
        copy_project(self.folder)
        subprocess.run(["git", "init", "-q", str(self.folder)], check=True)
        self.set({"cluster.job_server": machines.job_server})

    @property
    def mlflow(self) -> MlflowServer:
        assert self._mlflow is not None
        return self._mlflow

    def set(self, changes: dict[str, object]) -> None:
        """Change params.yaml."""
        config = configuration.with_changes(presets.load("phrasebook").config, CHANGES | changes)
        (self.folder / "params.yaml").write_text(configuration.dump(config))

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A command, whose output can be read while it runs."""
        server = {"MLFLOW_TRACKING_URI": self._mlflow.uri} if self._mlflow else {}
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env=self.machines.environment | server | {"PYTHONPATH": "src", "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def call(self, *command: str, status: int = 0) -> str:
        """A command to its end; gives what it said."""
        process = self.start(*command)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == status, said + self.machines.logs()
        return said

    def ask(self, method: str, path: str = "", **content: object) -> Any:
        """What the cluster's job server answers."""
        headers = {"Authorization": f"Bearer {self.machines.environment['RAY_AUTH_TOKEN']}"}
        url = f"{self.machines.job_server}/api/jobs/{path}"
        answer = requests.request(method, url, headers=headers, json=content, timeout=60)
        assert answer.ok, answer.text
        return answer.json()

    def jobs(self, stage: str = "") -> list[str]:
        """The ids of all jobs, or those of a stage, that were ever submitted to the cluster."""
        found = [job["submission_id"] for job in self.ask("GET") if job["submission_id"]]
        return sorted(job for job in found if job.startswith(stage))

    @contextlib.contextmanager
    def busy(self, node: str) -> Iterator[None]:
        """A job of somebody else takes all CPUs of a node for the time of a block."""
        there = {f"node:{self.machines.addresses[node]}": 0.001}
        job = self.ask(
            "POST", entrypoint="sleep 600", entrypoint_num_cpus=1, entrypoint_resources=there
        )["submission_id"]
        wait_until(lambda: self.ask("GET", job)["status"] == "RUNNING")
        yield
        self.ask("POST", f"{job}/stop")
        wait_until(lambda: self.ask("GET", job)["status"] == "STOPPED")


def read_to_step(process: subprocess.Popen[str], step: int) -> str:
    """Read what a command says until it tells of a step; gives what was read."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        found = re.match(r"step +(\d+)/", line)
        if found and int(found[1]) >= step:
            return seen
    raise AssertionError(f"the command ended before step {step}:\n{seen}")


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with two_nodes.machines() as made:
        yield made


@pytest.fixture(scope="module")
def home(machines: Machines, thorough: bool) -> Iterator[Home]:
    if not thorough:  # then no test here asks what is recorded
        yield Home(machines, None)
        return
    with postgresql() as database:
        mlflow = MlflowServer(database, machines.folder, machines.home)
        mlflow.start()
        yield Home(machines, mlflow)
        mlflow.kill()


def trains_there(machines: Machines, node: str) -> bool:
    """Whether a training worker runs on a node."""
    space = f"{machines.name}-{node}"
    pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True)
    titles = [Path(f"/proc/{pid}/cmdline") for pid in pids.stdout.split()]
    return any(b"RayTrainWorker" in title.read_bytes() for title in titles if title.exists())


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_sweep_is_scored_on_a_node_that_does_not_see_the_project(home: Home) -> None:
    """The job's copy of it lies on the head, which is busy. Before the worker is lost."""
    sweep = {
        "train.steps": 40,
        "train.validate_every": 20,
        "evaluate.beam": 1,
        "sweep.method": "one_at_a_time",
        "sweep.base": {},
        "sweep.space": {"train.learning_rate_scale": [0.5]},
        "sweep.seeds": 1,
        "sweep.scheduler": "none",
        "sweep.cpus_per_trial": 1,
    }
    home.set({"cluster.job_server": home.machines.job_server} | sweep)
    with home.busy("head"):
        home.call("-m", "dvc", "repro", "sweep")
    trials = json.loads((home.folder / "reports/sweep.json").read_text())["trials"]
    assert [(trial["status"], trial["cause"]) for trial in trials] == [("finished", None)] * 2
    assert all(trial["bleu"] is not None for trial in trials)
    home.set({"cluster.job_server": home.machines.job_server})


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_trained_from_home_on_two_nodes_through_three_kills(home: Home) -> None:
    machines = home.machines
    killed = home.start("-m", "dvc", "repro", "train")
    read_to_step(killed, LOG_EVERY)
    assert trains_there(machines, "head")
    assert trains_there(machines, "worker")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()

    # The job goes on, and the same command attaches to it.
    shown = home.start("-m", "dvc", "repro", "train")
    seen = read_to_step(shown, 3 * LOG_EVERY)
    assert "attached; its log from the beginning" in seen
    home.mlflow.kill()
    machines.kill_node("worker")
    seen += read_to_step(shown, 12 * LOG_EVERY)
    home.mlflow.start()
    rest, _ = shown.communicate(timeout=600)
    assert shown.returncode == 0, seen + rest + machines.logs()

    # All is home, and DVC has pinned it.
    metrics = json.loads((home.folder / "metrics/train.json").read_text())
    assert metrics["steps"] == STEPS
    assert metrics["workers"] == 1  # at the end
    receipt = json.loads((home.folder / "models/train/receipt.json").read_text())
    assert receipt["checkpoints"]
    assert "up to date" in home.call("-m", "dvc", "status", "train")
    assert (home.folder / "dvc.lock").read_text().count("models/train") == 1

    # Each figure is in PostgreSQL, once.
    client = MlflowClient(home.mlflow.uri)
    (run,) = client.search_runs(
        [e.experiment_id for e in client.search_experiments()],
        "status = 'FINISHED' and tags.kind = 'experiment'",
    )
    assert run.info.run_id == metrics["mlflow_run_id"]
    steps = [m.step for m in client.get_metric_history(run.info.run_id, "train/loss")]
    assert steps == list(range(LOG_EVERY, STEPS + 1, LOG_EVERY))

    # One job for the same, however often it is asked for, and another for something else.
    assert len(home.jobs("train")) == 1
    assert "has finished" in home.call("-m", "seq2sweep.cli", "submit")
    (job,) = home.jobs("train")
    assert home.call("-m", "seq2sweep.cli", "submit", "--dry-run").splitlines()[-1] == f"job {job}"
    home.set({"cluster.job_server": machines.job_server, "model.dropout": 0.2})
    other = home.call("-m", "seq2sweep.cli", "submit", "--dry-run").splitlines()[-1]
    assert re.fullmatch(r"job train-\w{12}", other)
    assert other != f"job {job}"


@pytest.mark.timeout(600)
def test_the_plain_way_and_nobody_without_the_token(home: Home) -> None:
    """Ray's own command, by the words of docs/jobs.md, on what node is left."""
    assert requests.get(f"{home.machines.job_server}/api/jobs/", timeout=60).status_code == 401
    home.set({"train.steps": 20, "train.validate_every": 20})
    before = home.jobs()
    said = home.call(
        *("-m", "ray.scripts.scripts", "job", "submit"),
        *("--address", home.machines.job_server, "--working-dir", "."),
        "--runtime-env-json",
        json.dumps({"env_vars": {"PYTHONPATH": "src"}}),
        *("--", "sh", "-c", "dvc config --local core.no_scm true && dvc repro train"),
    )
    assert re.search(r"trained 20 steps", said)
    assert "succeeded" in said
    wait_until(lambda: len(home.jobs()) == len(before) + 1)
