"""compose.yaml: what may be reached from where, and how confined each container is."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from requests.utils import should_bypass_proxies

from tests.infra.files import INFRA, compose, dockerfile, documents


def faults(content: dict[str, Any]) -> list[str]:
    """What is not as docs/security.md promises."""
    found = []
    for name, service in content["services"].items():
        user, _, group = str(service.get("user", "0")).partition("}:")
        checks = {
            "a port on more than loopback": not all(
                str(port).startswith("127.0.0.1:") for port in service.get("ports", [])
            ),
            "root": user.split(":")[0] in ("0", "root") or "0:" in group,
            "may gain privileges": "no-new-privileges:true" not in service.get("security_opt", []),
            "has capabilities": service.get("cap_drop") != ["ALL"] or "cap_add" in service,
            "privileged": bool(service.get("privileged")),
            "the host's network": service.get("network_mode") == "host",
            "may write to its root": service.get("read_only") is not True,
            "no limit of memory": "mem_limit" not in service,
            "can read all secrets": bool(unhidden_secrets(service)),
            "is not started again": service.get("restart") not in ("unless-stopped", "no"),
        }
        found += [f"{name}: {what}" for what, bad in checks.items() if bad]
    return found


def unhidden_secrets(service: dict[str, Any]) -> list[str]:
    """Where a container has infra/secrets, by a folder of this machine that it mounts."""
    secrets = INFRA / "secrets"
    hidden = {str(each).partition(":")[0] for each in service.get("tmpfs", [])}
    found = []
    for volume in service.get("volumes", []):
        if isinstance(volume, str):
            source, target = volume.split(":")[:2]
        else:
            source, target = volume.get("source", ""), volume["target"]
        # A name without a slash or a dot is one of Docker's own volumes.
        folder = (INFRA / source).resolve()
        if source.startswith((".", "/")) and secrets.is_relative_to(folder):
            found.append(str(Path(target) / secrets.relative_to(folder)))
        elif source.startswith((".", "/")) and folder.is_relative_to(secrets):
            found.append(target)
    return [place for place in found if place not in hidden]


def test_compose_is_confined() -> None:
    assert set(compose()["services"]) == {
        "head", "worker", "mlflow", "postgres", "s3", "s3-folder",
    }  # fmt: skip
    assert faults(compose()) == []


def _change(service: str, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["services"][service].update(values)


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (_change("head", ports=["8265:8265"]), "head: a port on more than loopback"),
        (_change("mlflow", ports=["0.0.0.0:5000:5000"]), "mlflow: a port on more than loopback"),
        (_change("postgres", user="0:0"), "postgres: root"),
        (_change("s3", user="root"), "s3: root"),
        (lambda content: content["services"]["worker"].pop("user"), "worker: root"),
        (_change("worker", cap_add=["SYS_ADMIN"]), "worker: has capabilities"),
        (_change("head", network_mode="host"), "head: the host's network"),
        (_change("head", privileged=True), "head: privileged"),
        (_change("head", read_only=False), "head: may write to its root"),
        (lambda content: content["services"]["head"].pop("mem_limit"), "head: no limit of memory"),
        (_change("worker", tmpfs=["/tmp"]), "worker: can read all secrets"),
        (_change("mlflow", volumes=["./secrets/:/all:ro"]), "mlflow: can read all secrets"),
        (
            _change("s3", volumes=[{"type": "bind", "source": "..", "target": "/a"}]),
            "s3: can read all secrets",
        ),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[dict[str, Any]], None], fault: str) -> None:
    content = copy.deepcopy(compose())
    plant(content)
    assert faults(content) == [fault]


def test_ray_wants_a_token() -> None:
    assert "RAY_AUTH_MODE=token" in dockerfile()
    assert "RAY_JOB_STOP_WAIT_TIME_S=60" in dockerfile()
    for name in ("head", "worker"):
        service = compose()["services"][name]
        assert service["environment"]["RAY_AUTH_MODE"] == "token"
        assert service["environment"]["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/ray_token"
        assert "ray_token" in service["secrets"]
    # What trains needs no password of the tracking server: the head records.
    assert compose()["services"]["worker"]["secrets"] == ["ray_token"]


def test_the_database_is_reached_through_mlflow_alone() -> None:
    services = compose()["services"]
    assert {name for name, each in services.items() if "database" in each.get("networks", [])} == {
        "mlflow", "postgres",
    }  # fmt: skip
    assert services["postgres"]["networks"] == ["database"]
    assert "ports" not in services["postgres"]
    assert compose()["networks"]["database"] == {"internal": True}


def test_mlflow_answers_by_its_names_alone() -> None:
    hosts = compose()["services"]["mlflow"]["environment"]["ALLOWED_HOSTS"].split(",")
    assert hosts[0] == "mlflow:5000"
    assert all(host.startswith(("mlflow", "localhost", "127.0.0.1")) for host in hosts)


def test_every_service_says_whether_it_is_well() -> None:
    """By a check of its own, or that of our image, which is of Ray nodes."""
    assert "\nHEALTHCHECK " in dockerfile()
    for name, service in compose()["services"].items():
        if name not in ("head", "worker"):
            assert "healthcheck" in service, name
    waits = {
        name: {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
        for name, service in compose()["services"].items()
    }
    assert waits["worker"] == {"head": "service_healthy"}
    assert waits["head"] == {"mlflow": "service_healthy"}
    assert waits["mlflow"] == {"postgres": "service_healthy"}


class Well(BaseHTTPRequestHandler):
    """A server that says it is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *about: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("command", "address"),
    [
        (compose()["services"]["mlflow"]["healthcheck"]["test"][1:], "127.0.0.1:5000"),
        (["bash", "-c", (INFRA / "docker/ray-healthy").read_text("utf-8")], "127.0.0.1:52365"),
    ],
    ids=["mlflow", "ray"],
)
def test_a_container_asks_itself_past_the_proxy(command: list[str], address: str) -> None:
    """Docker puts the proxy of a user's settings into every container."""
    environment = dict(os.environ) | {"http_proxy": "http://127.0.0.1:9"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment.pop("no_proxy", None)
    with HTTPServer(("127.0.0.1", 0), Well) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = [word.replace(address, f"127.0.0.1:{server.server_port}") for word in command]
        assert there != command
        done = subprocess.run(there, env=environment, capture_output=True, text=True, timeout=60)
        server.shutdown()
    assert done.returncode == 0, done.stderr


def test_ray_nodes_ask_each_other_and_the_services_past_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("head", "worker"):
        for variable in ("NO_PROXY", "no_proxy"):
            listed = compose()["services"][name]["environment"][variable]
            assert listed.endswith(",${NO_PROXY:-}")  # the user's own
            monkeypatch.delenv("NO_PROXY" if variable == "no_proxy" else "no_proxy", raising=False)
            monkeypatch.setenv(variable, listed.replace("${NO_PROXY:-}", ""))
            for host in ("127.0.0.1:8265", "localhost", "head:6379", "mlflow:5000", "s3:8333"):
                assert should_bypass_proxies(f"http://{host}", no_proxy=None), host
            assert not should_bypass_proxies("http://example.org", no_proxy=None)


def test_object_storage_is_optional() -> None:
    profiles = {
        name: each["profiles"] for name, each in compose()["services"].items() if "profiles" in each
    }
    assert profiles == {"s3": ["s3"], "s3-folder": ["s3"]}


def test_the_gpu_file_changes_workers_alone_and_wants_their_size() -> None:
    """One worker has all GPUs: what is enough for a worker on the CPU is not for eight of them."""
    (content,) = documents(INFRA / "compose.cuda.yaml")
    assert set(content["services"]) == {"worker"}
    worker = content["services"]["worker"]
    assert worker["cpus"].startswith("${WORKER_CPUS:?")
    assert worker["mem_limit"].startswith("${WORKER_MEMORY:?")
    # Ray is told the same number.
    assert "--num-cpus=${WORKER_CPUS:-2}" in compose()["services"]["worker"]["command"]


def test_a_containers_memory_holds_its_shared_memory() -> None:
    for name in ("head", "worker"):
        service = compose()["services"][name]
        memory = int(re.fullmatch(r"\$\{\w+:-(\d+)g\}", service["mem_limit"])[1])  # type: ignore[index]
        shared = int(service["shm_size"].removesuffix("gb"))
        objects = int(re.search(r"--object-store-memory=(\d+)", service["command"])[1])  # type: ignore[index]
        assert shared <= memory / 2, name
        assert objects <= shared * 2**30 / 2, name


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.cuda.yaml"]])
def test_compose_itself_takes_the_file(files: list[str]) -> None:
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "compose", "version"], capture_output=True).returncode
    ):
        pytest.skip("docker compose is not installed")
    named = [part for file in files for part in ("--file", str(INFRA / file))]
    done = subprocess.run(
        [docker, "compose", *named, "--profile", "s3", "config", "--quiet"],
        capture_output=True,
        text=True,
        env=os.environ
        | {"USER_ID": "1000", "GROUP_ID": "1000", "WORKER_CPUS": "4", "WORKER_MEMORY": "16g"},
    )
    assert done.returncode == 0, done.stderr
