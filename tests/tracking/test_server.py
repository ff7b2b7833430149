"""A real MLflow server that is away at the start, in the middle and at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seq2sweep.errors import OperationalError
from seq2sweep.tracking import relay_thread
from seq2sweep.tracking.mlflow_store import Experiment
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay_thread import RelayThread, sync
from tests.tracking import scenario
from tests.tracking.scenario import STEPS, Recorded
from tests.tracking.servers import MlflowServer, postgresql

PATIENCE = 120.0


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.thorough), "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/mlflow.db"
    else:
        with postgresql() as uri:
            yield uri


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(database, tmp_path)
    yield server
    server.kill()


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_server_that_comes_and_goes(
    server: MlflowServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_thread, "LONGEST_PAUSE", 0.5)
    name = "train-0123"
    journal = tmp_path / name / "journal.jsonl"
    place = (tmp_path / "tracking", server.uri, "away", tmp_path / "art")
    begun = time.monotonic()
    with RelayThread(*place, every=0.1) as thread:
        # Down at the start.
        run = scenario.start(tmp_path, name)
        scenario.write_journal(journal, 1, 6)
        assert not thread.flush(PATIENCE)
        assert time.monotonic() - begun < PATIENCE
        assert thread.run_id(run) is None

        server.start()
        wait_for(lambda: thread.flush(PATIENCE))
        run_id = thread.run_id(run)
        assert run_id is not None
        experiment = Experiment(*place[1:])
        assert experiment.client.get_run(run_id).info.status == "RUNNING"
        assert len(experiment.client.get_metric_history(run_id, "train/loss")) == 6

        # Killed in the middle, while points arrive.
        for step in range(7, STEPS + 1):
            scenario.write_journal(journal, step, step)
            if step == 12:
                server.kill()
            time.sleep(0.02)
        assert not thread.flush(PATIENCE)
        server.start()
        wait_for(lambda: thread.flush(PATIENCE))
        assert len(experiment.client.get_metric_history(run_id, "train/loss")) == STEPS

        # Down at the end.
        server.kill()
        with run:
            scenario.end(tmp_path, run)
        evaluation = scenario.evaluate(tmp_path, name)
    lines = capsys.readouterr().err.splitlines()
    away = [line for line in lines if "cannot be used" in line]
    assert 2 <= len(away) <= 3, away  # one an outage
    assert "Connection refused" in away[0]
    assert lines[-1].endswith('are not in MLflow yet: "seq2sweep sync" records them')

    server.start()
    assert sync(*place).startswith("recorded ")
    scenario.check(experiment, Recorded(name, evaluation.name, run.key))
    assert experiment.find(run.key)[0].info.run_id == run_id
    assert sync(*place) == "nothing is left to record"


def test_a_postgresql_database_without_a_server(tmp_path: Path) -> None:
    recorded = scenario.record(tmp_path)
    with postgresql() as uri:
        place = (tmp_path / "tracking", uri, "direct", tmp_path / "artifacts")
        assert sync(*place).startswith("recorded ")
        scenario.check(Experiment(*place[1:]), recorded)
    with Recorder(tmp_path / "tracking", "t", kind="test"):
        pass
    with pytest.raises(
        OperationalError, match=r"the MLflow store postgresql.*refused.*2 record\(s\)"
    ):
        sync(*place)
