"""Real servers on loopback: MLflow, which can be killed and started again, and PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STARTED_WITHIN = 180.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(uri: str) -> bool:
    """Whether MLflow serves there."""
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class MlflowServer:
    """`mlflow server` over a database, on the same port each time.

    host: the address that it listens on.
    """

    def __init__(self, database: str, folder: Path, host: str = "127.0.0.1") -> None:
        self.database, self.folder, self.host = database, folder, host
        self.port = free_port()
        self.uri = f"http://{host}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "mlflow", "server", "--host", self.host]
        command += ["--port", str(self.port), "--workers", "1"]
        command += ["--allowed-hosts", f"{self.host}:{self.port}"]
        command += ["--backend-store-uri", self.database]
        command += ["--artifacts-destination", (self.folder / "served").as_uri()]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that its workers are killed with it
            )
        deadline = time.monotonic() + STARTED_WITHIN
        while not answers(self.uri):
            text = (self.folder / "server.log").read_text()
            assert self._process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.2)

    def kill(self) -> None:
        """SIGKILL, to all of it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def postgresql_program(name: str) -> str | None:
    """The path of one of PostgreSQL's programs, which Debian does not put into PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *map(str, places)]))


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """The address of a new database, in a server of its own; skips where there is none."""
    initdb, postgres = postgresql_program("initdb"), postgresql_program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("neither in PATH nor in /usr/lib/postgresql: PostgreSQL's initdb and postgres")
    pytest.importorskip("psycopg2")
    # It refuses to run as root; and nobody else may enter pytest's own folders.
    other: dict[str, Any] = {"user": "nobody", "group": None} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    try:
        if other:
            shutil.chown(folder, "nobody")
        data, port = folder / "data", free_port()
        options: dict[str, Any] = {"cwd": folder, "stdout": subprocess.PIPE, **other}
        options |= {"stderr": subprocess.STDOUT, "text": True}
        made = [initdb, "-D", str(data), "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8"]
        done = subprocess.run([*made, "--locale=C"], check=False, timeout=120, **options)
        assert done.returncode == 0, done.stdout
        command = [postgres, "-D", str(data), "-p", str(port), "-c", "fsync=off"]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        log = (folder / "postgres.log").open("wb")
        server = subprocess.Popen(command, **(options | {"stdout": log, "text": None}))
        try:
            _wait_for_postgresql(server, port, folder / "postgres.log")
            yield f"postgresql+psycopg2://tester@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)  # "fast shutdown"
            server.wait()
            log.close()
    finally:
        shutil.rmtree(folder)


def _wait_for_postgresql(server: subprocess.Popen[Any], port: int, log: Path) -> None:
    import psycopg2

    deadline = time.monotonic() + STARTED_WITHIN
    while True:
        try:
            address = {"host": "127.0.0.1", "port": port, "user": "tester", "dbname": "postgres"}
            psycopg2.connect(**address).close()
        except psycopg2.OperationalError:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        else:
            return
