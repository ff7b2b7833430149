"""What the train, evaluate and sweep stages record in MLflow, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.tracking.lineage import lineage_tags
from seq2sweep.tracking.runs import Run, Tracker, resolve_uri

LOGGED_SECTIONS = ("data", "prepare", "vocabulary", "model", "train", "cluster")


def open_tracker(config: Config) -> Tracker:
    """The tracking store of params.yaml; runs whose process died are closed first."""
    project = Path.cwd()
    tracker = Tracker(
        resolve_uri(config.tracking, project), config.tracking.experiment, project / "mlartifacts"
    )
    tracker.close_dead_runs()
    return tracker


def lineage(config: Config, header: dict[str, Any], **more: Path) -> dict[str, str]:
    """Where a result comes from, to the byte: code, parameters, data, versions, hardware.

    more: inputs besides the data, by name.
    """
    inputs = {
        "raw": stage.RAW,
        "clean": stage.CLEAN,
        "vocabulary": stage.VOCABULARY,
        "encoded": stage.ENCODED,
    } | more
    data = {"dataset": header["fingerprint"], "vocabulary": header["vocabulary"]["fingerprint"]}
    return lineage_tags(Path.cwd(), config, inputs=inputs, data=data)


def logged_params(config: Config) -> dict[str, Any]:
    """The parameters that a run shows, by dotted key; unused data sections are left out."""
    unused = "data.files." if config.data.dataset == "phrasebook" else "data.phrasebook."
    return {
        key: value
        for key, value in configuration.flatten(config, *LOGGED_SECTIONS).items()
        if not key.startswith(unused)
    }


def name_dataset(run: Run, config: Config, header: dict[str, Any], split: str) -> None:
    """Show in the UI which data a run used; the digest is the encoded data's identity."""
    languages = f"{config.data.source}-{config.data.target}"
    run.dataset(f"{config.data.dataset} {languages} {split}", header["fingerprint"], split)
