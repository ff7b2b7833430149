"""Where runs are recorded, and what is wrong with it in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from seq2sweep.config import TrackingConfig
from seq2sweep.errors import UserError
from seq2sweep.tracking.address import reason, resolve_uri


def test_uri_of_configuration_wins_over_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://environment:5000")
    assert resolve_uri(TrackingConfig("http://here:1", "e"), tmp_path) == "http://here:1"
    assert resolve_uri(TrackingConfig(None, "e"), tmp_path) == "http://environment:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert resolve_uri(TrackingConfig(None, "e"), tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"


def test_relative_sqlite_paths_become_absolute(tmp_path: Path) -> None:
    relative = resolve_uri(TrackingConfig("sqlite:///runs/x.db", "e"), tmp_path)
    assert relative == f"sqlite:///{tmp_path}/runs/x.db"
    absolute = "sqlite:////somewhere/x.db"
    assert resolve_uri(TrackingConfig(absolute, "e"), tmp_path) == absolute


def test_a_driver_is_named_where_there_is_a_choice(tmp_path: Path) -> None:
    for given, used in (
        ("postgresql://ada@host/runs", "postgresql+psycopg2://ada@host/runs"),
        ("postgresql+psycopg://ada@host/runs", "postgresql+psycopg://ada@host/runs"),
        ("mysql://ada@host/runs", "mysql://ada@host/runs"),
    ):
        assert resolve_uri(TrackingConfig(given, "e"), tmp_path) == used


@pytest.mark.parametrize(
    "uri", ["mlruns", "file:///tmp/mlruns", "localhost:5000", "htp://host:5000", "://"]
)
def test_uri_that_is_no_store_is_a_user_error(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tracking\.uri must be a database or a server"):
        resolve_uri(TrackingConfig(uri, "e"), tmp_path)


def test_reason_is_one_short_line_without_passwords() -> None:
    assert (
        reason(OSError("http://ada:hunter2@host is away\nTraceback")) == "http://***@host is away"
    )
    assert reason(TimeoutError()) == "TimeoutError"
    assert len(reason(OSError("x" * 1000))) == 200
