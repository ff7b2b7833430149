"""The driver of a sweep is killed again and again: the sweep is the one that was left in peace."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from ray.cluster_utils import Cluster

from seq2sweep import config as configuration
from seq2sweep.cluster import guard
from seq2sweep.cluster.storage import checkpoint_step, newest_checkpoint
from seq2sweep.config import Config
from tests.cluster.chaos import assert_same, lose, wait_until
from tests.cluster.sweeps import SweepStage, alone, last_steps, scale_of
from tests.conftest import Corpus
from tests.unit.test_interruption import told

KILLS = 3
SCALES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.5, 2.0, 3.0]


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Twelve trials, two at once where there are two CPUs, compared after 30 and 90 steps."""
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": 150,
            "train.log_every": 10,
            "train.validate_every": 10,
            "model.dropout": 0.1,
            "evaluate.beam": 1,
            "sweep.space": {"train.learning_rate_scale": SCALES},
            "sweep.grace_steps": 30,
            "sweep.reduction_factor": 3,
        },
    )


def test_killed_three_times(
    config: Config, temporary: Path, make_stage: Callable[[str, Config], SweepStage]
) -> None:
    quiet = make_stage("quiet", config)
    quiet.start()
    quiet.finish()
    least = len(quiet.updates())
    assert len(quiet.steps()) == least, "nothing is done twice where nothing happens"
    assert set(quiet.statuses().values()) == {"finished", "stopped early"}
    assert len(quiet.statuses()) == 12

    stage, sessions, done = make_stage("shot", config), set[Path](), list[int]()
    finished: dict[str, int] = {}
    draw = random.Random(6)
    for kill in range(KILLS):
        stage.start()
        moment = draw.uniform((kill + 0.3) / KILLS, (kill + 0.8) / KILLS) * least
        stage.wait_for(lambda moment=moment: len(stage.steps()) >= moment)
        sessions |= set(temporary.glob("s2s-*"))
        stage.kill()
        done.append(len(stage.updates()))
        finished |= {name: done[-1] for name in stage.statuses() if name not in finished}
    stage.start()
    stage.finish()
    report = json.loads((stage.project / "reports" / "sweep.json").read_text())

    extra = len(stage.updates()) - least
    print(
        f"{KILLS} kills after {', '.join(map(str, done))} updates of {least}, with "
        f"{len(finished)} trials done by the last; {extra} updates done again, "
        f"{100 * extra / least:.1f} %"
    )
    assert 0 < extra < 0.1 * least
    assert stage.steps() == quiet.steps()
    assert stage.statuses() == quiet.statuses()
    assert [trial["status"] for trial in report["trials"]].count("failed") == 0
    for name, folder in stage.trials().items():
        undisturbed = quiet.trials()[name]
        newest = newest_checkpoint(undisturbed)
        assert newest is not None
        assert_same(folder, undisturbed, checkpoint_step(newest))
    assert 1 <= len(finished) < 12
    for name, at in finished.items():
        scale = scale_of(name, config)
        assert scale not in {update.scale for update in stage.updates()[at:]}, (
            f"{name} trained again"
        )

    statuses = stage.run_statuses()
    assert statuses["sweep"] == {"FINISHED": 1, "KILLED": KILLS}
    assert statuses["trial"].keys() <= {"FINISHED", "KILLED"}
    assert statuses["trial"]["FINISHED"] >= 12
    wait_until(lambda: not any(temporary.glob("s2s-*")))
    left = [p for folder in sessions for p in guard.processes(str(folder))]
    assert (len(sessions), left) == (KILLS, [])


def test_nodes_that_are_lost_and_come(
    config: Config,
    machines: Cluster,
    tiny_corpus: Corpus,
    tmp_path: Path,
    make_stage: Callable[[str, Config], SweepStage],
) -> None:
    """Two trials share the GPU of a node, in which Ray alone believes."""
    config = configuration.with_changes(
        config,
        {
            "cluster.address": machines.address,
            "train.steps": 60,
            "sweep.space": {"train.learning_rate_scale": SCALES[::2]},
            "sweep.grace_steps": 20,
            "sweep.cpus_per_trial": 0.5,
            "sweep.gpus_per_trial": 0.5,
        },
    )
    expected = alone(config, tiny_corpus, tmp_path / "alone")
    ends = last_steps(config, expected)
    assert set(ends.values()) == {20, 60}
    stage = make_stage("sweep", config)
    stage.start()

    def nodes() -> int:
        return len({update.node for update in stage.updates()})

    stage.wait_for(lambda: nodes() == 2)
    lose(machines, psutil.Process(stage.updates()[-1].process), alone=False)
    machines.add_node(num_cpus=1, num_gpus=1)
    stage.wait_for(lambda: nodes() == 3)
    stage.finish()
    report = json.loads((stage.project / "reports" / "sweep.json").read_text())
    assert {trial["status"] for trial in report["trials"]} == {"finished", "stopped early"}
    for name, folder in stage.trials().items():
        until = [entry for entry in told(expected[name]) if entry["step"] <= ends[name]]
        assert told(folder) == until
    updates = stage.updates()
    assert {update.gpus for update in updates} == {"0"}
    assert any(
        (one.process, one.node) == (three.process, three.node)
        and one.process != two.process
        and one.node == two.node
        for one, two, three in zip(updates, updates[1:], updates[2:], strict=False)
    ), "no two trials have shared a GPU"
