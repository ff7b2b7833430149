"""What the train, evaluate and sweep stages record in MLflow, and how."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep import hardware
from seq2sweep.config import Config
from seq2sweep.tracking.address import resolve_uri
from seq2sweep.tracking.background import Background
from seq2sweep.tracking.lineage import environment, lineage_tags
from seq2sweep.tracking.outbox import outboxes_folder
from seq2sweep.tracking.writer import Writer

CHANGES_NO_RESULT = "what is recorded of a result"


def delivery(config: Config) -> Background:
    """What brings to MLflow, while its block runs, all that the stage and others recorded.

    Raises UserError for an address that cannot be right; a store that is away holds nothing up.
    """
    project = Path.cwd()
    return Background(
        outboxes(config),
        resolve_uri(config.tracking, project),
        config.tracking.experiment,
        project / "mlartifacts",
    )


def outboxes(config: Config) -> Path:
    """The folder of all runs that are being recorded."""
    return outboxes_folder(config.cluster, Path.cwd())


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


def of_run(
    lineage: dict[str, str], config: Config, without: Collection[str] = ()
) -> dict[str, str]:
    """The lineage of a run whose parameters are not those of params.yaml, such as a trial's.

    without: keys that the run has no value for.
    """
    return lineage | {"params.sha256": configuration.fingerprint(config, without=without)}


def keep_environment(run: Writer) -> None:
    """Record the packages that `environment.sha256` is the hash of, as the run's requirements."""
    with tempfile.TemporaryDirectory(prefix="seq2sweep-") as folder:
        path = Path(folder) / "environment.txt"
        path.write_text(environment(), encoding="utf-8")
        run.artifact(path)


def origin_tags(figures: Mapping[str, Any]) -> dict[str, str]:
    """On what a training was computed, as far as its journal says, as tags."""
    tags = {
        "hardware.cpu_features" if key == "cpu_features" else f"run.{key}": str(figures[key])
        for key in hardware.ORIGIN
        if figures.get(key) is not None
    }
    return tags


def logged_params(config: Config) -> dict[str, Any]:
    """The parameters that a run shows, by dotted key: all, so that params.yaml can be rebuilt."""
    return configuration.flatten(config)


def name_dataset(run: Writer, config: Config, header: dict[str, Any], split: str) -> None:
    """Show in the UI which data a run used; the digest is the encoded data's identity."""
    languages = f"{config.data.source}-{config.data.target}"
    run.dataset(f"{config.data.dataset} {languages} {split}", header["fingerprint"], split)
