"""Several processes die at once, Ray's own among them: training goes on, and nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray

from seq2sweep import config as configuration
from seq2sweep.cluster import workers_start
from seq2sweep.cluster.run import TrainOutcome, run_training
from seq2sweep.config import Config
from tests.cluster.chaos import below_this_process
from tests.conftest import Corpus


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": 60,
            "train.log_every": 5,
            "train.validate_every": 10,
            "train.checkpoint_every": 20,
            "cluster.max_failures": 0,
        },
    )


def train(config: Config, corpus: Corpus, project: Path, on_event: Any) -> TrainOutcome:
    return run_training(
        config, encoded=corpus.encoded, project=project, name="run", on_event=on_event
    )


def test_workers_and_their_coordinator(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The room that they had is free for those that come after them."""
    monkeypatch.setattr(workers_start, "START_SECONDS", 60.0)
    heard: list[tuple[str, int]] = []

    def on_event(entry: dict[str, Any]) -> None:
        heard.append((entry["kind"], entry["step"]))
        if heard[-1] == ("checkpoint", 20):
            victims = below_this_process("RayTrainWorker", "TrainController")
            assert len(victims) >= 2
            for victim in victims:
                victim.kill()

    outcome = train(config, tiny_corpus, project, on_event)
    assert outcome.summary["step"] == 60
    assert len(heard) == len(set(heard)), "no entry is told twice"
    said = capsys.readouterr().out
    assert "its process was killed, by hand or by the system (out of memory?)" in said
    assert "workers start again after step " in said
    states = {group["state"] for group in ray.util.placement_group_table().values()}
    assert states <= {"REMOVED"}
