"""Checkpoints written in the background, storage that fails for a while, workers that hang."""

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
import torch

from seq2sweep.cluster.watchdog import Watchdog
from seq2sweep.errors import UserError
from seq2sweep.runs import journal
from seq2sweep.runs.async_writer import CheckpointWriter
from seq2sweep.runs.journal import Recorder
from seq2sweep.storage import locks
from seq2sweep.storage.locks import only_user, only_writer
from seq2sweep.storage.retry import with_retries
from seq2sweep.train import checkpointing
from seq2sweep.train.checkpointing import Snapshot
from seq2sweep.train.events import Logged


def snapshot() -> Snapshot:
    ones = {"w": torch.ones(3)}
    return Snapshot(ones, {"w|step": torch.ones(())}, {"format": checkpointing.FORMAT})


class Failing:
    """Raises errors with these numbers, one a call, then does its work."""

    def __init__(self, work: Callable[[], object], *numbers: int) -> None:
        self.work, self.numbers, self.calls = work, list(numbers), 0

    def __call__(self) -> object:
        self.calls += 1
        if self.numbers:
            number = self.numbers.pop(0)
            raise OSError(number, os.strerror(number))
        return self.work()


def test_storage_that_fails_for_a_while_is_waited_for() -> None:
    work = Failing(lambda: "done", errno.EIO, errno.ESTALE, errno.ENOENT)
    assert with_retries(work, pauses=(0, 0, 0)) == "done"
    assert work.calls == 4
    with pytest.raises(OSError, match="Stale") as caught:
        with_retries(Failing(lambda: "done", errno.EIO, errno.ESTALE), pauses=(0,))
    assert caught.value.errno == errno.ESTALE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_what_somebody_must_mend_is_not_waited_for(number: int) -> None:
    work = Failing(lambda: "done", number)
    with pytest.raises(OSError, match=r"\[Errno"):
        with_retries(work, pauses=(1000,))
    assert work.calls == 1


def test_waiting_for_a_lock_in_vain_is_not_done_again() -> None:
    """only_writer's TimeoutError is an OSError, but none of the storage."""
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise TimeoutError("another worker holds the lock")

    with pytest.raises(TimeoutError, match="holds the lock"):
        with_retries(work, pauses=(1000,))
    assert len(calls) == 1


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """What is written is what was captured, one at a time, in order."""
    weights = torch.zeros(3)
    optimizer = torch.optim.Adam([weights])
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(weights)
    let_go, order = threading.Event(), []

    def slowly() -> None:
        assert let_go.wait(30)
        order.append("first is written")

    def capture() -> Snapshot:
        order.append("captured")
        return checkpointing.capture(model, optimizer, checkpointing.Progress(), {})

    with CheckpointWriter() as writer:
        writer.submit(capture, tmp_path / "step-1", slowly)
        with torch.no_grad():
            model.w += 1  # the next update
        writer.check()
        assert order == ["captured"]
        threading.Timer(0.1, let_go.set).start()
        writer.submit(capture, tmp_path / "step-2")
        assert order == ["captured", "first is written", "captured"]
    for name, expected in (("step-1", 0.0), ("step-2", 1.0)):
        checkpointing.verify(tmp_path / name)
        saved = checkpointing.load_file(tmp_path / name / "model.safetensors")
        assert saved["w"].tolist() == [expected] * 3


def test_a_checkpoint_that_fails_is_heard_of(tmp_path: Path) -> None:
    writer = CheckpointWriter(pauses=())
    writer.submit(snapshot, tmp_path / "nowhere" / "step-1")
    assert writer._under_way is not None
    writer._under_way.exception(timeout=30)
    with pytest.raises(FileNotFoundError):
        writer.check()
    writer.check()  # said once
    writer.submit(snapshot, tmp_path / "nowhere" / "step-2")
    with pytest.raises(FileNotFoundError):
        writer.wait()
    with pytest.raises(FileNotFoundError), CheckpointWriter(pauses=()) as another:
        another.submit(snapshot, tmp_path / "nowhere" / "step-3")
    assert not (tmp_path / "nowhere").exists()  # storage that is gone is not made up


def test_the_first_error_is_the_one_that_is_raised(tmp_path: Path) -> None:
    def fail() -> None:
        with CheckpointWriter(pauses=()) as writer:
            writer.submit(snapshot, tmp_path / "nowhere" / "step-1")
            raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        fail()


def test_the_journal_is_written_through_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torn lines are written over; nothing stands twice."""
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    recorder = Recorder(tmp_path / "journal.jsonl")
    write, calls, seen = os.pwrite, [], []

    def unreliable(descriptor: int, line: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) % 3 == 1:
            write(descriptor, line[:7], offset)
            raise OSError(errno.EIO, "the disk is away")
        if len(calls) % 3 == 2:
            write(descriptor, line, offset)
            seen.extend(journal.read(tmp_path / "journal.jsonl", offset)[0])
            raise OSError(errno.ETIMEDOUT, "the answer was lost")
        return write(descriptor, line, offset)

    monkeypatch.setattr(os, "pwrite", unreliable)
    for step in range(1, 6):
        recorder.append(Logged(step, {"loss": 10.0**step}))
    recorder.close()
    assert len(calls) == 15
    entries, _ = journal.read(tmp_path / "journal.jsonl")
    assert [(entry["step"], entry["loss"]) for entry in entries] == [
        (step, 10.0**step) for step in range(1, 6)
    ]
    assert entries == seen  # a reader in between saw what it would see later


def test_a_full_disk_costs_the_journal_nothing(small_disk: Path) -> None:
    path, filler = small_disk / "journal.jsonl", small_disk / "filler"
    recorder = Recorder(path)
    filler.write_bytes(bytes(450_000))

    def fill() -> None:
        for step in range(recorder.last.get("logged", 0) + 1, 100_000):
            recorder.append(Logged(step, {"loss": 1.0 / step}))

    with pytest.raises(OSError, match="space"):
        fill()
    reached = recorder.last["logged"]
    assert reached > 100
    filler.unlink()
    # The same worker may go on, and so may the next one, which cuts a torn line off.
    recorder.append(Logged(reached + 1, {"loss": 0.0}))
    recorder.close()
    recorder = Recorder(path)
    assert recorder.last["logged"] == reached + 1
    with pytest.raises(OSError, match="space"):
        fill()
    recorder.close()
    assert [entry["step"] for entry in journal.read(path)[0]] == list(
        range(1, recorder.last["logged"] + 1)
    )


def test_a_damaged_line_of_the_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"kind": "logged", "step": 1, "time": 0}\n\x00\x00\x00\n')
    with pytest.raises(UserError, match=r"journal\.jsonl has a damaged line .* remove that line"):
        journal.read(path)


# --- processes -----------------------------------------------------------------------------------


def _hang(log: Path, feeds: int) -> None:
    with Watchdog(1.5, log) as watchdog:
        for count in range(1, feeds + 1):
            time.sleep(0.3)
            watchdog.feed()
            log.with_name("fed").write_text(str(count))
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


def test_a_process_that_hangs_ends_itself_and_says_where(tmp_path: Path) -> None:
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


def _leave(log: Path) -> None:
    with Watchdog(2.0, log):
        pass
    time.sleep(3.0)


def test_a_watchdog_that_is_left_bites_nobody(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_leave, args=(tmp_path / "hang.log",))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert (tmp_path / "hang.log").read_text() == ""


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


def _hold(folder: Path, lock: Callable[[Path], Any], held: Any) -> None:
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
        processes.append(context.Process(target=_hold, args=(tmp_path, lock, held)))
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
