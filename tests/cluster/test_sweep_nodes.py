"""A sweep on a cluster of two nodes, one of which is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from ray.cluster_utils import Cluster

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.runs.layout import checkpoint_step, newest_checkpoint
from seq2sweep.sweep.trial_record import nodes_of
from tests.artifacts import artifact_text
from tests.cluster.sweeps import COUNTING, SweepStage, scale_of

OFTEN = 20


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Four trials."""
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": 160,
            "train.log_every": OFTEN,
            "train.validate_every": OFTEN,
            "evaluate.beam": 1,
            "sweep.space": {"train.learning_rate_scale": [0.3, 0.5, 0.7]},
            "sweep.scheduler": "none",
            "sweep.max_failures": 1,
        },
    )


@pytest.fixture
def counted(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are started after this count updates, and want no token."""
    monkeypatch.setenv("COUNT_UPDATES", str(project / "sweep" / "updates.txt"))
    path = [str(COUNTING), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


@pytest.mark.thorough
def test_trials_run_on_all_nodes_and_go_on_when_one_is_lost(
    config: Config,
    counted: None,
    machines: Cluster,
    make_stage: Callable[[str, Config], SweepStage],
) -> None:
    on_cluster = configuration.with_changes(config, {"cluster.address": machines.address})
    stage = make_stage("sweep", on_cluster)
    # Of a user whose other Ray has one: as every local Ray leaves it in the user's folder.
    stage.environment["RAY_AUTH_TOKEN"] = "0" * 64
    stage.start()
    stage.wait_for(lambda: bool(stage.statuses()) and bool(under_way(stage)))
    name = under_way(stage)[0]
    (lost,) = (node for node in machines.worker_nodes if node_of(stage, name).endswith(short(node)))
    done, before = stage.statuses(), len(stage.updates())
    machines.remove_node(lost, allow_graceful=False)
    stage.finish()

    report = json.loads((stage.project / "reports" / "sweep.json").read_text())
    assert [trial["status"] for trial in report["trials"]] == ["finished"] * 4
    assert len({node for trial in report["trials"] for node in trial["nodes"]}) == 2
    (moved,) = (trial for trial in report["trials"] if len(trial["nodes"]) == 2)
    assert name.startswith(moved["name"].replace(" ", "_"))
    assert moved["nodes"][0].endswith(short(lost))
    client = MlflowClient(f"sqlite:///{stage.project / 'mlflow.db'}")
    told = json.loads(artifact_text(client, moved["mlflow_run_id"], "lineage.json"))
    assert told["nodes"] == " ".join(moved["nodes"])

    since = stage.updates()[before:]
    again = [update.step for update in since if update.scale == scale_of(name, config)]
    assert min(again) > OFTEN, "it went on from a checkpoint"
    assert len(stage.updates()) - len(stage.steps()) < OFTEN + 5, "and not from an old one"
    assert {scale_of(each, config) for each in done}.isdisjoint(update.scale for update in since)


def short(node: object) -> str:
    return str(node.node_id)[:8]  # type: ignore[attr-defined]


def node_of(stage: SweepStage, name: str) -> str:
    return nodes_of(stage.trials()[name])[-1]


def under_way(stage: SweepStage) -> list[str]:
    """Trials with a checkpoint that have some way to go."""
    found = []
    for name, folder in stage.trials().items():
        newest = newest_checkpoint(folder)
        if newest and name not in stage.statuses() and 20 <= checkpoint_step(newest) <= 120:
            found.append(name)
    return found
