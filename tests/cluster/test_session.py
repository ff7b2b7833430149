"""Starting, joining and leaving Ray, and what fits in it."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
import ray
from ray._private.runtime_env import uv_runtime_env_hook

from seq2sweep.cluster import local_cluster as local_ray
from seq2sweep.cluster import ray_internals, reaper, session, signals
from seq2sweep.cluster.session import Node, cpus_per_worker, places, while_waiting
from seq2sweep.config import ClusterConfig
from seq2sweep.errors import OperationalError, UserError
from tests.clone import copy_project
from tests.cluster.chaos import LONGEST_WAIT, wait_until

# --- what fits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machines", "cpus", "gpus", "expected"),
    [
        ([Node(2, 0)], 1, 0, 2),
        ([Node(2, 0)], 1.5, 0, 1),
        ([Node(3, 0), Node(3, 0)], 2, 0, 2),
        ([Node(8, 2)], 1, 1, 2),
        ([Node(8, 2), Node(64, 0)], 1, 1, 2),
        ([Node(8, 1)], 1, 0.25, 4),
        ([Node(8, 8)], 0, 0.6, 8),
        ([Node(8, 3), Node(8, 2)], 1, 0.4, 10),
        ([Node(8, 1.7)], 1, 0.3, 5),
        ([Node(8, 0.3)], 1, 0.1, 3),
        ([Node(8, 3)], 1, 2, 1),
        ([Node(0.3, 0)], 0.1, 0, 3),
        ([Node(2, 0)], 1, 1, 0),
        ([Node(2, 0)], 4, 0, 0),
        ([], 1, 0, 0),
    ],
)
def test_places_count_whole_processes_on_each_machine(
    machines: list[Node], cpus: float, gpus: float, expected: int
) -> None:
    assert places(machines, cpus, gpus) == expected


@pytest.mark.parametrize(
    ("workers", "machines", "expected"),
    [
        (2, [Node(2, 0)], 1),
        (1, [Node(8, 0)], 8),
        (3, [Node(8, 0)], 2),
        (2, [Node(8, 0), Node(4, 0)], 4),
        (4, [Node(8, 0), Node(4, 0)], 2),
    ],
)
def test_the_cpus_are_shared_out(
    local: ClusterConfig, workers: int, machines: list[Node], expected: int
) -> None:
    assert cpus_per_worker(replace(local, workers=workers), machines) == expected


def test_machines_without_enough_gpus_give_no_cpus(local: ClusterConfig) -> None:
    config = replace(local, workers=4, gpus_per_worker=1)
    assert cpus_per_worker(config, [Node(64, 0), Node(16, 4)]) == 4


@pytest.mark.parametrize(
    ("workers", "least", "machines", "expected"),
    [
        (8, None, [Node(64, 8), Node(64, 8)], 8),  # one machine holds them all
        (8, 1, [Node(48, 4)], 12),  # four of them, not one with 48
        (8, None, [Node(64, 8), Node(16, 8)], 8),
        (16, None, [Node(64, 8), Node(16, 8)], 2),
        (20, 1, [Node(64, 8), Node(16, 8)], 2),  # sixteen of them, not ten with 8
        (16, None, [Node(0, 1), Node(64, 8), Node(64, 8)], 8),  # a head that only leads
        (2, None, [Node(2, 4)], 1),
        (2, None, [Node(64, 0), Node(16, 2)], 8),
    ],
)
def test_a_worker_takes_no_more_cpus_than_there_are_for_its_gpu(
    local: ClusterConfig, workers: int, least: int | None, machines: list[Node], expected: int
) -> None:
    config = replace(local, workers=workers, min_workers=least, gpus_per_worker=1)
    assert cpus_per_worker(config, machines) == expected


@pytest.mark.parametrize(("used", "idle"), [(8, 0), (6, 2), (9, 0), (7.6, 0), (0, 8)])
def test_gpus_that_nothing_takes_are_told_of(
    monkeypatch: pytest.MonkeyPatch, used: float, idle: int
) -> None:
    monkeypatch.setattr(session, "nodes", lambda: [Node(64, 4), Node(64, 4)])
    told = session.idle_gpus(used, "these keys")
    if not idle:
        assert told is None
    else:
        assert told == f"{idle} of the cluster's 8 GPUs will be idle: see these keys"


def test_a_training_names_its_own_keys(
    local: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "nodes", lambda: [Node(64, 4)])
    told = str(session.idle_in_training(replace(local, workers=3, gpus_per_worker=1)))
    assert told.startswith("1 of the cluster's 4 GPUs")
    assert told.endswith("see cluster.workers and cluster.gpus_per_worker")
    monkeypatch.setattr(session, "nodes", lambda: [Node(64, 0)])
    assert session.idle_in_training(local) is None


@pytest.mark.parametrize(
    ("changes", "has_room_for"),
    [
        ({"workers": 3}, 2),
        ({"cpus_per_worker": 2}, 1),
        ({"cpus_per_worker": 4}, 0),
        ({"gpus_per_worker": 1}, 0),
    ],
)
def test_what_does_not_fit_is_said_at_once(
    local: ClusterConfig, changes: dict[str, Any], has_room_for: int
) -> None:
    with pytest.raises(UserError) as caught:
        cpus_per_worker(replace(local, **changes), [Node(2, 0)])
    message = str(caught.value)
    assert "1 node of 2 CPUs, 0 GPUs" in message
    assert f"room for {has_room_for} of them" in message
    for key in ("cluster.workers", "cluster.cpus_per_worker", "cluster.gpus_per_worker"):
        assert key in message


def test_nodes_are_those_of_the_cluster(cluster: None) -> None:
    assert session.nodes() == [Node(2, 0)]


def test_a_node_that_is_to_be_taken_away_has_nothing_free(
    cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray starts nothing there, and would wait for ever."""
    assert len(session.free_nodes()) == 1
    leaving = {ray.get_runtime_context().get_node_id(): 0}
    monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", lambda: leaving)
    assert session.free_nodes() == []


# --- waiting -------------------------------------------------------------------------------------


def test_waiting_ticks_meanwhile_and_once_after_the_end() -> None:
    done: list[str] = []
    ticks: list[int] = []

    def work() -> str:
        time.sleep(0.3)
        done.append("yes")
        return "result"

    assert while_waiting(work, lambda: ticks.append(len(done)), every=0.05) == "result"
    assert ticks[0] == 0
    assert ticks[-1] == 1


def test_waiting_raises_what_the_work_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        while_waiting(lambda: 1 // 0, lambda: None)


@pytest.mark.parametrize(
    "ends",
    [
        KeyboardInterrupt(),
        OSError("no bucket"),
        OperationalError("no bucket"),
        UserError("a damaged line"),
    ],
)
@pytest.mark.parametrize("heard", [True, False])
def test_last_words_are_waited_for_where_there_is_somebody_to_say_them(
    heard: bool, ends: BaseException
) -> None:
    interrupted, done = threading.Event(), threading.Event()
    ticks: list[bool] = []

    def tick() -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise ends
        ticks.append(done.is_set())
        if len(ticks) < 3:
            raise [OSError, UserError][len(ticks) % 2]("still no bucket")
        done.set()

    with pytest.raises(type(ends)) as raised:
        while_waiting(lambda: done.wait(60), tick, can_hear=lambda: heard, every=0.05)
    assert raised.value is ends
    assert done.is_set() == heard
    assert bool(ticks) == heard
    done.set()


def test_nobody_is_asked_when_ray_has_died() -> None:
    died, ask, done = session.RayDiedError("Ray's raylet ended"), Mock(), threading.Event()
    with pytest.raises(session.RayDiedError):
        while_waiting(done.wait, Mock(side_effect=died), ask, lambda: True, every=0.05)
    ask.assert_not_called()
    done.set()


def test_an_interrupt_during_cleanup_leaves_out_nothing_of_it() -> None:
    cleaned_up: list[str] = []

    def clean_up() -> None:
        for number in signals.INTERRUPTS:
            signal.raise_signal(number)
        cleaned_up.append("all")

    with signals.signals_as_interrupts(), contextlib.ExitStack() as stack:
        stack.callback(clean_up)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert cleaned_up == ["all"]


def test_an_interrupt_is_heard_again_by_who_waits_for_the_end() -> None:
    done, ticks = threading.Event(), []

    def tick() -> None:
        ticks.append(1)
        signal.raise_signal(signal.SIGINT)

    with signals.signals_as_interrupts(), pytest.raises(KeyboardInterrupt):
        while_waiting(lambda: done.wait(60), tick, can_hear=lambda: True, every=0.05, last_words=5)
    done.set()
    assert len(ticks) == 2


class Asked:
    """Work that ends when it is asked to, over a storage that fails so many times."""

    def __init__(self, failures: float) -> None:
        self.failures, self.calls, self.done = failures, 0, threading.Event()

    def __call__(self) -> bool:
        self.calls += 1
        if self.calls > self.failures:
            self.done.set()
        return self.done.is_set()

    def interrupted(self, last_words: float) -> None:
        ticks = itertools.count()

        def tick() -> None:
            if next(ticks) == 0:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            while_waiting(
                lambda: self.done.wait(60),
                tick,
                self,
                lambda: True,
                every=0.01,
                last_words=last_words,
            )


def test_a_request_that_the_storage_refused_is_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = Asked(failures=3)
    asked.interrupted(last_words=60)
    assert (asked.calls, asked.done.is_set()) == (4, True)
    assert capsys.readouterr().out == ""


def test_a_request_that_was_never_heard_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = Asked(failures=math.inf)
    asked.interrupted(last_words=0.5)
    assert asked.calls > 1
    assert capsys.readouterr().out == f"{session.UNHEARD}\n"
    asked.done.set()


def test_workers_that_do_not_save_in_time_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()

    def tick() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        while_waiting(
            lambda: ended.wait(60), tick, lambda: True, lambda: True, every=0.01, last_words=0.1
        )
    assert capsys.readouterr().out == f"{session.UNSAVED}\n"
    ended.set()


def test_a_storage_that_holds_the_request_holds_no_interrupt() -> None:
    """A client of a bucket that is silent comes back after minutes, and looks at no signal."""
    answered, ticks = threading.Event(), itertools.count()
    asked_by: list[threading.Thread] = []

    def ask() -> bool:
        asked_by.append(threading.current_thread())
        return answered.wait(20)

    def tick() -> None:
        next(ticks)
        signal.raise_signal(signal.SIGINT)

    with signals.signals_as_interrupts(), pytest.raises(KeyboardInterrupt):
        while_waiting(lambda: answered.wait(20), tick, ask, lambda: True, every=0.05)
    assert next(ticks) == 2
    assert len(asked_by) == 1, "while one request is under way there is no other"
    assert asked_by[0].is_alive()
    answered.set()


def test_what_the_request_raises_is_raised() -> None:
    tick = Mock(side_effect=[KeyboardInterrupt])
    with pytest.raises(ZeroDivisionError):
        while_waiting(lambda: time.sleep(2), tick, lambda: 1 // 0 > 0, every=0.05)


# --- joining -------------------------------------------------------------------------------------


@pytest.fixture
def nobody_there() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("address", ["nowhere.invalid:6379", "ray://head:10001", "head"])
def test_an_address_that_is_none_is_a_user_error(local: ClusterConfig, address: str) -> None:
    with pytest.raises(UserError, match=r"^cluster\.address") as caught:
        session._check_reachable(address, "cluster.address")
    assert "\n" not in str(caught.value)


def test_a_cluster_that_is_down_is_a_user_error(nobody_there: str) -> None:
    with pytest.raises(UserError, match=rf"no Ray cluster .* at {nobody_there}.*null to use"):
        session._check_reachable(nobody_there, "cluster.address")


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "nowhere.invalid:6379"])
def test_the_variable_is_named_where_it_has_the_address(
    local: ClusterConfig, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Set for `ray job submit`, such as the first."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with (
        pytest.raises(UserError, match=r"^RAY_ADDRESS.* unset it to use this machine$") as caught,
        session.ray_session(local),
    ):
        pytest.fail("it began")
    assert address in str(caught.value)


def run_script(body: str, **environment: str) -> subprocess.Popen[str]:
    """A Python process of its own with `config`, a ClusterConfig for this machine."""
    head = (
        "from seq2sweep import presets\n"
        "from seq2sweep.cluster import session\n"
        "from seq2sweep.cluster.session import *\n"
        "import ray, time\n"
        "config = presets.load('phrasebook').config.cluster\n"
    )
    return subprocess.Popen(
        [sys.executable, "-u", "-c", head + body],
        stdout=subprocess.PIPE,
        text=True,
        # What a Ray in this process has set there for its own children.
        env={k: v for k, v in os.environ.items() if k != "RAY_AUTH_MODE"} | environment,
        # Tests may be started by nohup, which would have their children ignore it as well.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        start_new_session=True,
    )


def test_a_cluster_of_another_python_is_told_with_both_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray says them below its first line; starting the cluster or another address is no mend."""
    versions = "    Ray: {0}\n    Python: 3.11.{1}\n"
    started, here = (versions.format(ray.__version__, patch) for patch in (4, 9))
    said = f"Version mismatch: The cluster was started with:\n{started}This process was:\n{here}"
    monkeypatch.setattr(session, "_check_reachable", lambda *about: None)
    monkeypatch.setattr(session, "check_own_code", lambda: None)
    monkeypatch.setattr(session.ray, "init", Mock(side_effect=RuntimeError(said)))
    monkeypatch.setattr(session.ray, "shutdown", lambda: None)  # other tests' Ray goes on
    with pytest.raises(UserError) as caught, contextlib.ExitStack() as stack:
        session._join("10.0.0.1:6379", "cluster.address", stack)
    told = str(caught.value)
    assert told.startswith("cluster.address: Version mismatch: ")
    assert "Python: 3.11.4 This" in told
    assert told.endswith(
        "Python: 3.11.9: have the same Python, and the packages of constraints.txt, here and on "
        "all nodes"
    )


def test_a_running_cluster_is_joined_and_left_alone(cluster: None) -> None:
    """By cluster.address, and as a submitted job, which finds its cluster in RAY_ADDRESS."""
    address = ray.get_runtime_context().gcs_address
    body = (
        "import os\n"
        "from dataclasses import replace\n"
        "def join(config):\n"
        "    with ray_session(config):\n"
        "        print(ray.get_runtime_context().gcs_address, nodes())\n"
        "    print(ray.is_initialized())\n"
        f"join(replace(config, address='{address}'))\n"
        f"os.environ['RAY_ADDRESS'] = '{address}'\n"
        "join(config)\n"
    )
    output, _ = run_script(body).communicate(timeout=LONGEST_WAIT)
    assert output.splitlines() == [f"{address} [Node(cpus=2.0, gpus=0.0)]", "False"] * 2
    assert session.nodes() == [Node(2, 0)]


def test_a_cluster_that_wants_another_token_is_a_user_error(cluster: None) -> None:
    address = ray.get_runtime_context().gcs_address
    script = run_script(
        "try:\n"
        f"    session._check_reachable('{address}', 'cluster.address')\n"
        "except session.UserError as error:\n"
        "    print(error)\n",
        RAY_AUTH_TOKEN="0" * 64,
    )
    output, _ = script.communicate(timeout=LONGEST_WAIT)
    assert output.startswith(f"cluster.address: the Ray cluster at {address} does not take")
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("inner/.env", "harmless", "inner/.env (by its name)"),
        ("code.yaml", "\nurl: https://me:hunter2@host", "code.yaml (an address with a user or "),
        ("__pycache__/.env", "not uploaded", None),
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_code_with_a_secret_is_not_uploaded_to_a_cluster_that_is_joined(
    name: str, text: str, said: str | None, linked: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Ray takes all that lies in the package's folder, and follows links out of it."""
    package = tmp_path / "package"
    there = tmp_path / "elsewhere" if linked else package
    (there / name).parent.mkdir(parents=True)
    (there / name).write_text(text)
    if linked:
        package.mkdir()
        (package / "link").symlink_to(there)
    (package / "code.py").write_text("code = 1\n")
    monkeypatch.setattr(local_ray.seq2sweep, "__path__", [str(package)])
    monkeypatch.setattr(session, "_check_reachable", lambda *about: None)
    joined = Mock()
    monkeypatch.setattr(ray, "init", joined)
    monkeypatch.setattr(ray, "shutdown", Mock())
    with contextlib.ExitStack() as stack:
        if said is None:
            session._join("host:6379", "cluster.address", stack)
            joined.assert_called_once()
            return
        with pytest.raises(UserError) as refused:
            session._join("host:6379", "cluster.address", stack)
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)
    joined.assert_not_called()


@pytest.mark.parametrize("joins", [True, False])
def test_under_uv_run_workers_get_nothing_but_the_code(
    monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    """Ray would upload the folder of the project, and have uv make an environment of it."""
    monkeypatch.setattr(uv_runtime_env_hook, "_get_uv_run_cmdline", lambda: ["uv", "run", "a.py"])
    monkeypatch.setattr(session, "_check_reachable", lambda *about: None)
    monkeypatch.setattr(local_ray, "check_private", lambda address: None)
    monkeypatch.setattr(ray, "get_runtime_context", Mock())
    monkeypatch.setattr(ray, "shutdown", Mock())
    used = []

    def init(*, runtime_env: dict[str, Any], **options: Any) -> None:
        used.append(ray._private.worker._maybe_modify_runtime_env(runtime_env, False))

    monkeypatch.setattr(ray, "init", init)
    if joins:
        with contextlib.ExitStack() as stack:
            session._join("host:6379", "cluster.address", stack)
    else:
        local_ray._init("folder")
    assert used[0].keys() - {"env_vars"} == {"py_modules", "excludes"}


def test_variables_for_ray_do_not_stay_and_the_users_own_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OURS", raising=False)
    monkeypatch.setenv("THEIRS", "kept")
    with local_ray.environment({"OURS": "1", "THEIRS": "2"}):
        assert (os.environ["OURS"], os.environ["THEIRS"]) == ("1", "kept")
    assert "OURS" not in os.environ
    assert os.environ["THEIRS"] == "kept"


# --- starting ------------------------------------------------------------------------------------


class Starts:
    """In place of Ray: processes and a log for each start, and an error where one is given."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.folders: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, folder: str) -> None:
        self.folders.append(folder)
        logs = Path(folder) / local_ray.INNER / "session_2026" / "logs"
        logs.mkdir(parents=True)
        (logs / "raylet.err").write_text(f"start {len(self.folders)}")
        self.processes.append(subprocess.Popen(["sleep", "1000"]))
        if (error := self.errors.pop(0)) is not None:
            raise error

    def left(self) -> list[str]:
        """Folders, and processes of a session that live on."""
        assert {process.wait(30) for process in self.processes} == {-signal.SIGKILL}
        return [folder for folder in self.folders if Path(folder).exists()]


@pytest.fixture
def _no_ray_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Ray of the other tests in this process is not to be shut down with what is started."""
    monkeypatch.setattr("ray._private.worker._global_node", None)
    monkeypatch.setattr("ray.shutdown", lambda: None)
    # Nor is its token to be forgotten.
    monkeypatch.setattr(ray_internals, "read_token_again", lambda: None)


@pytest.mark.usefixtures("_no_ray_here")
def test_a_start_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], temporary: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    failures = [Exception("The current node timed out.\nSee the logs.") for _ in range(3)]
    starts = Starts(*failures, None)
    monkeypatch.setattr(local_ray, "_init", starts)
    with local_ray.local_ray():
        *failed, last = starts.processes
        assert [process.wait(30) for process in failed] == [-signal.SIGKILL] * 3
        assert last.poll() is None
        assert len({*starts.folders}) == 4
    assert starts.left() == []
    said = r"Ray did not start in \d+s \(load [\d.]+ on \d+ CPUs\): The current node timed out\."
    lines = capsys.readouterr().out.splitlines()
    for number, line in enumerate(lines, start=1):
        assert re.fullmatch(rf"{said}; retry {number} of 3", line)
    assert len(lines) == 3
    (folder,) = temporary.iterdir()
    assert [*folder.rglob("*")] == [folder / "ray-logs"]


@pytest.mark.usefixtures("_no_ray_here")
def test_a_start_that_always_fails_is_a_failure_of_one_line(
    monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    starts = Starts(*[ConnectionError("before")] * 3, TimeoutError())
    monkeypatch.setattr(local_ray, "_init", starts)
    with pytest.raises(OperationalError) as caught, local_ray.local_ray():
        pytest.fail("it began")
    assert starts.left() == []
    (kept,) = temporary.glob("seq2sweep-*/ray-logs/*")
    assert re.fullmatch(
        rf"Ray did not start in \d+s \(load [\d.]+ on \d+ CPUs\): TimeoutError; its logs are in "
        rf"{kept}; free the machine and run again",
        str(caught.value),
    )
    assert (kept / "raylet.err").read_text() == "start 4"


# --- leaving no trace ----------------------------------------------------------------------------

BUSY = (
    "    endless = ray.remote(lambda: time.sleep(1000)).remote()\n"
    "    ray.get(ray.remote(num_cpus=0)(lambda: 1).remote())\n"
    "    print(session.ray_internals.session_folder())\n"
)


def said_folder(lines: Iterable[str]) -> Path:
    """The folder that a script says, after what is said while Ray starts on a busy machine."""
    return Path(next(line for line in lines if not line.startswith("Ray ")).strip())


ANSWER = (
    "    try:\n"
    f"{textwrap.indent(BUSY, '    ')}"
    "        time.sleep(1000)\n"
    "    except KeyboardInterrupt:\n"
    "        time.sleep(2)\n"
    "        print(ray.get(ray.remote(num_cpus=0)(lambda: 'alive').remote()))\n"
    "        raise\n"
)
ANSWERING = f"with ray_session(config):\n{ANSWER}"
EDITED = f"""
from pathlib import Path
import seq2sweep

def is_edited():
    from seq2sweep import console
    return hasattr(console, "EDITED")

file = Path(seq2sweep.__path__[0]) / "console.py"
file.with_name(".gitignore").write_text(file.name)
with ray_session(config):
    file.write_text(file.read_text() + "EDITED = True\\n")
    print(ray.get(ray.remote(is_edited).remote()))
{ANSWER.replace("        raise", "        raise ValueError")}"""


@pytest.mark.thorough
def test_sigterm_to_the_whole_group_is_the_drivers_to_answer() -> None:
    script = run_script(ANSWERING)
    folder, processes = started(script)
    answers(script, signal.SIGTERM, folder, processes)


def answers(
    script: subprocess.Popen[str],
    number: signal.Signals,
    folder: str,
    processes: list[psutil.Process],
    status: int = -signal.SIGINT,
) -> None:
    """To a signal that its whole group gets, as a closed terminal, systemd and Slurm send it, and
    its reaper, as the last two do: Ray must live until the driver has ended, whatever it raises.
    status: of the driver then."""
    assert len(processes) > 5
    reaper_of(script).send_signal(number)
    os.killpg(script.pid, number)
    said, _ = script.communicate(timeout=LONGEST_WAIT)
    assert said.split() == ["alive"]
    assert script.returncode == status
    assert psutil.wait_procs(processes, timeout=30)[1] == []
    assert not Path(folder).exists()


def reaper_of(script: subprocess.Popen[str]) -> psutil.Process:
    children = psutil.Process(script.pid).children()
    (found,) = [child for child in children if is_reaper(child)]
    return found


def is_reaper(process: psutil.Process) -> bool:
    """Of this project, or of a copy."""
    return any(each.endswith("/seq2sweep/cluster/reaper.py") for each in process.cmdline())


def started(script: subprocess.Popen[str]) -> tuple[str, list[psutil.Process]]:
    """The folder of a script's session, and the processes in it once it says that it is up."""
    assert script.stdout is not None
    folder = str(said_folder(script.stdout).parents[1])

    def finds_all_and_nothing_else() -> bool:
        try:
            children = psutil.Process(script.pid).children(recursive=True)
            expected = {child for child in children if not is_reaper(child)}
        except psutil.NoSuchProcess:
            return False
        return set(reaper.processes(folder)) == expected

    # Ray may be about to start another one.
    wait_until(finds_all_and_nothing_else)
    return folder, reaper.processes(folder)


SERVERS = {"raylet", "gcs_server", "ray::DashboardAgent"}


def title(process: psutil.Process) -> str | None:
    """None: it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.name())
    return None


def test_a_killed_driver_takes_its_ray_along_and_no_other(temporary: Path) -> None:
    """Which still answers when its terminal is closed, and whose workers run the code of its start.

    All of the code, also in a job, whose own upload this Ray does not have.
    """
    copy_project(temporary / "clone", "src")
    job = {"runtime_env": {"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"}}
    killed, other = (
        run_script(ANSWERING),
        run_script(
            EDITED,
            PYTHONPATH=str(temporary / "clone/src"),
            RAY_JOB_CONFIG_JSON_ENV_VAR=json.dumps(job),
        ),
    )
    reader = None
    try:
        folder, processes = started(killed)
        assert other.stdout is not None
        lines = (line for line in other.stdout if not line.startswith("Ray "))
        assert next(lines, None) == "False\n"
        others_folder, others = started(other)
        # Of its workers Ray itself ends those that have nothing to do.
        servers = [process for process in others if title(process) in SERVERS]
        titles = {name: process for process in processes if (name := title(process))}
        assert titles.keys() >= SERVERS
        # One that is stopped must go as well: it cannot notice that the others are gone.
        titles["ray::DashboardAgent"].suspend()
        # The user reads a log in the folder: that is no process of Ray.
        log = next(Path(folder).rglob("raylet.out"))
        reader = subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.DEVNULL)
        # As where a job is ended, which has SIGKILL follow.
        reaper_of(killed).terminate()
        killed.kill()
        killed.wait()
        wait_until(lambda: not Path(folder).exists())
        assert psutil.wait_procs(processes, timeout=30)[1] == []
        assert reader.poll() is None
        assert Path(others_folder).exists()
        assert len(servers) == len(SERVERS)
        assert all(process.is_running() for process in servers)
        answers(other, signal.SIGHUP, others_folder, others, status=1)
    finally:
        if reader is not None:
            reader.kill()
        for script in (killed, other):
            script.terminate()
            script.communicate(timeout=LONGEST_WAIT)


@pytest.mark.parametrize("seconds", [0.1, pytest.param(0.7, marks=pytest.mark.thorough), 1.5])
def test_a_driver_killed_while_ray_starts_leaves_nothing(temporary: Path, seconds: float) -> None:
    """Before Ray has answered nobody but the guard knows of it."""
    script = run_script("with ray_session(config):\n    time.sleep(1000)\n", TMPDIR=str(temporary))
    wait_until(lambda: any(temporary.iterdir()))
    (folder,) = temporary.iterdir()
    time.sleep(seconds)
    script.kill()
    script.communicate()
    wait_until(lambda: not folder.exists())
    assert reaper.processes(str(folder)) == []
