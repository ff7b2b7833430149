"""Who has no token and no password gets nowhere: our start commands, run here, on loopback."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.infra.files import INFRA, compose
from tests.tracking.servers import free_port, postgresql

STARTED_WITHIN = 180.0
WITH_SECRETS = str(INFRA / "docker/with-secrets")


def ask(address: str, headers: dict[str, str] | None = None, body: object = None) -> int:
    """The status of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, headers=headers or {})
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@contextlib.contextmanager
def running(
    command: list[str], environment: dict[str, str], log: Path, well: str
) -> Iterator[None]:
    """A server and what it starts, until `well` answers; all of it is ended again."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=inherited | environment, stdout=output, stderr=output
        )
    started = psutil.Process(process.pid)
    try:
        deadline = time.monotonic() + STARTED_WITHIN
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            with contextlib.suppress(OSError):
                if ask(well) == 200:
                    break
            time.sleep(0.2)
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [started, *started.children(recursive=True)]
            process.send_signal(signal.SIGTERM)
            _, alive = psutil.wait_procs(family, timeout=20)
            for each in alive:
                each.kill()
        process.wait()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as /run/secrets is in a container."""
    folder = tmp_path_factory.mktemp("secrets")
    for name in compose()["secrets"]:
        (folder / name).write_text(secrets.token_hex(32))
    return folder


# --- Ray -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ray_head(tmp_path_factory: pytest.TempPathFactory, kept: Path) -> Iterator[tuple[int, int]]:
    """The head as compose.yaml starts it, on ports of its own: those of dashboard and GCS."""
    dashboard, gcs, agent = free_port(), free_port(), free_port()
    command = compose()["services"]["head"]["command"]
    for old, new in (
        ("--port=6379", f"--port={gcs}"),
        ("--dashboard-host=0.0.0.0", "--dashboard-host=127.0.0.1"),
        ("--dashboard-port=8265", f"--dashboard-port={dashboard}"),
        ("--object-store-memory=500000000", "--object-store-memory=100000000"),
    ):
        assert old in command
        command = command.replace(old, new)
    folder = tmp_path_factory.mktemp("head")
    # Ray's sockets need a short path.
    sockets = Path(f"/tmp/s2s-{secrets.token_hex(3)}")
    with running(
        [
            WITH_SECRETS, *shlex.split(command), f"--dashboard-agent-listen-port={agent}",
            "--node-ip-address=127.0.0.1", f"--temp-dir={sockets}",
        ],
        {
            "RAY_AUTH_MODE": "token",
            "SECRETS": str(kept),
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        folder / "log",
        f"http://127.0.0.1:{agent}/api/healthz",
    ):  # fmt: skip
        yield dashboard, gcs
    subprocess.run(["rm", "-rf", sockets], check=True)


def test_a_client_without_the_token_can_do_nothing(
    ray_head: tuple[int, int], kept: Path, tmp_path: Path
) -> None:
    dashboard, gcs = ray_head
    base = f"http://127.0.0.1:{dashboard}"
    wrong = {"Authorization": f"Bearer {secrets.token_hex(32)}"}
    for path in ("/api/version", "/api/jobs/", "/nodes?view=summary", "/logs", "/api/actors"):
        assert ask(base + path) == 401, path
        assert ask(base + path, wrong) == 403, path
    job = {"entrypoint": f"touch {tmp_path / 'done'}"}
    assert ask(f"{base}/api/jobs/", body=job) == 401
    assert ask(f"{base}/api/jobs/", wrong, job) == 403
    assert not (tmp_path / "done").exists()

    right = {"Authorization": f"Bearer {(kept / 'ray_token').read_text()}"}
    assert ask(f"{base}/api/jobs/", right) == 200

    # Nor does the head let it in as a part of the cluster.
    join = "import ray; ray._raylet.GcsClient(address='127.0.0.1:{}')".format
    environment = os.environ | {
        "HOME": str(tmp_path),
        "RAY_AUTH_MODE": "disabled",
        # A busy machine takes its time.
        "RAY_gcs_rpc_server_connect_timeout_s": "60",
        "RAY_gcs_server_request_timeout_seconds": "60",
    }
    environment.pop("RAY_AUTH_TOKEN", None)
    refused = subprocess.run(
        [sys.executable, "-c", join(gcs)], env=environment, capture_output=True, text=True
    )
    assert refused.returncode != 0
    assert "AuthenticationError" in refused.stderr
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(kept / "ray_token")}
    assert (
        subprocess.run([sys.executable, "-c", join(gcs)], env=environment | token).returncode == 0
    )


# --- MLflow --------------------------------------------------------------------------------------


def test_mlflow_wants_a_password_and_its_own_name(kept: Path, tmp_path: Path) -> None:
    pytest.importorskip("flask_wtf")
    import psycopg2

    port = free_port()
    with postgresql() as uri:
        _, _, place = uri.partition("tester@")
        with contextlib.closing(psycopg2.connect(f"postgresql://tester@{place}")) as database:
            database.autocommit = True
            cursor = database.cursor()
            cursor.execute("CREATE ROLE mlflow LOGIN")
            cursor.execute("CREATE DATABASE mlflow OWNER mlflow")
        environment = {
            "SECRETS": str(kept),
            "DATABASE": f"{place.partition('/')[0]}/mlflow",
            "ALLOWED_HOSTS": f"127.0.0.1:{port}",
            "ARTIFACTS": str(tmp_path / "artifacts"),
            "HOST": "127.0.0.1",
            "PORT": str(port),
            "WORKERS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        base = f"http://127.0.0.1:{port}"
        with running(
            [str(INFRA / "docker/tracking-server")],
            environment,
            tmp_path / "log",
            f"{base}/health",
        ):
            search = f"{base}/api/2.0/mlflow/experiments/search?max_results=1"
            assert ask(search) == 401
            assert ask(base + "/") == 401
            assert ask(search, basic("seq2sweep", "password1234")) == 401
            right = basic("seq2sweep", (kept / "mlflow_password").read_text())
            assert ask(search, right) == 200
            # A page elsewhere that has its name lead here is not answered.
            assert ask(search, right | {"Host": "elsewhere.example:5000"}) == 403
    assert (kept / "mlflow_password").read_text() not in (tmp_path / "log").read_text()


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
