"""Runs, models and lineage in MLflow; the only package that imports mlflow.

Importing this package costs nothing: its modules are imported by name, and `lineage` needs no
mlflow. What is set here must stand in the environment before mlflow is imported; what the user
has set is left alone.
"""

from __future__ import annotations

import os

from seq2sweep import console

CHANGES_NO_RESULT = "what is recorded of a result"

console.quiet_environment()
for _name, _value in {
    # relay.py tries again itself, and knows what may be done twice; MLflow's own values are
    # 120 s and seven retries.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # For a PostgreSQL server that accepts connections and never answers.
    "PGCONNECT_TIMEOUT": "30",
    # Its errors come with tracebacks; one line of ours says what fails.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    # The "View run" lines show the server's address, and a password in it.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}.items():
    os.environ.setdefault(_name, _value)
