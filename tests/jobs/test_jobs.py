"""Jobs on a real Ray head that wants a token: submit, attach, kill, fail, come home."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from seq2sweep.cluster import reaper
from tests.cluster.chaos import wait_until
from tests.jobs import job_cluster
from tests.jobs.job_cluster import Head, Project


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with job_cluster.head() as started:
        yield started


@pytest.fixture
def stub(head: Head, tmp_path: Path) -> Project:
    return Project(tmp_path, head)


def ended(process: subprocess.Popen[str], status: int) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == status, output
    return output


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Read what a command says until it says that; gives what was read."""
    assert process.stdout is not None
    seen = ""
    while words not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    return seen


def has_begun(stub: Project, times: int = 1) -> None:
    wait_until(lambda: len(stub.runs) == times)


def test_the_same_is_one_job(stub: Project, head: Head) -> None:
    both = [stub.submit(), stub.submit()]
    outputs = [read_until(one, "the stub begins") for one in both]  # submitted, or attached to
    assert sorted("attached; its log" in output for output in outputs) == [False, True]

    # A client that is killed harms nothing, and Ctrl-C detaches.
    killed, detached = both
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    os.killpg(detached.pid, signal.SIGINT)
    last = ended(detached, 75)
    assert "detached. train-" in last
    assert "the stub begins" not in last, "it was said once"
    assert f"Attach: seq2sweep submit train --address {head.address}. Stop it: " in last
    assert f"RAY_API_SERVER_ADDRESS={head.address} ray job stop train-" in last
    assert "Traceback" not in last

    attached = stub.submit()
    said = read_until(attached, "the stub begins")  # its log, from the beginning
    assert "attached" in said
    stub.go()
    assert (said + ended(attached, 0)).count("the stub begins") == 1
    assert (stub.results() / "models/train/weights").read_text() == "1 made there"
    assert (stub.results() / "models/train/commit").read_text() == "unknown"

    # Found finished, also where the cluster is gone; nothing that changes a result has changed.
    stub.set({"tracking.uri": "http://127.0.0.1:1", "cluster.workers": 1})
    assert "has finished" in ended(stub.submit("--address", "http://127.0.0.1:1"), 0)
    assert stub.runs == ["1"]


def kill(head: Head, word: str) -> None:
    """SIGKILL for the head's processes with a word in their command."""
    victims = []
    for process in reaper.processes(str(head.folder)):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if word in " ".join(process.cmdline()):
                victims.append(process)
    assert victims, word
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()


def test_what_failed_and_a_job_that_is_killed_are_restarted(
    stub: Project, head: Head, thorough: bool
) -> None:
    """Killed: Ray's process above it, and then its stage, as for lack of memory."""
    stub.set({"cluster.max_failures": 1, "train.seed": 2})
    following = stub.submit()
    for times, word in enumerate(("JobSupervisor", "stub.py"), start=1):
        has_begun(stub, times)
        kill(head, word)
    output = ended(following, 1)
    assert "Traceback" not in output
    assert output.count("restart 1 of 1 (cluster.max_failures)") == 1
    last = output.splitlines()[-1]
    assert re.match(r"seq2sweep submit: train-\w+-2 was killed, by hand or by the system", last)
    assert last.endswith("submit again to restart it")

    (stub.meet / "status").write_text("2")
    stub.go()
    output = ended(stub.submit(), 2)
    assert re.search(r"(train-\w+)-3 submitted, as \1-2 failed", output)
    assert output.splitlines()[-1] == "seq2sweep submit: the stub says no"
    assert stub.runs == ["2", "2", "2"]
    if thorough:  # as the attempt before, to the end
        (stub.meet / "status").unlink()
        output = ended(stub.submit(), 0)
        assert re.search(r"(train-\w+)-4 submitted, as \1-3 failed", output)
        assert stub.runs == ["2", "2", "2", "2"]


def test_dvc_at_home_gets_what_was_trained_on_its_own_data(stub: Project, head: Head) -> None:
    ended(stub.repro("encode"), 0)
    # Only the data from home can tell that.
    data = stub.folder / "data/encoded/train.json"
    data.write_text("from home")
    ended(stub.start("-m", "dvc", "commit", "--force", "--quiet", "encode"), 0)
    stub.set({"cluster.job_environment": ["STUB_VALUE"]})
    stub.go()
    secret = "only-for-the-job-" + "4711"
    submitted = ended(stub.submit("--detach", STUB_VALUE=secret), 0)
    assert "keeps running. Attach:" in submitted
    has_begun(stub)
    output = ended(stub.repro("train"), 0)  # the same job
    assert "Stage 'encode' didn't change" in output
    assert stub.runs == ["1"]
    assert (stub.folder / "models/train/weights").read_text() == "1 from home"
    assert (stub.folder / "models/train/value").read_text() == secret
    assert "up to date" in ended(stub.repro("train"), 0)

    assert secret not in submitted + output
    assert head.environment["RAY_AUTH_TOKEN"] not in submitted + output
    logs = [path for path in (head.folder / "ray").rglob("*.log") if path.is_file()]
    assert any(path.name.startswith("job-driver-train-") for path in logs)
    assert not [path for path in logs if secret in path.read_text(errors="replace")]
    assert not list(stub.storage.glob("environment/*"))


def test_without_the_token_there_is_one_line(stub: Project) -> None:
    for token in ("", "wrong" * 10):
        output = ended(stub.submit(RAY_AUTH_TOKEN=token), 2)
        assert output.splitlines()[-1].startswith("seq2sweep submit: the job server at http://")
        assert "wants" in output.splitlines()[-1]
        assert "Traceback" not in output
    found = ended(stub.start("-m", "seq2sweep.cli", "doctor", RAY_AUTH_TOKEN="wrong"), 1)
    assert re.search(r"problem +job server +the job server at http://\S+ wants", found)
    assert "this machine, job server: put it into ~/.ray/auth_token" in found
    found = stub.start("-m", "seq2sweep.cli", "doctor")
    assert re.search(r"well +job server +\S+ answers, and takes our token", ended(found, 0))
