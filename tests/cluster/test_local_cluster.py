"""A Ray of our own: nobody but its user gets in, and it may start late or never."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import psutil
import pytest
from ray._private import node, services

from seq2sweep import console
from seq2sweep.cluster import local_cluster, ray_internals, reaper, session
from seq2sweep.cluster.signals import ENDINGS, held_back, signals_as_interrupts
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.tracking import relay_thread
from tests.cluster.chaos import LONGEST_WAIT

STRANGER = Path(__file__).with_name("stranger.py")
NOBODY = 65534
# Where nothing listens.
PROXIES = dict.fromkeys(("grpc_proxy", "https_proxy", "http_proxy"), "http://127.0.0.1:9")

# Two workers with a process group as a training's, and whatever a Ray of our own has besides.
BODY = """
import os, json, time
from pathlib import Path
import ray
from seq2sweep import presets
from seq2sweep.cluster.ray_internals import session_folder
from seq2sweep.cluster.session import ray_session
with ray_session(presets.load("phrasebook").config.cluster):
    @ray.remote(num_cpus=0)
    class Worker:
        def join(self, rank, place):
            from seq2sweep.cluster import worker_group
            os.environ.update(RANK=str(rank), WORLD_SIZE="2")
            worker_group.use_interface_of_ray()
            worker_group.join(place, "gloo", 60)
            return os.getpid()
    workers = [Worker.remote() for _ in range(2)]
    folder = session_folder()
    place = str(Path(folder) / "meeting")
    pids = ray.get([w.join.remote(rank, place) for rank, w in enumerate(workers)])
    print(json.dumps({"folder": folder, "workers": pids}), flush=True)
    time.sleep(1000)
"""


@dataclass
class Ours:
    """A Ray of a driver: its session's folder, token, processes and who listens where."""

    folder: Path
    token: str
    processes: list[Any]
    listeners: dict[int, tuple[str, str]]
    """Name of the process and address, of each port."""
    gloo: set[int]
    home: Path


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    """With settings of a user who has switched tokens off, and has one that is known, and whose
    network has a proxy."""
    root = Path(tempfile.mkdtemp(prefix="s2p-", dir="/tmp"))
    # Others may enter it: what keeps them out is to be the session's own folder.
    root.chmod(0o755)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    driver = subprocess.Popen(
        [sys.executable, "-c", BODY],
        env=clean
        | {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "f" * 64}
        | PROXIES
        | {"TMPDIR": str(root), "HOME": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert driver.stdout is not None
        told = json.loads(driver.stdout.readline())
        (folder,) = root.glob("s2s-*")
        processes = [psutil.Process(driver.pid), *reaper.processes(str(folder))]
        listeners, gloo = listening(processes, told["workers"])
        token = (folder / local_cluster.TOKEN).read_text()
        yield Ours(folder, token, processes, listeners, gloo, root)
    finally:
        driver.send_signal(signal.SIGTERM)
        driver.wait(LONGEST_WAIT)
        shutil.rmtree(root)


def listening(
    processes: list[Any], workers: list[int]
) -> tuple[dict[int, tuple[str, str]], set[int]]:
    """Who listens where, and which ports are gloo's: those of a worker that Ray does not know."""
    found: dict[int, tuple[str, str]] = {}
    for process in processes:
        for one in process.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN or one.type == socket.SOCK_DGRAM:
                found[one.laddr.port] = (process.name(), one.laddr.ip)
    # Ray's are IPv6 sockets; gloo's listens on an address of IPv4.
    pids = {process.pid: process for process in processes}
    gloo = {
        one.laddr.port
        for worker in workers
        for one in pids[worker].net_connections("inet4")
        if one.status == psutil.CONN_LISTEN
    }
    return found, gloo


def strange(places: list[tuple[str, int]], files: list[str], *inside: str) -> Any:
    """What a stranger finds out; inside: a command that runs it elsewhere."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    command = [*inside, sys.executable, str(STRANGER), str(NOBODY)]
    told = subprocess.run(
        [*command, json.dumps(places), json.dumps(files)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LONGEST_WAIT,
    )
    return json.loads(told.stdout)


def test_all_listen_on_loopback(ours: Ours) -> None:
    assert {name for name, _ in ours.listeners.values()} >= {"raylet", "gcs_server"}
    for port, (name, address) in sorted(ours.listeners.items()):
        print(f"{name:24} {address:20} {port}")
    elsewhere = {
        name: address
        for name, address in ours.listeners.values()
        if address not in ("127.0.0.1", "::ffff:127.0.0.1")
    }
    assert elsewhere == {}
    assert len(ours.gloo) >= 2


def test_another_user_gets_no_answer_without_the_token(ours: Ours) -> None:
    ports = sorted(set(ours.listeners) - ours.gloo)
    told = strange([(ray_internals.LOOPBACK, port) for port in ports], [])
    # 0, no HTTP; 401, no token; 403, a wrong one.
    allowed = {"connected", "HTTP 0", "HTTP 401", "HTTP 403"}
    allowed |= {"gRPC UNAUTHENTICATED", "gRPC UNIMPLEMENTED"}
    for port in ports:
        said = set(told["answers"][f"{ray_internals.LOOPBACK}:{port}"])
        who = ours.listeners[port]
        assert "connected" in said, who
        assert said <= allowed, (who, said)
        assert said & {"HTTP 401", "gRPC UNAUTHENTICATED"}, (who, said)


def test_another_user_reads_no_file(ours: Ours) -> None:
    files = [str(path) for path in ours.folder.rglob("*") if path.is_file()]
    for process in ours.processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            files += [m.path for m in process.memory_maps() if m.path.startswith("/dev/shm/")]
            files += [f"/proc/{process.pid}/environ"]
    assert str(ours.folder / local_cluster.TOKEN) in files
    open_to_all = ours.home / "open"
    open_to_all.write_text("so that this test can fail")
    told = strange([], [*files, str(ours.folder), str(open_to_all)])
    assert told["read"] == [str(open_to_all)]


def test_the_token_is_its_own_and_on_no_command_line(ours: Ours) -> None:
    assert len(bytes.fromhex(ours.token)) == 32
    assert ours.token != "f" * 64
    assert (ours.folder / local_cluster.TOKEN).stat().st_mode & 0o777 == 0o600
    assert ours.folder.stat().st_mode & 0o777 == 0o700
    for process in ours.processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert ours.token not in " ".join(process.cmdline())
            assert ours.token not in str(process.environ())
    # Ray would have made the user's.
    assert not (ours.home / ".ray").exists()


def test_another_machine_gets_no_connection(ours: Ours) -> None:
    with another_machine() as (name, address), answering() as open_to_all:
        ports = [*ours.listeners, open_to_all]
        told = strange([(address, port) for port in ports], [], "ip", "netns", "exec", name)
        answered = [place for place, said in told["answers"].items() if said]
        assert answered == [f"{address}:{ports[-1]}"]


@contextlib.contextmanager
def answering() -> Iterator[int]:
    """A server of HTTP on all interfaces: its port."""
    with HTTPServer(("0.0.0.0", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextlib.contextmanager
def another_machine() -> Iterator[tuple[str, str]]:
    """A network namespace on a cable to this machine: its name, and this machine's address."""
    if shutil.which("ip") is None or os.getuid() != 0:
        pytest.skip("network namespaces need root, and the program ip (Debian: iproute2)")
    name = f"s2p{uuid.uuid4().hex[:6]}"
    subnet = f"10.{64 + os.getpid() % 190}.{os.getpid() // 190 % 255}"
    steps = [
        f"netns add {name}",
        f"link add {name} type veth peer name eth0 netns {name}",
        f"addr add {subnet}.1/24 dev {name}",
        f"link set {name} up",
        f"-n {name} addr add {subnet}.2/24 dev eth0",
        f"-n {name} link set eth0 up",
        f"-n {name} link set lo up",
    ]
    try:
        for step in steps:
            done = subprocess.run(["ip", *step.split()], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
        yield name, f"{subnet}.1"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", name], capture_output=True)


@pytest.mark.parametrize(("version", "good"), [("2.60.0", True), ("3.0.0", True), ("2.9.3", False)])
def test_a_ray_without_tokens_is_refused(version: str, good: bool) -> None:
    if good:
        local_cluster.check_version(version)
        return
    with pytest.raises(UserError, match=rf"^Ray {version} .*install Ray 2\.60 or newer"):
        local_cluster.check_version(version)


@contextlib.contextmanager
def head_that_answers(code: grpc.StatusCode) -> Iterator[str]:
    """A server in the place of Ray's head, which says no more than this: its address."""

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_code(code)
        context.set_details("said it")
        return b""

    method = {"GetClusterId": grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("ray.rpc.NodeInfoGcsService", method)]
    )
    # Ray takes the machine's own address for 127.0.0.1.
    port = server.add_insecure_port("0.0.0.0:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


@pytest.fixture
def _behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a company, which does not know what listens on this machine."""
    for name, value in PROXIES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("no_proxy", raising=False)


@pytest.mark.usefixtures("_behind_a_proxy")
@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("UNAUTHENTICATED", None, ""),
        ("OK", OperationalError, r"started at 127\.0\.0\.1:\d+ asks for no token"),
        ("UNAVAILABLE", ConnectionError, r"^it cannot be asked .* a token \(UNAVAILABLE: "),
        ("DEADLINE_EXCEEDED", ConnectionError, r"^it cannot be asked .* \(DEADLINE_EXCEEDED: "),
    ],
)
def test_a_ray_that_lets_anybody_in_is_a_failure(
    code: str, error: type[Exception] | None, said: str
) -> None:
    """One that does not answer is another, of which that is not said."""
    refused = pytest.raises(error, match=said) if error else contextlib.nullcontext()
    with head_that_answers(grpc.StatusCode[code]) as address, refused:
        local_cluster.check_private(address)


@pytest.mark.usefixtures("_behind_a_proxy")
def test_a_head_is_asked_past_the_proxy_and_why_it_refuses_is_said() -> None:
    with (
        head_that_answers(grpc.StatusCode.RESOURCE_EXHAUSTED) as address,
        pytest.raises(
            UserError, match=rf"no Ray cluster .* at {address} \(RESOURCE_EXHAUSTED: said"
        ),
    ):
        session._check_reachable(address, "cluster.address")


def test_it_counts_only_the_cpus_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under taskset, in a job of Slurm or in a container's cpuset."""
    start = Mock()
    monkeypatch.setattr(ray_internals, "start_on_loopback", start)
    monkeypatch.setattr(local_cluster, "check_private", Mock())
    monkeypatch.setattr(local_cluster.ray, "get_runtime_context", Mock())
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3})
    local_cluster._init("folder")
    assert start.call_args.kwargs["num_cpus"] == 1


def test_a_folder_too_long_for_rays_sockets_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/scratch/user/jobs/123456789")
    assert local_cluster._temporary_folder() == tempfile.tempdir
    for longer in ("/scratch/user/jobs/1234567890", "/scratch/josé/jobs/123456789"):
        monkeypatch.setattr(tempfile, "tempdir", longer)
        assert local_cluster._temporary_folder() == "/tmp"
        (line,) = capsys.readouterr().out.splitlines()
        assert line == f"Ray's files are in /tmp: TMPDIR {longer} has more than 28 bytes"


# --- a start that takes long ---------------------------------------------------------------------


@pytest.fixture
def raylet() -> Iterator[subprocess.Popen[bytes]]:
    """A child of this process by the name of raylet, which does nothing."""
    program = "import time; open('/proc/self/comm', 'w').write('raylet'); time.sleep(1000)"
    started = subprocess.Popen(["python3", "-c", program])
    while not local_cluster._alive("raylet"):
        assert started.poll() is None
        time.sleep(0.01)
    yield started
    started.kill()
    started.wait()


def test_a_raylet_that_is_late_is_waited_for(
    raylet: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def late(address: str, node_id: str) -> dict[str, str]:
        asked.append(node_id)
        if len(asked) < 5:
            raise RuntimeError("The raylet is not registered.")
        return {"id": node_id}

    monkeypatch.setattr(services, "get_node", late)
    monkeypatch.setattr(local_cluster, "SAY_SECONDS", 0.25)
    # Half a minute, after which Ray itself would give up, is over.
    with local_cluster.waiting(time.monotonic() - 31):
        assert services.get_node("127.0.0.1:1", "ours") == {"id": "ours"}
    assert services.get_node is late
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith("Ray is still starting after 3") for line in lines)


NEVER = Mock(side_effect=RuntimeError("The raylet is not registered."))


def test_one_that_never_starts_is_given_up_at_last(
    raylet: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "get_node", NEVER)
    began = time.monotonic()
    since = began - local_cluster.PATIENCE_SECONDS + 0.5
    with (
        local_cluster.waiting(since),
        pytest.raises(local_cluster.ProcessEndedError, match="raylet did not get ready"),
    ):
        services.get_node("127.0.0.1:1", "ours")
    assert time.monotonic() - began > 0.5


def test_one_that_is_gone_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "get_node", NEVER)
    monkeypatch.setattr(local_cluster, "_alive", lambda name: False)
    with local_cluster.waiting(time.monotonic()):
        with pytest.raises(local_cluster.ProcessEndedError, match="raylet ended"):
            services.get_node("127.0.0.1:1", "ours")
        # Ray's own, which takes its half minute without.
        with pytest.raises(local_cluster.ProcessEndedError, match="gcs_server ended"):
            node.wait_for_persisted_port(str(tmp_path), "00" * 28, "gcs_server_port")


def test_who_is_asked_to_end_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "get_node", NEVER)
    monkeypatch.setattr(local_cluster, "_alive", lambda name: True)

    def start() -> None:
        with signals_as_interrupts(), held_back(*ENDINGS), local_cluster.waiting(time.monotonic()):
            signal.raise_signal(signal.SIGTERM)
            services.get_node("127.0.0.1:1", "ours")

    with pytest.raises(KeyboardInterrupt):
        start()


def test_one_look_for_the_raylet_is_short() -> None:
    """All patience in one call of Ray's would not notice that the raylet is gone."""
    assert float(local_cluster.PATIENT["RAY_raylet_start_wait_time_s"]) <= 5


def test_noise_goes_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with local_cluster.noise_to(str(tmp_path)):
        os.write(2, b"[W 1 1] gcs_client.cc: noise\n")
        subprocess.run(["sh", "-c", "echo noise of a child >&2"])
    os.write(2, b"heard\n")
    assert capfd.readouterr().err == "heard\n"
    assert (tmp_path / local_cluster.NOISE).read_text().count("noise") == 2


def test_what_is_said_on_standard_errors_as_ray_starts_is_no_noise(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whose standard output is for results, and of MLflow by the thread that sends to it."""
    # As a process of its own has it: pytest's goes past descriptor 2.
    with open(2, "w", buffering=1, closefd=False) as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        with local_cluster.noise_to(str(tmp_path)):
            print("noise", file=sys.stderr)
            relay_thread._say("MLflow cannot be used")
            with contextlib.redirect_stdout(sys.stderr):
                console.say("Ray is still starting")
        console.say("started", file=sys.stderr)
    said = "seq2sweep: MLflow cannot be used\nRay is still starting\nstarted\n"
    assert capfd.readouterr() == ("", said)
    assert (tmp_path / local_cluster.NOISE).read_text() == "noise\n"


def test_the_last_logs_are_kept_in_one_place_and_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(local_cluster, "KEPT_BYTES", 10)
    monkeypatch.setattr(local_cluster, "KEPT_FILES", 2)
    session = tmp_path / "s2s-1"
    logs = session / "r" / "session_2026" / "logs"
    logs.mkdir(parents=True)
    for number, name in enumerate(["oldest.log", "gcs_server.err", "raylet.err"]):
        (logs / name).write_text(f"begin of {name}, end")
        os.utime(logs / name, (number, number))
    kept = [local_cluster.keep_logs(session) for _ in range(local_cluster.KEPT_STARTS + 2)]
    root = tmp_path / f"seq2sweep-{os.getuid()}" / "ray-logs"
    assert sorted(root.iterdir()) == kept[-local_cluster.KEPT_STARTS :]
    assert {path.name: path.read_text() for path in kept[-1].iterdir()} == {
        "gcs_server.err": "r.err, end",
        "raylet.err": "t.err, end",
    }
