"""One MLflow store for all tracking tests: making its tables takes seconds."""

from __future__ import annotations

import copy
import shutil
import uuid
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2sweep import config as configuration
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import Experiment, open_store
from seq2sweep.tracking.relay import Relay
from tests.tracking.unreliable import Unreliable


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a store with spaces")


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store that has nothing in it but its tables, to be copied."""
    path = tmp_path_factory.mktemp("tables") / "mlflow.db"
    open_store(f"sqlite:///{path}", path.with_name("artifacts").as_uri())
    return path


@pytest.fixture(scope="session")
def uri(folder: Path, tables: Path) -> str:
    shutil.copy(tables, folder / "mlflow.db")
    return f"sqlite:///{folder / 'mlflow.db'}"


@pytest.fixture(scope="session")
def experiment(uri: str, folder: Path) -> Experiment:
    return Experiment(uri, "tests", folder / "artifacts")


@pytest.fixture
def run(experiment: Experiment, request: pytest.FixtureRequest) -> Run:
    return Run.begin(
        experiment, f"test.{uuid.uuid4().hex}", request.node.name, started=1_700_000_000.0
    )


@pytest.fixture
def stored(experiment: Experiment) -> Callable[[str], Any]:
    """What the store holds of a run, by its id."""

    def get(run_id: str) -> Any:
        return experiment.client.get_run(run_id)

    return get


@pytest.fixture
def new(uri: str, folder: Path, tmp_path: Path, experiment: Experiment) -> Callable[..., Relay]:
    """Makes relays of this test's outboxes, as a new process would."""

    def make(name: str = "tests", fate: Callable[[str], None] | None = None) -> Relay:
        relay = Relay(tmp_path / "tracking", uri, name, folder / "artifacts")
        if name == "tests":
            relay._opened = copy.copy(experiment)  # opening it anew takes its time
            if fate is not None:
                relay._opened.client = Unreliable(experiment.client, fate)
        return relay

    return make


@pytest.fixture(scope="session")
def example() -> configuration.Config:
    """The embedded preset."""
    text = resources.files("seq2sweep.presets").joinpath("phrasebook.yaml").read_text()
    return configuration.from_dict(yaml.safe_load(text)["params"])
