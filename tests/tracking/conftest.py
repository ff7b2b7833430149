"""One MLflow store for all tracking tests: making its tables takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2sweep import config as configuration
from seq2sweep.tracking.runs import Run, Tracker


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
    return tracker.start(request.node.name, kind="test")


@pytest.fixture
def stored(tracker: Tracker) -> Callable[[str], Any]:
    """What the store holds of a run, by its id."""

    def get(run_id: str) -> Any:
        return tracker.client.get_run(run_id)

    return get


@pytest.fixture(scope="session")
def example() -> configuration.Config:
    """The embedded preset."""
    text = resources.files("seq2sweep.presets").joinpath("phrasebook.yaml").read_text()
    return configuration.from_dict(yaml.safe_load(text)["params"])
