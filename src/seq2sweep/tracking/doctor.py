"""Can MLflow be reached and written? For `seq2sweep doctor`."""

from __future__ import annotations

import os
from pathlib import Path

from seq2sweep.config import TrackingConfig
from seq2sweep.errors import UserError
from seq2sweep.health import Finding
from seq2sweep.redaction import redact
from seq2sweep.tracking.address import resolve_uri
from seq2sweep.tracking.runs import Tracker
from seq2sweep.tracking.store import STORE_ERRORS, unusable

WHERE = "MLflow"


def examine(config: TrackingConfig, project: Path) -> Finding:
    """Opens the experiment, which is made if it is missing, and writes a tag of it."""
    uri = resolve_uri(config, project)
    file = Path(uri.removeprefix("sqlite:///"))
    if uri.startswith("sqlite:") and not file.exists() and os.access(project, os.W_OK):
        return Finding(WHERE, "store", "well", f"{file} is made by the first stage that trains")
    try:
        tracker = Tracker(uri, config.experiment, project / "mlartifacts")
        try:
            tracker.client.set_experiment_tag(tracker.experiment_id, "seq2sweep.doctor", "was here")
        except STORE_ERRORS as error:
            raise UserError(unusable(uri, error)) from None
    except UserError as error:
        text, _, remedy = str(error).rpartition(": ")
        return Finding(WHERE, "store", "problem", text, remedy)
    return Finding(WHERE, "store", "well", f"{redact(uri)} answers and takes records")
