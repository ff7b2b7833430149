"""One process at a time in a folder."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.errors import UserError
from seq2sweep.storage import locks
from seq2sweep.storage.locks import only_export, only_user, only_writer


def hold_lock(folder: Path, lock: Callable[[Path], Any], held: Any) -> None:
    with lock(folder):
        held.set()
        time.sleep(1000)


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Callable[[Callable[[Path], Any]], Any]]:
    """Has another process hold a lock of the folder."""
    context = multiprocessing.get_context("spawn")
    processes = []

    def start(lock: Callable[[Path], Any]) -> Any:
        held = context.Event()
        processes.append(context.Process(target=hold_lock, args=(tmp_path, lock, held)))
        processes[-1].start()
        assert held.wait(60)
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def test_one_process_at_a_time_works_in_a_folder(tmp_path: Path, hold: Any) -> None:
    process = hold(only_user)
    with pytest.raises(UserError, match="another process is working in"), only_user(tmp_path):
        pass
    with only_user(tmp_path, "another.lock"), only_writer(tmp_path):
        pass
    process.kill()
    process.join()
    with only_user(tmp_path):
        pass


def test_a_writer_that_is_ending_is_waited_for(
    tmp_path: Path, hold: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = hold(only_writer)
    monkeypatch.setattr(locks, "OLD_WRITER_SECONDS", 0.5)
    with pytest.raises(TimeoutError, match=r"holds .*writer\.lock"), only_writer(tmp_path):
        pass
    monkeypatch.setattr(locks, "OLD_WRITER_SECONDS", 60)
    threading.Timer(0.5, process.kill).start()
    with only_writer(tmp_path):
        assert not process.is_alive()


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, what: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(UserError, match="file system without locks"), only_user(tmp_path):
        pass


def test_the_lock_of_an_export_that_its_holder_removes_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_lock, removed = locks.try_lock, []

    def late(descriptor: int, path: Path, setting: str) -> bool:
        if not removed:
            path.unlink()
            removed.append(path)
        return try_lock(descriptor, path, setting)

    monkeypatch.setattr(locks, "try_lock", late)
    with only_export(tmp_path / "out"):
        assert [path.name for path in tmp_path.iterdir()] == [".out.lock"]
        with pytest.raises(UserError, match="is writing"), only_export(tmp_path / "out"):
            pass
    assert list(tmp_path.iterdir()) == []
