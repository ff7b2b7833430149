"""The driver of a sweep is killed again and again: the sweep is the one that was left in peace."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2sweep import config as configuration
from seq2sweep.cluster import reaper
from seq2sweep.config import Config
from seq2sweep.runs.layout import checkpoint_step, newest_checkpoint
from tests.cluster.chaos import assert_same, wait_until
from tests.cluster.sweeps import SweepStage, scale_of

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


@pytest.mark.thorough
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
    assert statuses["variant"].keys() <= {"FINISHED", "KILLED"}
    assert statuses["variant"]["FINISHED"] >= 12
    wait_until(lambda: not any(temporary.glob("s2s-*")))
    left = [p for folder in sessions for p in reaper.processes(str(folder))]
    assert (len(sessions), left) == (KILLS, [])
