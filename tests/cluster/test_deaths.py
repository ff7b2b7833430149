"""Several processes die at once, Ray's own among them: training goes on, and nothing is left."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.util.placement_group import PlacementGroup, placement_group

from seq2sweep import config as configuration
from seq2sweep.cluster import ray_internals, worker_group
from seq2sweep.config import Config
from seq2sweep.errors import EXIT_FAILURE
from tests.cluster.chaos import LONGEST_WAIT, StageProcess, below_this_process, end, wait_until
from tests.cluster.driver import train
from tests.cluster.sweeps import SweepStage
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
            "evaluate.beam": 1,
            "sweep.space": {"train.learning_rate_scale": [0.3]},
            "sweep.grace_steps": 60,
            "sweep.max_failures": 1,
            "cluster.max_failures": 1,
        },
    )


@pytest.mark.thorough
def test_workers_and_their_coordinator(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The room that they had is free for those that come after them."""
    monkeypatch.setattr(worker_group, "START_SECONDS", LONGEST_WAIT)
    heard: list[tuple[str, int]] = []

    def on_event(entry: dict[str, Any]) -> None:
        heard.append((entry["kind"], entry["step"]))
        if heard[-1] == ("checkpoint", 20):
            victims = below_this_process("RayTrainWorker", "TrainController")
            assert len(victims) >= 2
            for victim in victims:
                victim.kill()

    outcome = train(config, tiny_corpus.encoded, project, on_event)
    assert outcome.summary["step"] == 60
    assert len(heard) == len(set(heard)), "no entry is told twice"
    said = capsys.readouterr().out
    assert "its process was killed, by hand or by the system (out of memory?)" in said
    assert "workers restart after step " in said
    states = {group["state"] for group in ray.util.placement_group_table().values()}
    assert states <= {"REMOVED"}


def test_only_the_room_of_who_has_died_is_freed(cluster: None) -> None:
    """Not that of a driver, which no actor made: Tune's, in which a trial starts its workers."""

    @ray.remote(num_cpus=0)
    class Controller:
        def ask(self) -> PlacementGroup:
            return placement_group([{"CPU": 1}], lifetime="detached")

    def remaining() -> set[str]:
        table = ray.util.placement_group_table()
        return {name for name, group in table.items() if group["state"] != "REMOVED"}

    wait_until(lambda: not remaining())  # those of earlier tests
    own, controller = placement_group([{"CPU": 1}]), Controller.remote()
    other = ray.get(controller.ask.remote())
    assert ray_internals.remove_orphans() == 0
    assert remaining() == {own.id.hex(), other.id.hex()}
    ray.kill(controller)
    wait_until(ray_internals.remove_orphans)
    assert remaining() == {own.id.hex()}
    ray.util.remove_placement_group(own)


# --- stages --------------------------------------------------------------------------------------


class TrainStage(StageProcess):
    def __init__(self, project: Path, config: Config, corpus: Corpus, temporary: Path) -> None:
        super().__init__("train", project, config, temporary)
        shutil.copytree(corpus.encoded, project / "data" / "encoded")


@pytest.fixture
def stage(
    request: pytest.FixtureRequest,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    temporary: Path,
) -> Iterator[StageProcess]:
    """Of the kind that the test names."""
    kinds = {"train": TrainStage, "sweep": SweepStage}
    made = kinds[request.param](project / "stage", config, tiny_corpus, temporary)
    yield made
    end(made)


def last_line(stage: StageProcess) -> str:
    """Of a stage that fails, which says so in a line."""
    assert stage.process is not None
    assert stage.process.wait(timeout=LONGEST_WAIT) == EXIT_FAILURE, stage.said()[-2000:]
    said = stage.said()
    assert "Traceback" not in said
    assert "(raylet)" not in said
    return said.splitlines()[-1]


def resumes(stage: StageProcess) -> None:
    stage.start()
    stage.finish()


@pytest.mark.parametrize(
    "stage", [pytest.param("train", marks=pytest.mark.thorough), "sweep"], indirect=True
)
def test_rays_memory_killer(stage: StageProcess, thorough: bool) -> None:
    """It finds the machine out of memory whenever it looks, so it kills all that Ray starts."""
    usual = dict(stage.environment)
    stage.environment |= {
        "RAY_memory_usage_threshold": "0.001",
        "RAY_memory_monitor_refresh_ms": "250",
    }
    stage.start()
    last = last_line(stage)
    assert re.match(rf"seq2sweep {stage.name}: .*out of memory \(Ray killed its process", last)
    assert "lower train.tokens_per_pass" in last
    assert last.endswith("run `dvc repro` again to resume")
    retried = re.findall(r"out of memory .*\(retry 1 of 1: \w+\.max_failures\)", stage.said())
    assert len(retried) == {"train": 1, "sweep": 2}[stage.name], "each once, and both trials"
    # A driver that raises leaves neither a process nor a file of its Ray.
    folder, running = str(stage.temporary), psutil.process_iter(["cmdline"])
    assert [each for each in running if folder in str(each.info["cmdline"])] == []
    assert not [*stage.temporary.glob("s2s-*")]
    if thorough:
        stage.environment = usual
        resumes(stage)


@pytest.mark.parametrize("stage", ["train"], indirect=True)
@pytest.mark.parametrize(
    "victim", [pytest.param("raylet/raylet", marks=pytest.mark.thorough), "gcs/gcs_server"]
)
def test_ray_itself_dies(stage: StageProcess, victim: str, thorough: bool) -> None:
    params = stage.project / "params.yaml"
    changes = {"train.steps": 100_000, "cluster.workers": 1}
    endless = configuration.with_changes(configuration.load(params), changes)
    params.write_text(configuration.dump(endless), encoding="utf-8")
    stage.start()
    stage.wait_for(lambda: "step     20/" in stage.said())
    assert stage.process is not None
    below = psutil.Process(stage.process.pid).children(recursive=True)
    (process,) = [one for one in below if victim in " ".join(one.cmdline()[:1])]
    process.kill()
    name = victim.rpartition("/")[2]
    assert last_line(stage) == (
        f"seq2sweep train: Ray's {name} on this machine ended (killed, by hand or by the system "
        "for lack of memory); run `dvc repro` again to resume"
    )
    if thorough:
        stage.start()
        stage.wait_for(lambda: len(re.findall(r"step +\d+/", stage.said())) > 8)
        found = [int(step) for step in re.findall(r"step +(\d+)/\d+  loss", stage.said())]
        assert found.count(5) == 1, "the first steps are not done again"
