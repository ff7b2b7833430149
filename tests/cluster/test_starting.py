"""A Ray that starts late or never, and what is kept of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray._private import node, services

from seq2sweep.cluster import starting
from seq2sweep.cluster.signals import ENDINGS, held_back, signals_as_interrupts


@pytest.fixture
def raylet() -> Iterator[subprocess.Popen[bytes]]:
    """A child of this process by the name of raylet, which does nothing."""
    program = "import time; open('/proc/self/comm', 'w').write('raylet'); time.sleep(1000)"
    started = subprocess.Popen(["python3", "-c", program])
    while not starting._alive("raylet"):
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
    monkeypatch.setattr(starting, "SAY_SECONDS", 0.25)
    # Half a minute, after which Ray itself would give up, is over.
    with starting.waiting(time.monotonic() - 31):
        assert services.get_node("127.0.0.1:1", "ours") == {"id": "ours"}
    assert services.get_node is late
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith("Ray is still starting after 3") for line in lines)


def test_one_that_never_starts_is_given_up_at_last(
    raylet: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(address: str, node_id: str) -> None:
        raise RuntimeError("The raylet is not registered.")

    monkeypatch.setattr(services, "get_node", never)
    began = time.monotonic()
    since = began - starting.PATIENCE_SECONDS + 0.5
    with (
        starting.waiting(since),
        pytest.raises(starting.ProcessEndedError, match="raylet did not get ready"),
    ):
        services.get_node("127.0.0.1:1", "ours")
    assert time.monotonic() - began > 0.5


def test_one_that_is_gone_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(address: str, node_id: str) -> None:
        raise RuntimeError("The raylet is not registered.")

    monkeypatch.setattr(services, "get_node", never)
    monkeypatch.setattr(starting, "_alive", lambda name: False)
    with starting.waiting(time.monotonic()):
        with pytest.raises(starting.ProcessEndedError, match="raylet ended"):
            services.get_node("127.0.0.1:1", "ours")
        # Ray's own, which takes its half minute without.
        with pytest.raises(starting.ProcessEndedError, match="gcs_server ended"):
            node.wait_for_persisted_port(str(tmp_path), "00" * 28, "gcs_server_port")


def test_who_is_asked_to_end_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(address: str, node_id: str) -> None:
        raise RuntimeError("The raylet is not registered.")

    monkeypatch.setattr(services, "get_node", never)
    monkeypatch.setattr(starting, "_alive", lambda name: True)

    def start() -> None:
        with signals_as_interrupts(), held_back(*ENDINGS), starting.waiting(time.monotonic()):
            signal.raise_signal(signal.SIGTERM)
            services.get_node("127.0.0.1:1", "ours")

    with pytest.raises(KeyboardInterrupt):
        start()


def test_one_look_for_the_raylet_is_short() -> None:
    """All patience in one call of Ray's would not notice that the raylet is gone."""
    assert float(starting.PATIENT["RAY_raylet_start_wait_time_s"]) <= 5


def test_noise_goes_to_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with starting.noise_to(str(tmp_path)):
        os.write(2, b"[W 1 1] gcs_client.cc: noise\n")
        subprocess.run(["sh", "-c", "echo noise of a child >&2"])
    os.write(2, b"heard\n")
    assert capfd.readouterr().err == "heard\n"
    assert (tmp_path / starting.NOISE).read_text().count("noise") == 2


def test_the_last_logs_are_kept_in_one_place_and_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(starting, "KEPT_BYTES", 10)
    monkeypatch.setattr(starting, "KEPT_FILES", 2)
    session = tmp_path / "s2s-1"
    logs = session / "r" / "session_2026" / "logs"
    logs.mkdir(parents=True)
    for number, name in enumerate(["oldest.log", "gcs_server.err", "raylet.err"]):
        (logs / name).write_text(f"begin of {name}, end")
        os.utime(logs / name, (number, number))
    kept = [starting.keep_logs(session) for _ in range(starting.KEPT_STARTS + 2)]
    root = tmp_path / f"seq2sweep-{os.getuid()}" / "ray-logs"
    assert sorted(root.iterdir()) == kept[-starting.KEPT_STARTS :]
    assert {path.name: path.read_text() for path in kept[-1].iterdir()} == {
        "gcs_server.err": "r.err, end",
        "raylet.err": "t.err, end",
    }
