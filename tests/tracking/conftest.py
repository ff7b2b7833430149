"""One MLflow store for all tracking tests: making its tables takes seconds."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2sweep import config as configuration
from seq2sweep.tracking.delivery import Courier
from seq2sweep.tracking.runs import Run, Tracker
from tests.tracking.couriers import Unreliable


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a store with spaces")


@pytest.fixture(scope="session")
def uri(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


@pytest.fixture(scope="session")
def tracker(uri: str, folder: Path) -> Tracker:
    return Tracker(uri, "tests", folder / "artifacts")


@pytest.fixture
def run(tracker: Tracker, request: pytest.FixtureRequest) -> Run:
    return tracker.begin(f"test.{uuid.uuid4().hex}", request.node.name, started=1_700_000_000.0)


@pytest.fixture
def stored(tracker: Tracker) -> Callable[[str], Any]:
    """What the store holds of a run, by its id."""

    def get(run_id: str) -> Any:
        return tracker.client.get_run(run_id)

    return get


@pytest.fixture
def new(uri: str, folder: Path, tmp_path: Path, tracker: Tracker) -> Callable[..., Courier]:
    """Makes couriers of this test's outboxes, as a new process would."""

    def make(experiment: str = "tests", fate: Callable[[str], None] | None = None) -> Courier:
        courier = Courier(tmp_path / "tracking", uri, experiment, folder / "artifacts")
        if experiment == "tests":
            courier._tracker = copy.copy(tracker)  # opening it anew takes its time
            if fate is not None:
                courier._tracker.client = Unreliable(tracker.client, fate)
        return courier

    return make


@pytest.fixture(scope="session")
def example() -> configuration.Config:
    """The embedded preset."""
    text = resources.files("seq2sweep.presets").joinpath("phrasebook.yaml").read_text()
    return configuration.from_dict(yaml.safe_load(text)["params"])
