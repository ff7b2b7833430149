"""The driver of a sweep is killed again and again: the sweep is the one that was left in peace."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from seq2sweep import config as configuration
from seq2sweep.cluster import guard
from seq2sweep.cluster.record import RESULT_NAME
from seq2sweep.cluster.storage import checkpoint_step, newest_checkpoint
from seq2sweep.config import Config
from tests.cluster.chaos import StageProcess, assert_same, wait_until
from tests.conftest import Corpus

COUNTING = Path(__file__).parent / "counting"
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


Update = tuple[float, int]
"""Learning rate scale of the trial, and step."""


class SweepStage(StageProcess):
    """The sweep stage, with a count of all updates that its trials have ever begun."""

    def __init__(self, project: Path, config: Config, corpus: Corpus, temporary: Path) -> None:
        super().__init__("sweep", project, config, temporary)
        for folder in (corpus.clean, corpus.vocabulary, corpus.encoded):
            shutil.copytree(folder, project / "data" / folder.name)
        self.counts = project / "updates.txt"
        self.environment["COUNT_UPDATES"] = str(self.counts)
        self.environment["PYTHONPATH"] += f"{os.pathsep}{COUNTING}"

    def updates(self) -> list[Update]:
        lines = self.counts.read_text().splitlines() if self.counts.exists() else []
        return [(float(scale), int(step)) for scale, step in map(str.split, lines)]

    def trials(self) -> dict[str, Path]:
        return {path.name: path for path in self.project.glob("runs/sweep-*/trials/*")}

    def statuses(self) -> dict[str, str]:
        """How each trial ended that has ended."""
        ended = {
            name: json.loads((folder / RESULT_NAME).read_text())["status"]
            for name, folder in self.trials().items()
            if (folder / RESULT_NAME).exists()
        }
        return dict(sorted(ended.items()))

    def run_statuses(self) -> dict[str, Counter[str]]:
        """Of the runs in MLflow, by kind."""
        client = MlflowClient(f"sqlite:///{self.project / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("seq2sweep")
        found: dict[str, Counter[str]] = {"sweep": Counter(), "trial": Counter()}
        for run in client.search_runs([experiment.experiment_id], max_results=1000):
            found[run.data.tags["kind"]][run.info.status] += 1
        return found


@pytest.fixture
def make_stage(
    tiny_corpus: Corpus, project: Path, temporary: Path
) -> Iterator[Callable[[str, Config], SweepStage]]:
    stages: list[SweepStage] = []

    def make(name: str, config: Config) -> SweepStage:
        stages.append(SweepStage(project / name, config, tiny_corpus, temporary))
        return stages[-1]

    yield make
    for stage in stages:
        stage.kill()


def test_killed_three_times(
    config: Config, temporary: Path, make_stage: Callable[[str, Config], SweepStage]
) -> None:
    quiet = make_stage("quiet", config)
    quiet.start()
    quiet.finish()
    least = len(quiet.updates())
    assert len(set(quiet.updates())) == least, "nothing is done twice where nothing happens"
    assert set(quiet.statuses().values()) == {"finished", "stopped early"}
    assert len(quiet.statuses()) == 12

    stage, sessions, done = make_stage("shot", config), set[Path](), list[int]()
    finished: dict[str, int] = {}
    draw = random.Random(6)
    for kill in range(KILLS):
        stage.start()
        moment = draw.uniform((kill + 0.3) / KILLS, (kill + 0.8) / KILLS) * least

        def has_come(moment: float = moment) -> bool:
            assert not stage.ended(), stage.said()[-2000:]
            return len(set(stage.updates())) >= moment

        wait_until(has_come, 0.02)
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
    assert set(stage.updates()) == set(quiet.updates())
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
        assert scale not in {trial for trial, _ in stage.updates()[at:]}, f"{name} trained again"

    statuses = stage.run_statuses()
    assert statuses["sweep"] == {"FINISHED": 1, "KILLED": KILLS}
    assert statuses["trial"].keys() <= {"FINISHED", "KILLED"}
    assert statuses["trial"]["FINISHED"] >= 12
    wait_until(lambda: not any(temporary.glob("s2s-*")))
    left = [p for folder in sessions for p in guard.processes(str(folder))]
    assert (len(sessions), left) == (KILLS, [])


def scale_of(slug: str, config: Config) -> float:
    """The learning rate scale of a trial, by its folder's name."""
    name = slug.rpartition("-")[0]
    value = name.removeprefix("learning_rate_scale=")
    return config.train.learning_rate_scale if name == "base" else float(value)
