"""`make ui`: the MLflow UI over this project's store, on this machine only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from seq2sweep import config as configuration
from seq2sweep.console import quiet_environment, say
from seq2sweep.errors import EXIT_USER_ERROR, UserError
from seq2sweep.tracking.address import resolve_uri
from seq2sweep.tracking.runs import Tracker

PORT = 5000


def main() -> int:
    """Serve until Ctrl-C. The store is opened first: making its tables is not the server's job."""
    quiet_environment()
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    project = Path.cwd()
    try:
        config = configuration.load(Path("params.yaml"))
        uri = resolve_uri(config.tracking, project)
        tracker = Tracker(uri, config.tracking.experiment, project / "mlartifacts")
    except UserError as error:
        print(f"seq2sweep ui: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    # MLflow would open on its view for language-model applications.
    view = f"#/experiments/{tracker.experiment_id}/runs?workflowType=machine_learning"
    if uri.startswith(("http://", "https://")):
        say(f"Runs are recorded by a server: {uri}/{view}")
        return 0
    say(f"Open http://127.0.0.1:{PORT}/{view}   (Ctrl-C ends it)")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(PORT), "--workers", "1", "--backend-store-uri", uri]
    command += ["--uvicorn-opts", "--log-level warning"]
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
