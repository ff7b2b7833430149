"""`make ui`: where it listens, what it says when it cannot, and that it shows no password."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from seq2sweep import config as configuration
from seq2sweep import ports, presets
from seq2sweep.cli import main
from seq2sweep.tracking import mlflow_store
from tests.clone import ROOT
from tests.tracking.servers import answers, free_port


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the demo's params.yaml, as the working one."""
    (tmp_path / "params.yaml").write_text(configuration.dump(presets.load("phrasebook").config))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def test_a_port_that_is_taken_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["ui", "--port", str(port)]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    (line,) = error.splitlines()
    assert line.startswith(f"seq2sweep ui: cannot listen on 127.0.0.1:{port} (Address already in")
    assert "make ui PORT=" in line
    assert not (project / "mlflow.db").exists()


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "²"])
def test_a_port_that_is_none_is_one_line(
    project: Path, port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ui", f"--port={port}"]) == 2
    assert "must be a number from 1 to 65535" in capsys.readouterr().err


def test_make_hands_its_port_on() -> None:
    for more, expected in ((["PORT=5009"], "seq2sweep ui --port 5009"), ([], "seq2sweep ui")):
        command = ["make", "--no-print-directory", "--dry-run", "ui", *more]
        # Those that a `make test` around this hands on.
        handed = ("PORT", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        environment = {key: value for key, value in os.environ.items() if key not in handed}
        shown = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment
        )
        assert shown.stdout.splitlines()[-1].strip().endswith(expected)


def test_the_password_is_no_argument_and_a_failure_is_told(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = "postgresql+psycopg2://ada:hunter2@host/runs"
    called: list[Any] = []

    class Store:
        def page(self, uri: str, *views: str, port: str) -> str:
            return mlflow_store.address(uri, "1/runs", port)

    def run(command: list[str], environment: dict[str, str]) -> int:
        called.append((command, environment))
        return 3

    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_BACKEND_STORE_URI", "sqlite:///another.db")
    monkeypatch.setattr(mlflow_store, "Experiment", lambda *arguments: Store())
    monkeypatch.setattr(mlflow_store, "_run_together", run)
    assert main(["ui", "--port", str(free_port())]) == 1
    ((command, environment),) = called
    assert "hunter2" not in " ".join(command)
    assert environment["MLFLOW_BACKEND_STORE_URI"] == uri
    assert "the MLflow server ended with status 3" in capsys.readouterr().err

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://ada:hunter2@host")
    with socket.create_server(("127.0.0.1", 0)) as server:  # such as that server's own
        assert main(["ui", "--port", str(server.getsockname()[1])]) == 0
    assert "by a server: https://***@host/#/experiments/1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGTERM]
)
def test_it_serves_this_store_and_no_process_shows_it(project: Path, number: int) -> None:
    """number: sent to it alone, as `kill` does."""
    port = free_port()
    command = [sys.executable, "-m", "seq2sweep.cli", "ui", "--port", str(port)]
    with (project / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 180
        while not answers(f"http://127.0.0.1:{port}"):
            assert server.poll() is None, (project / "log").read_text()
            assert time.monotonic() < deadline, (project / "log").read_text()
            time.sleep(0.2)
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        shown = [" ".join(process.cmdline()) for process in family]
        assert any("mlflow server" in line for line in shown)
        assert not [line for line in shown if "sqlite:" in line]
        assert f"Open http://127.0.0.1:{port}/#/experiments/" in (project / "log").read_text()
    finally:
        server.send_signal(number)
        server.wait(60)
    assert server.returncode == 0
    _, left = psutil.wait_procs(family, timeout=10)
    assert not left
    ports.listening("127.0.0.1", port, "").close()
    assert (project / "mlflow.db").exists()
