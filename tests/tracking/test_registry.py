"""Models of runs become versions of registered models, and an alias names the newest."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, PERMISSION_DENIED

from seq2sweep.tracking import delivery
from seq2sweep.tracking.delivery import Away, Courier
from seq2sweep.tracking.models import log_model
from seq2sweep.tracking.registry import NoModel, register_model
from seq2sweep.tracking.runs import Run, Tracker
from tests.tracking import scenario
from tests.tracking.couriers import runs

ALIAS = "best-of-sweep"


@pytest.fixture
def name() -> str:
    return f"phrasebook-{uuid.uuid4().hex}"


@pytest.fixture
def begin(tracker: Tracker, tmp_path: Path) -> Callable[[], Run]:
    """Makes runs with a model each."""

    def make() -> Run:
        run = tracker.begin(f"test.{uuid.uuid4().hex}", "seed=1", started=1.0)
        weights = tmp_path / "weights"
        weights.write_bytes(run.id.encode())
        log_model(
            run,
            name="transformer",
            files=[weights],
            params={},
            metrics={},
            time=1.0,
            dataset_name="d",
            dataset_digest="e",
        )
        return run

    return make


def register(run: Run, name: str, time: float, **how: Any) -> str:
    return register_model(run, model="transformer", name=name, alias=ALIAS, time=time, **how)


def test_the_alias_leads_to_the_weights(
    tracker: Tracker, begin: Callable[[], Run], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin()
    assert register(run, name, 5.0, tags={"variant": "C", "place": "http://ada:x@h"}) == "1"
    found = tracker.client.get_model_version_by_alias(name, ALIAS)
    assert (found.run_id, found.status) == (run.id, "READY")
    assert found.tags == {"variant": "C", "place": "http://***@h", "seq2sweep.time": "5.0"}
    (model,) = tracker.client.search_logged_models(
        [run.experiment_id], filter_string=f"source_run_id = '{run.id}'"
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracker.uri)
    weights = mlflow.artifacts.download_artifacts(f"models:/{name}@{ALIAS}/weights")
    assert Path(weights).read_text() == run.id
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": name, "version": 1}]


def test_the_alias_moves_to_the_newest_and_not_back(
    tracker: Tracker, begin: Callable[[], Run], name: str
) -> None:
    first, second, late = begin(), begin(), begin()
    assert register(first, name, 5.0) == "1"
    assert register(second, name, 6.0) == "2"
    # Recorded before the second, and brought after it: what was refused is tried again.
    assert register(late, name, 5.5) == "3"
    assert register(first, name, 5.0) == "1"
    assert tracker.client.get_registered_model(name).aliases == {ALIAS: 2}
    # Somebody else's version has no time.
    tracker.client.create_model_version(name, "s3://elsewhere/model")
    tracker.client.set_registered_model_alias(name, ALIAS, "4")
    assert register(second, name, 6.0) == "2"
    assert tracker.client.get_registered_model(name).aliases == {ALIAS: 2}


def test_other_versions_of_the_model_stay_named(begin: Callable[[], Run], name: str) -> None:
    run = begin()
    (model,) = run.client.search_logged_models(
        [run.experiment_id], filter_string=f"source_run_id = '{run.id}'"
    )
    other = '[{"name": "by hand", "version": "7"}]'
    run.client.set_logged_model_tags(model.model_id, {"mlflow.modelVersions": other})
    for _ in range(2):
        register(run, name, 1.0)
    told = run.client.get_logged_model(model.model_id).tags["mlflow.modelVersions"]
    assert json.loads(told) == [*json.loads(other), {"name": name, "version": 1}]


def test_a_version_that_was_made_twice_is_one_in_the_end(
    tracker: Tracker, begin: Callable[[], Run], name: str
) -> None:
    run = begin()
    assert register(run, name, 1.0) == "1"
    first = tracker.client.get_model_version(name, "1")
    tracker.client.create_model_version(name, first.source, run.id)
    assert register(run, name, 1.0) == "1"
    left = tracker.client.search_model_versions(f"name = '{name}'")
    assert [str(version.version) for version in left] == ["1"]


def test_a_run_without_that_model_has_nothing_to_register(run: Run, name: str) -> None:
    for _ in range(2):
        with pytest.raises(NoModel, match=f"no whole model 'transformer' to register as {name}"):
            register(run, name, 1.0)
        # Begun, but not all of its files are there.
        run.client.create_logged_model(run.experiment_id, name="transformer", source_run_id=run.id)


# --- by delivery ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [INVALID_PARAMETER_VALUE, PERMISSION_DENIED])
@pytest.mark.parametrize("call", ["create_registered_model", "create_model_version"])
def test_a_registry_that_refuses_holds_up_nothing_else(
    tracker: Tracker, tmp_path: Path, new: Callable[..., Courier], call: str, code: int
) -> None:
    def fate(called: str) -> None:
        if called == call:
            raise MlflowException("not in this registry", code)

    recorded = scenario.record(tmp_path)
    courier = new(fate=fate)
    for _ in range(delivery.ATTEMPTS):
        try:
            assert courier.deliver()
        except Away:
            assert code == PERMISSION_DENIED  # it might have been an outage
        else:
            break
    assert courier.refused == {recorded.evaluation: "not in this registry"}
    (run,) = runs(tracker, recorded.evaluation)
    assert run.info.status == "FINISHED"
    assert [model.model_id for model in run.outputs.model_outputs]
    assert runs(tracker, recorded.train)[0].data.metrics["bleu"] == 27.5
    # The registry has changed its mind.
    again = new()
    assert again.deliver()
    assert again.refused == {}
    scenario.check(tracker, recorded)


def test_a_model_that_was_not_recorded_is_not_registered(
    tmp_path: Path, new: Callable[..., Courier]
) -> None:
    recorded = scenario.record(tmp_path)
    next((tmp_path / "tracking" / recorded.evaluation / "files").glob("*/weights")).unlink()
    courier = new()
    assert courier.deliver()
    assert "is gone" in courier.refused[recorded.evaluation]
    assert list(courier.refused) == [recorded.evaluation]
