"""Training on workers that share nothing but a bucket."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.cluster import train_driver
from seq2sweep.config import Config
from seq2sweep.runs import journal
from seq2sweep.storage.object_store import ObjectStore, node_folder
from tests.cluster.chaos import is_gone, trainers
from tests.cluster.driver import train
from tests.conftest import Corpus
from tests.train.test_interruption import work_together

STEPS = 100


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": STEPS,
            "train.log_every": 10,
            "train.validate_every": 20,
            "train.checkpoint_every": 20,
            "train.keep_every": 40,
            "cluster.max_failures": 3,
        },
    )


@pytest.fixture
def address(bucket: str) -> Iterator[str]:
    """Of the run; the folder that this machine has for it goes."""
    yield f"{bucket}/run"
    shutil.rmtree(node_folder(f"{bucket}/run"))


class LosesTheMachine(threading.Thread):
    """Ends all workers, and removes what their machine had, when there is a first checkpoint."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address, self.before = address, b""

    def run(self) -> None:
        there = ObjectStore(self.address)
        while "step-00000020/manifest.json" not in there.sizes():
            time.sleep(0.02)
        killed = trainers()
        for process in killed:
            process.kill()
        # Not psutil.wait_procs(), which waits for Ray to notice: others may train there by then.
        while not all(map(is_gone, killed)):
            time.sleep(0.02)
        shutil.rmtree(node_folder(self.address))
        self.before = there.read("journal.jsonl") or b""


@pytest.mark.thorough
def test_a_lost_machine_costs_no_result(
    cluster: None,
    bucket: str,
    address: str,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undisturbed = project / "undisturbed"
    work_together(2, undisturbed, config, tiny_corpus.encoded)
    remote = configuration.with_changes(config, {"cluster.storage": bucket})
    disaster = LosesTheMachine(address)
    disaster.start()
    heard: list[dict[str, Any]] = []
    outcome = train(remote, tiny_corpus.encoded, project / "here", heard.append)
    disaster.join()
    assert b'"checkpoint", "step": 20' in disaster.before
    assert b"finished" not in disaster.before

    folder = project / "here" / "runs" / "run"
    assert [path.parent for path in outcome.checkpoints] == [folder] * 3
    for here in outcome.checkpoints:
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert (here / name).read_bytes() == (undisturbed / here.name / name).read_bytes()
    entries = list(journal.entries(folder / "journal.jsonl"))
    assert heard == entries
    wanted = list(journal.entries(undisturbed / "journal.jsonl"))
    assert [(e["kind"], e["step"]) for e in entries] == [(e["kind"], e["step"]) for e in wanted]

    # From another machine: all of it comes, nothing is trained.
    monkeypatch.setattr(train_driver, "_trainer", pytest.fail)
    again = train(remote, tiny_corpus.encoded, project / "elsewhere", pytest.fail)
    assert [path.name for path in again.checkpoints] == [p.name for p in outcome.checkpoints]
    assert (again.checkpoints[0] / "manifest.json").read_bytes() == (
        outcome.checkpoints[0] / "manifest.json"
    ).read_bytes()
    assert again.summary == outcome.summary
