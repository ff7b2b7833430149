"""Storage that goes away, nodes that come and go, and nodes that are about to be taken away."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

# Sets what Ray reads when it is imported.
from seq2sweep.cluster.local_cluster import OBJECT_STORE_BYTES  # isort: skip
import ray
from ray.cluster_utils import Cluster
from ray.core.generated.autoscaler_pb2 import DrainNodeReason

from seq2sweep import config as configuration
from seq2sweep.cluster import train_driver
from seq2sweep.config import Config
from seq2sweep.runs.layout import checkpoint_name
from seq2sweep.train import loop
from seq2sweep.train.events import CheckpointDue
from tests.cluster.chaos import LONGEST_WAIT, wait_until
from tests.cluster.driver import events, start, train, train_where_the_folder_goes
from tests.conftest import Corpus
from tests.train.test_interruption import go_on


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": 60,
            "train.log_every": 5,
            "train.validate_every": 10,
            "train.checkpoint_every": 20,
            "model.dropout": 0.0,
        },
    )


def test_storage_that_is_away_for_a_while_ends_nothing(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its folder is moved away while training goes on, and back when it has been missed."""
    # Of one worker, as the first alone asks anything of the storage.
    changes = {"cluster.workers": 1, "cluster.cpus_per_worker": 1, "cluster.max_failures": 0}
    config = configuration.with_changes(config, changes)
    undisturbed = project / "undisturbed"
    go_on(config, tiny_corpus.encoded, undisturbed)
    folder, away = project / "runs" / "run", project / "away"

    returned = threading.Event()

    def move() -> None:
        wait_until(folder.with_name("saved").exists)
        folder.rename(away)
        wait_until(folder.with_name("refused").exists)
        away.rename(folder)
        returned.set()

    monkeypatch.setattr(train_driver, "train_worker", train_where_the_folder_goes)
    mover = threading.Thread(target=move, daemon=True)  # training may fail
    mover.start()
    outcome = train(config, tiny_corpus.encoded, project)
    mover.join()
    assert returned.is_set(), "no checkpoint was to be saved while the folder was away"
    assert [path.name for path in outcome.checkpoints] == ["step-00000040", "step-00000060"]
    for here in outcome.checkpoints:
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert (here / name).read_bytes() == (undisturbed / here.name / name).read_bytes()


@pytest.fixture
def nodes(cluster: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A Ray of several nodes, the first of which has no room for workers; a lost one is missed at
    once. The other cluster has Ray make a token for this user, which drivers would take anyway."""
    for name, value in {
        "RAY_health_check_initial_delay_ms": "500",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "4",
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.5",
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "20",
    }.items():
        monkeypatch.setenv(name, value)
    # It would have every `ray.init` of this computer join the cluster.
    monkeypatch.setattr("ray._private.utils.write_ray_address", lambda address: None)
    several = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": OBJECT_STORE_BYTES},
    )
    yield several
    for node in several.list_all_nodes():
        several.remove_node(node, allow_graceful=False)


@contextlib.contextmanager
def busy(nodes: Cluster, node: Any, cpus: int) -> Iterator[None]:
    """A process of somebody else has so many CPUs of a node for the time of a block."""
    program = (
        "import ray, sys, time\n"
        "from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy\n"
        "address, node, cpus = sys.argv[1:]\n"
        "ray.init(address, log_to_driver=False)\n"
        "@ray.remote\n"
        "class Other:\n    def begin(self): pass\n"
        "there = NodeAffinitySchedulingStrategy(node, soft=False)\n"
        "other = Other.options(num_cpus=int(cpus), scheduling_strategy=there).remote()\n"
        "ray.get(other.begin.remote())\n"
        "print('held', flush=True)\n"
        "time.sleep(600)\n"
    )
    given = [nodes.address, node.node_id, str(cpus)]
    holder = subprocess.Popen(
        [sys.executable, "-c", program, *given], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    yield
    holder.kill()
    holder.wait()


@pytest.mark.thorough
def test_workers_start_beside_another_job_and_more_join_when_it_ends(
    nodes: Cluster, config: Config, tiny_corpus: Corpus, project: Path
) -> None:
    """No step is trained twice for that: those that train save before they leave."""
    add_node(nodes)
    second = add_node(nodes)
    changes = {
        "train.steps": 1000,
        "train.log_every": 1,
        "train.checkpoint_every": 500,
        "train.validate_every": 500,
        "cluster.address": nodes.address,
        "cluster.min_workers": 1,
        "cluster.cpus_per_worker": 1,
    }
    config = configuration.with_changes(config, changes)
    with busy(nodes, second, cpus=1):
        driver = start(config, tiny_corpus.encoded, project)
        told = events(driver)
        heard = [next(told)]
        while heard[-1][1] < 20:
            heard.append(next(told))
    saved: set[str] = set()
    for event in told:
        heard.append(event)
        saved |= {path.name for path in (project / "runs/run").glob("interrupted-*")}
    assert driver.stderr is not None
    assert driver.wait(LONGEST_WAIT) == 0, driver.stderr.read()
    (name,) = saved
    assert int(name.split("-")[-1]) not in (500, 1000)
    assert [step for kind, step in heard if kind == "logged"] == list(range(1, 1001))


def add_node(nodes: Cluster) -> Any:
    return nodes.add_node(num_cpus=1, object_store_memory=OBJECT_STORE_BYTES)


@pytest.mark.thorough
def test_nodes_that_leave_and_come(
    nodes: Cluster, config: Config, tiny_corpus: Corpus, project: Path
) -> None:
    """Two workers; one's node is to be taken away, the other goes on alone, a third node comes, and
    the first one dies.

    The run ends where that of one worker ends, within the rounding of float32.
    """
    first, second = add_node(nodes), add_node(nodes)
    config = configuration.with_changes(
        config,
        {
            "train.steps": 140,
            "train.tokens_per_update": 2400,
            # At the paper's rate this small model doubles what rounding does every few steps.
            "train.learning_rate_scale": 0.01,
            "cluster.address": nodes.address,
            "cluster.min_workers": 1,
            "cluster.cpus_per_worker": 1,
        },
    )
    folder = project / "runs" / "run"
    saved: list[str] = []

    def watch() -> None:
        while not saved and driver.poll() is None:
            saved.extend(path.name for path in folder.glob("interrupted-*"))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    heard: list[tuple[str, int]] = []
    # Else Ray ends the second node as soon as our worker has left it.
    with busy(nodes, second, cpus=0):
        driver = start(config, tiny_corpus.encoded, project)
        for event in events(driver):
            heard.append(event)
            if heard[-1] == ("checkpoint", 40):
                watcher.start()
                drain(nodes, second)
            elif heard[-1] == ("checkpoint", 60):
                assert saved, "nothing was saved before the node was to be taken away"
                add_node(nodes)
            elif heard[-1] == ("checkpoint", 100):
                nodes.remove_node(first, allow_graceful=False)
                assert ("finished", 140) not in heard
    assert driver.stderr is not None
    assert driver.wait(LONGEST_WAIT) == 0, driver.stderr.read()
    watcher.join()
    assert [step for kind, step in heard if kind == "logged"] == list(range(5, 141, 5))

    alone = project / "alone"
    alone.mkdir()
    for due in loop.train(config, tiny_corpus.encoded, device=torch.device("cpu")):
        if isinstance(due, CheckpointDue):
            due.capture().write(alone / checkpoint_name(due.step))
    found, expected = (
        load_file(run / checkpoint_name(140) / "model.safetensors") for run in (folder, alone)
    )
    worst = max(float((found[key] - expected[key]).abs().max()) for key in expected)
    print(f"largest difference of a weight: {worst:.1e}")
    assert worst < 1e-3


def drain(nodes: Cluster, node: Any) -> None:
    """Announce that a node is taken away in ten minutes, as a cloud does with its spot machines."""
    deadline = round((time.time() + 600) * 1000)
    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    done, why_not = ray._raylet.GcsClient(address=nodes.address).drain_node(
        node.node_id, reason, "spot", deadline
    )
    assert done, why_not
