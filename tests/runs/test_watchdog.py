"""Workers that hang end themselves."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path

import psutil
import pytest

from seq2sweep.runs.watchdog import Watchdog


def _hang(log: Path, feeds: int) -> None:
    with Watchdog(0.5, log):
        pass
    time.sleep(1.0)  # one that is left bites nobody
    with Watchdog(1.5, log) as watchdog:
        for count in range(1, feeds + 1):
            time.sleep(0.3)
            watchdog.feed()
            log.with_name("fed").write_text(str(count))
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


def test_a_process_that_hangs_ends_itself_then_and_says_where(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=_hang, args=(tmp_path / "hang.log", 6)
    )
    process.start()
    process.join(60)
    assert process.exitcode == 1
    assert (tmp_path / "fed").read_text() == "6"
    said = (tmp_path / "hang.log").read_text()
    assert "Timeout" in said
    assert "in _hang" in said


Start = Callable[..., SpawnProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that ends with the test."""
    started = list[SpawnProcess]()

    def start(target: Callable[..., None], *arguments: object) -> SpawnProcess:
        context = multiprocessing.get_context("spawn")
        started.append(context.Process(target=target, args=arguments))
        started[-1].start()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.join()


def _keep_the_lock(log: Path) -> None:
    with Watchdog(0.5, log):
        ctypes.PyDLL(None).sleep(600)


def test_a_process_that_keeps_the_interpreter_lock_is_ended_and_says_where(
    start: Start, tmp_path: Path
) -> None:
    process = start(_keep_the_lock, tmp_path / "hang.log")
    process.join(60)
    assert process.exitcode == -signal.SIGALRM
    said = (tmp_path / "hang.log").read_text()
    assert "Timeout" in said
    assert "in _keep_the_lock" in said


def _work(log: Path) -> None:
    os.setpgid(0, 0)  # as a job has them all in one group
    with Watchdog(1.0, log) as watchdog:
        while not log.with_name("enough").exists():
            watchdog.feed()
            log.with_name("works").touch()
            for _ in range(20):  # an update, which is not over as soon as it is resumed
                time.sleep(0.01)


def _wait_for(path: Path, process: SpawnProcess) -> None:
    while not path.exists():
        assert process.is_alive()
        time.sleep(0.02)


def test_a_process_that_was_suspended_goes_on(start: Start, tmp_path: Path) -> None:
    """As by `scontrol suspend`: longer than it may take for an update."""
    works = tmp_path / "works"
    process = start(_work, tmp_path / "hang.log")
    _wait_for(works, process)
    assert process.pid is not None
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(2.0)
    works.unlink()
    os.killpg(process.pid, signal.SIGCONT)
    _wait_for(works, process)
    (tmp_path / "enough").touch()
    process.join(60)
    assert process.exitcode == 0
    assert (tmp_path / "hang.log").read_text() == ""


def test_whoever_is_killed_leaves_no_process(start: Start, tmp_path: Path) -> None:
    process = start(_work, tmp_path / "hang.log")
    _wait_for(tmp_path / "works", process)
    (beside,) = psutil.Process(process.pid).children()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a worker may take them to save
        beside.send_signal(number)
    time.sleep(0.3)
    assert beside.status() != psutil.STATUS_ZOMBIE
    process.kill()
    while beside.is_running() and beside.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.02)


def test_a_watchdog_takes_its_process_along(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    with Watchdog(1000, tmp_path / "hang-0.log"):
        (beside,) = set(psutil.Process().children()) - before
    assert not beside.is_running()


def test_what_a_watchdog_has_said_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "hang-0.log"
    for said in ("first", "second"):
        log.write_text(said)
        with Watchdog(1000, log):
            assert log.read_text() == ""
    with Watchdog(1000, log):
        pass  # that of one who had nothing to say is used again
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "hang-0.log": "",
        "hang-0.1.log": "first",
        "hang-0.2.log": "second",
    }
