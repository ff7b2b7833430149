"""Chunks shared out over processes: in order, a few at a time, and nothing left behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from seq2sweep import parallel
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.parallel import (
    IN_FLIGHT,
    Processes,
    available_cpus,
    cpus_of_groups,
    sentences_at_once,
    serial,
)


def double(x: int) -> int:
    time.sleep(0.05 if x == 0 else 0)  # the first is the last to be done
    return 2 * x


def pid(x: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def refuse(x: int) -> int:
    if x == 3:
        raise UserError("line 3 is wrong")
    return x


def test_more_places_get_more_sentences_at_once() -> None:
    for places, expected in ((0, 2000), (2, 2000), (8, 8000), (500, 100_000)):
        cluster = Mock(places=lambda places=places: places)
        assert sentences_at_once(cluster, 2000) == expected
    assert sentences_at_once(serial, 2000) == sentences_at_once(Processes(64), 2000) == 2000


def test_results_come_in_the_order_of_the_items() -> None:
    expected = [2 * x for x in range(20)]
    assert list(serial(double, range(20))) == expected
    assert list(Processes(1)(double, range(20))) == expected
    assert list(Processes(2)(double, range(20))) == expected
    assert list(Processes(2)(double, [])) == []


def test_two_processes_share_the_work() -> None:
    found = set(Processes(2)(pid, range(40)))
    assert len(found) == 2
    assert os.getpid() not in found
    assert not any(psutil.pid_exists(process) for process in found)


def test_only_a_few_items_are_taken_ahead() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(1, 101):
            taken = item
            yield item

    for done, _ in enumerate(Processes(2)(double, items())):
        assert taken <= done + 2 * IN_FLIGHT


def test_an_error_of_the_function_is_raised_here_and_tells_where_it_was_raised() -> None:
    with pytest.raises(UserError, match="line 3 is wrong") as raised:
        list(Processes(2)(refuse, range(10)))
    assert "in refuse" in raised.value.__notes__[0]


def end_itself_if_empty(text: str) -> int:
    if not text:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(text)


def test_a_killed_worker_is_said_in_one_line_though_its_pipe_is_full() -> None:
    """A pipe holds 64 KiB; what is in it when its reader dies keeps a writer waiting for ever."""
    texts = ["", *["x" * 2_000_000] * 10]
    with pytest.raises(
        OperationalError, match="a process was killed, perhaps out of memory: free some and run"
    ):
        list(Processes(2)(end_itself_if_empty, texts))


def start(script: str, folder: Path) -> subprocess.Popen[str]:
    """It, in a Python of its own that finds the project and its tests."""
    path = folder / "script.py"
    path.write_text(script)
    root = Path(__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="runs Python as Linux does")
def test_workers_that_die_at_their_start_are_noticed(tmp_path: Path) -> None:
    """Killed while they import the main module, before they have read the function."""
    script = (
        "import os, signal\n"
        "from functools import partial\n"
        "from seq2sweep.parallel import Processes\n"
        "if __name__ != '__main__':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "print(list(Processes(2)(partial(max, 'x' * 2_000_000), ['a', 'b'])))\n"
    )
    running = start(script, tmp_path)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 1
    assert errors.splitlines()[-1].startswith(
        "seq2sweep.errors.OperationalError: a process was killed"
    )


def unsendable(x: int) -> object:
    return (lambda: x) if x == 3 else x


def test_a_result_that_cannot_travel_is_said_to_be_that() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match="unsendable"):
        list(Processes(2)(unsendable, range(10)))


def fail_unsendably(x: int) -> int:
    if x == 3:
        error = ValueError("no")
        error.why = lambda: x  # type: ignore[attr-defined]
        raise error
    return x


def test_an_error_that_cannot_travel_ends_its_process_with_a_status(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(OperationalError, match="a process ended with status 1: its error is above"):
        list(Processes(2)(fail_unsendably, range(10)))
    assert "ValueError: no" in capfd.readouterr().err


def test_who_stops_asking_leaves_no_process() -> None:
    results = Processes(2)(double, range(1000))
    assert next(results) == 0
    # Python's own tracker of shared resources may stay.
    children = psutil.Process().children()
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    workers = [child for child in alive if "spawn_main" in " ".join(child.cmdline())]
    assert len(workers) == 2
    results.close()  # type: ignore[attr-defined]
    assert not any(worker.is_running() for worker in workers)


def test_as_many_processes_as_this_one_may_use_cpus() -> None:
    assert Processes().count == available_cpus() >= 1


def test_a_container_gives_the_cpus_that_its_groups_allow(tmp_path: Path) -> None:
    # Version 2: a job's limit is above the group of its process, whose own is none.
    (tmp_path / "slurm/job/step").mkdir(parents=True)
    (tmp_path / "slurm/job/cpu.max").write_text("250000 100000\n")
    (tmp_path / "slurm/job/step/cpu.max").write_text("max 100000\n")
    assert [*cpus_of_groups("0::/slurm/job/step\n", tmp_path)] == [2.5]
    # Version 1, in a container that sees its own group as the top.
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    text = "9:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/docker/1\n"
    assert [*cpus_of_groups(text, tmp_path)] == [0.5]
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    assert [*cpus_of_groups(text, tmp_path)] == []


@pytest.mark.parametrize(("quotas", "cpus"), [([], 8), ([2.5, 96.0], 2), ([0.5], 1)])
def test_no_more_processes_than_a_quota_of_cpus_allows(
    quotas: list[float], cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(Path, "read_text", lambda path, errors: "0::/\n")
    monkeypatch.setattr(parallel, "cpus_of_groups", lambda text, root: iter(quotas))
    assert available_cpus() == cpus


@pytest.mark.skipif(sys.platform != "linux", reason="looks for orphans in Linux's way")
def test_a_killed_parent_takes_its_workers_along(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from seq2sweep.parallel import Processes\n"
        "from tests.test_parallel import pid\n"
        "if __name__ == '__main__':\n"
        "    for found in Processes(2)(pid, range(100_000)):\n"
        "        print(found, flush=True)\n"
    )
    parent = start(script, tmp_path)
    assert parent.stdout is not None
    workers = {int(parent.stdout.readline()) for _ in range(20)}
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(worker) for worker in workers)
