"""`make ui`: the MLflow UI over this project's store, on this machine only."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path

from seq2sweep import config as configuration
from seq2sweep.console import quiet_environment, say
from seq2sweep.errors import EXIT_FAILURE, EXIT_USER_ERROR, OperationalError, UserError
from seq2sweep.redaction import redact
from seq2sweep.tracking.mlflow_store import SERVERS, Experiment, destination

HOST = "127.0.0.1"
PORT = 5000


def main(arguments: list[str] | None = None) -> int:
    """Serve until Ctrl-C. The store is opened first: making its tables is not the server's job."""
    quiet_environment()
    parser = argparse.ArgumentParser(prog="seq2sweep ui", description=__doc__)
    parser.add_argument("--port", default=str(PORT), help=f"of {HOST} ({PORT} if not given)")
    port = parser.parse_args(arguments).port
    try:
        return _serve(_free(port))
    except (UserError, OperationalError) as error:
        print(f"seq2sweep ui: {error}", file=sys.stderr)
        return EXIT_USER_ERROR if isinstance(error, UserError) else EXIT_FAILURE
    except KeyboardInterrupt:
        return 0


def _free(port: str) -> int:
    """The port as a number. Raises UserError where nothing can listen there."""
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"the port must be a number from 1 to 65535, not {port!r}")
    with socket.socket() as listener:
        # As servers do: connections of one that has ended a moment ago do not keep it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, int(port)))
        except OSError as error:
            raise UserError(
                f"cannot listen on {HOST}:{port} ({error.strerror}): end the program that has this "
                f"port, or choose another: make ui PORT={int(port) % 65535 + 1}"
            ) from None
    return int(port)


def _serve(port: int) -> int:
    config = configuration.load(Path("params.yaml"))
    _, uri, name, artifacts = destination(config, Path.cwd())
    experiment = Experiment(uri, name, artifacts)
    # MLflow would open on its view for language-model applications.
    view = f"#/experiments/{experiment.id}/runs?workflowType=machine_learning"
    if uri.partition("://")[0] in SERVERS:
        say(f"Runs are recorded by a server: {redact(uri)}/{view}")
        return 0
    say(f"Open http://{HOST}:{port}/{view}   (Ctrl-C ends it)")
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port)]
    command += ["--workers", "1", "--uvicorn-opts", "--log-level warning"]
    defaults = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
    # Not among the arguments, which every user of this machine can read.
    store = {"MLFLOW_BACKEND_STORE_URI": uri}
    status = subprocess.run(command, check=False, env=defaults | os.environ | store).returncode
    if status != 0:
        raise OperationalError(
            f"the MLflow server ended with status {status}: its own words are above"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
