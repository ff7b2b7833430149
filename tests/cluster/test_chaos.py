"""Processes killed at all moments, from seeded schedules: the result is that of a quiet run."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from seq2sweep.cluster import reaper

import ray  # isort: skip
from mlflow import MlflowClient
from ray.cluster_utils import Cluster

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.bitext import read_training_header
from seq2sweep.runs import journal
from seq2sweep.runs.run_store import RunStatus
from seq2sweep.runs.warm_start import run_name
from seq2sweep.stages.stage import origin
from tests.cluster.chaos import (
    LONGEST_WAIT,
    Moment,
    StageProcess,
    Target,
    assert_same,
    below_this_process,
    end,
    is_gone,
    lose,
    schedule,
    wait_until,
)
from tests.cluster.driver import train
from tests.conftest import Corpus
from tests.train.test_interruption import work_together

STEPS, FEW_STEPS = 400, 50
"""Of the training, with --thorough and without."""
KILLS: Counter[str] = Counter()
"""SIGKILLs by whom they hit and when, of all tests here."""


@pytest.fixture(scope="module")
def config(tiny_config: Config, thorough: bool) -> Config:
    """Dropout, several epochs, and checkpoints that take a moment to write."""
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": STEPS if thorough else FEW_STEPS,
            "train.log_every": 5,
            "train.validate_every": 25,
            "train.checkpoint_every": 10,
            "model.d_ff": 512,
            "model.dropout": 0.1,
            "cluster.max_failures": 100,
        },
    )


@pytest.fixture(scope="module")
def undisturbed(
    config: Config, tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a run that nothing happened to, by two processes without Ray."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    work_together(2, folder, config, tiny_corpus.encoded)
    for older in sorted(folder.glob("step-*"))[: -config.train.keep_checkpoints]:
        shutil.rmtree(older)
    return folder


def has_ended(training: Future[RunStatus]) -> bool:
    """Raises what it raised."""
    return training.done() and bool(training.result())


# --- workers -------------------------------------------------------------------------------------


def test_workers(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    project: Path,
    undisturbed: Path,
    thorough: bool,
) -> None:
    moments = (
        schedule(1, 5.0, any=6, training=4, writing=4) if thorough else schedule(1, 5.0, writing=1)
    )
    folder = project / "runs" / "run"
    torn = 0
    with ThreadPoolExecutor() as pool:
        training = pool.submit(train, config, tiny_corpus.encoded, project)
        target = Target(folder, lambda: has_ended(training))
        for moment in moments:
            target.wait_for(moment).kill()
            KILLS[f"worker, {moment.kind}"] += 1
            torn += any(folder.glob(".step-*.partial"))
        outcome = training.result(timeout=LONGEST_WAIT)
    assert outcome.summary["step"] == config.train.steps
    assert torn >= (3 if thorough else 1), "kills came too late to leave half a checkpoint"
    assert_same(folder, undisturbed, config.train.steps)
    assert live(ray.util.placement_group_table()) == []


def live(placement_groups: dict[str, dict[str, str]]) -> list[str]:
    states = [group["state"] for group in placement_groups.values()]
    return [state for state in states if state != "REMOVED"]


@pytest.mark.thorough
def test_a_worker_that_stands_still_is_started_again(
    cluster: None, config: Config, tiny_corpus: Corpus, project: Path, undisturbed: Path
) -> None:
    """SIGSTOP: its own watchdog stands still as well, but the other worker's does not."""
    folder = project / "runs" / "run"
    impatient = configuration.with_changes(config, {"cluster.hang_seconds": 10})
    with ThreadPoolExecutor() as pool:
        training = pool.submit(train, impatient, tiny_corpus.encoded, project)
        stopped = Target(folder, lambda: has_ended(training)).wait_for(Moment("writing", 0, 0))
        stopped.suspend()
        try:
            wait_until(lambda: is_gone(stopped))
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                stopped.kill()
        training.result(timeout=LONGEST_WAIT)
    assert_same(folder, undisturbed, config.train.steps)


# --- drivers -------------------------------------------------------------------------------------


class Stage(StageProcess):
    """The train stage in a project folder of its own."""

    def __init__(self, project: Path, config: Config, corpus: Corpus, temporary: Path) -> None:
        super().__init__("train", project, config, temporary)
        shutil.copytree(corpus.encoded, project / "data" / "encoded")
        what = origin(read_training_header(corpus.encoded), config).identity
        self.folder = project / "runs" / run_name(what)

    def assert_recorded(self) -> None:
        """In MLflow no run goes on, and the last one has each point of each curve once."""
        client = MlflowClient(f"sqlite:///{self.project / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("seq2sweep")
        newest, *others = client.search_runs([experiment.experiment_id])
        assert newest.info.status == "FINISHED"
        assert {run.info.status for run in others} <= {"KILLED"}
        entries = list(journal.entries(self.folder / "journal.jsonl"))
        for kind, curve in (("logged", "loss"), ("validated", "valid_perplexity")):
            points = client.get_metric_history(newest.info.run_id, f"train/{curve}")
            expected = [(e["step"], e[curve]) for e in entries if e["kind"] == kind]
            assert sorted((point.step, point.value) for point in points) == expected


@pytest.fixture
def start_stage(
    tiny_corpus: Corpus, project: Path, temporary: Path
) -> Iterator[Callable[[Config], Stage]]:
    stages = []

    def make(config: Config) -> Stage:
        stages.append(Stage(project, config, tiny_corpus, temporary))
        return stages[-1]

    yield make
    end(*stages)


@pytest.mark.thorough
def test_drivers(
    config: Config,
    undisturbed: Path,
    temporary: Path,
    start_stage: Callable[[Config], Stage],
) -> None:
    """The stage is started again at once, while what the one before left is being ended."""
    stage = start_stage(config)
    target = Target(stage.folder, stage.ended)
    sessions: set[Path] = set()
    for moment in schedule(2, 7.0, any=4, training=2, writing=3):
        driver = stage.start()
        if moment.kind == "any":
            target.sleep(moment.amount)
            victims = [driver]
        else:
            worker = target.wait_for(moment)
            victims = [driver, worker] if moment.kind == "writing" else [driver]
        sessions |= set(temporary.glob("s2s-*"))
        for process in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        stage.kill()
        KILLS[f"driver, {moment.kind}"] += 1
    stage.start()
    stage.finish()
    assert_same(stage.folder, undisturbed, config.train.steps)
    stage.assert_recorded()
    wait_until(lambda: not any(temporary.glob("s2s-*")))
    assert len(sessions) >= 5
    assert [p for folder in sessions for p in reaper.processes(str(folder))] == []


# --- machines ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_machines(
    config: Config,
    undisturbed: Path,
    machines: Cluster,
    start_stage: Callable[[Config], Stage],
) -> None:
    """A shared cluster loses machines and gets others; two drivers on it are killed as well."""
    stage = start_stage(
        configuration.with_changes(
            config, {"cluster.address": machines.address, "cluster.cpus_per_worker": 1}
        )
    )
    target = Target(stage.folder, stage.ended)
    stage.start()
    for number, moment in enumerate(schedule(3, 5.0, any=2, training=3, writing=3)):
        worker = target.wait_for(moment)
        if number % 3 == 2:
            stage.kill()
            KILLS[f"driver on a cluster, {moment.kind}"] += 1
            stage.start()
        else:
            lose(machines, worker, alone=moment.kind == "any")
            KILLS[f"machine, {moment.kind}"] += 1
            machines.add_node(num_cpus=1)
    stage.finish()
    assert_same(stage.folder, undisturbed, config.train.steps)
    stage.assert_recorded()
    # What killed drivers have left on the cluster goes a moment later.
    wait_until(lambda: below_this_process("RayTrainWorker", "TrainController") == [])
    assert live(machines.global_state.placement_group_table()) == []


def test_there_were_enough_kills(thorough: bool) -> None:
    kinds = "; ".join(f"{count} {what}" for what, count in sorted(KILLS.items()))
    print(f"{sum(KILLS.values())} kills: {kinds}")
    if not thorough or len({what.partition(",")[0] for what in KILLS}) < 4:
        pytest.skip("only `make thorough` has all of them, one after another")
    assert sum(KILLS.values()) >= 30, kinds
