"""Runs, models and lineage in MLflow; the only package that imports mlflow.

Importing this package costs nothing: its modules are imported by name, and `lineage` needs no
mlflow. What is set here must stand in the environment before mlflow is imported; what the user
has set is left alone.
"""

from __future__ import annotations

import os

from seq2sweep import console

console.quiet_environment()
for _name, _value in {
    # MLflow's own values, 120 s and seven retries, let a dead server hold a run up for minutes.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # The "View run" lines show the server's address, and a password in it.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}.items():
    os.environ.setdefault(_name, _value)
