"""Artifacts of MLflow, read without leaving a copy in $TMPDIR."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def artifact_text(client: Any, run_id: str, name: str) -> str:
    """The text of a run's artifact."""
    with TemporaryDirectory() as folder:
        path = Path(client.download_artifacts(run_id, name, folder))
        return path.read_text(encoding="utf-8")
