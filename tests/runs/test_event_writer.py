"""Journal and checkpoints of a training, written as its events come."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from seq2sweep.config import Config
from seq2sweep.errors import OperationalError
from seq2sweep.runs import event_writer
from seq2sweep.runs.event_writer import SAVE_SECONDS, EventWriter
from seq2sweep.runs.journal import entries
from seq2sweep.runs.layout import JOURNAL_NAME, Retention, checkpoint_name, interrupted_name
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.watchdog import Watchdog
from seq2sweep.storage.retry import PAUSES
from seq2sweep.train import checkpointing
from seq2sweep.train.checkpointing import Snapshot
from seq2sweep.train.events import CheckpointDue, Finished, Interrupted
from seq2sweep.train.metrics import Progress
from tests.cluster.checkpoints import snapshot


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """What is written is what was captured, one at a time, in order."""
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([model.w])
    let_go, order = threading.Event(), []

    class Slow(RunStore):
        def keep(self, checkpoint: Path) -> None:
            assert let_go.wait(30)
            order.append(f"{checkpoint.name} is kept")

    def capture() -> Snapshot:
        order.append("captured")
        return checkpointing.capture(model, optimizer, Progress(), {})

    first, second = checkpoint_name(4), checkpoint_name(8)
    with EventWriter(Slow(tmp_path)) as writer:
        writer.write(CheckpointDue(4, {}, capture))
        with torch.no_grad():
            model.w += 1  # the next update
        writer.check()
        assert order == ["captured"]
        threading.Timer(0.1, let_go.set).start()
        writer.write(CheckpointDue(8, {}, capture))
        assert order[:3] == ["captured", f"{first} is kept", "captured"]
    for name, expected in ((first, 0.0), (second, 1.0)):
        checkpointing.verify(tmp_path / name)
        saved = checkpointing.load_file(tmp_path / name / "model.safetensors")
        assert saved["w"].tolist() == [expected] * 3


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes no checkpoint."""

    def write(snapshot: Snapshot, folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    monkeypatch.setattr(Snapshot, "write", write)


def test_a_checkpoint_that_fails_is_heard_of(tmp_path: Path, full: None) -> None:
    writer = EventWriter(RunStore(tmp_path))
    writer.write(CheckpointDue(4, {}, snapshot))
    assert writer._under_way is not None
    writer._under_way.exception(timeout=30)
    with pytest.raises(OSError, match="No space"):
        writer.check()
    writer.check()  # said once
    writer.write(CheckpointDue(8, {}, snapshot))
    with pytest.raises(OSError, match="No space"):
        writer.wait()
    writer.write(CheckpointDue(12, {}, snapshot))
    with pytest.raises(OSError, match="No space"):
        writer.write(Finished(12, {}))
    assert [entry["kind"] for entry in entries(tmp_path / JOURNAL_NAME)] == ["checkpoint"] * 3


def test_the_first_error_is_the_one_that_is_raised(tmp_path: Path, full: None) -> None:
    def fail() -> None:
        with EventWriter(RunStore(tmp_path)) as writer:
            writer.write(CheckpointDue(4, {}, snapshot))
            raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        fail()


def test_an_interruption_at_a_checkpoint_writes_it_once(tmp_path: Path) -> None:
    """It is whole when the worker leaves."""
    told: list[str] = []
    with EventWriter(RunStore(tmp_path)) as writer:
        writer.write(CheckpointDue(4, {}, snapshot))
        # The others wait to hear that there is nothing to wait for.
        writer.write(Interrupted(4, pytest.fail), ready=lambda: told.append("ready"))
    assert told == ["ready"]
    checkpointing.verify(tmp_path / checkpoint_name(4))
    with EventWriter(RunStore(tmp_path)) as writer:
        writer.write(CheckpointDue(8, {}, snapshot))
        writer.write(Interrupted(9, snapshot))
    checkpointing.verify(tmp_path / interrupted_name(9))


def test_of_several_interruptions_the_last_one_stays(tmp_path: Path, tiny_config: Config) -> None:
    """On machines that come and go there may be many before a checkpoint is due."""
    for event in (CheckpointDue(4, {}, snapshot), *(Interrupted(n, snapshot) for n in (5, 6, 7))):
        store = RunStore(tmp_path, retention=Retention.of(tiny_config))
        with EventWriter(store) as writer:
            writer.write(event)
    there = sorted(path.name for path in tmp_path.glob("*-*"))
    assert there == [interrupted_name(7), checkpoint_name(4)]


def test_what_could_not_be_kept_elsewhere_stays_here(tmp_path: Path) -> None:
    class Fails(RunStore):
        def keep(self, checkpoint: Path) -> None:
            if checkpoint.name == checkpoint_name(12):
                raise OperationalError("away")

        def prune(self, newest: Path) -> None:
            pruned.append(newest.name)

    def there() -> list[str]:
        return sorted(path.name for path in tmp_path.glob("step-*"))

    pruned: list[str] = []
    writer = EventWriter(Fails(tmp_path))
    for step in (4, 8, 12):
        writer.write(CheckpointDue(step, {}, snapshot))
    with pytest.raises(OperationalError, match="away"):
        writer.__exit__(None, None, None)
    assert there() == [checkpoint_name(step) for step in (4, 8, 12)], "two are kept otherwise"
    assert pruned == [checkpoint_name(4), checkpoint_name(8)]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".step-00000004.partial").mkdir()
    (tmp_path / ".run.json.0123abcd.partial").touch()
    with EventWriter(RunStore(tmp_path)):
        assert [path.name for path in tmp_path.iterdir()] == ["journal.jsonl"]


def test_no_checkpoint_is_written_without_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever empties a run's folder under its worker ends the training, in one line."""
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    with EventWriter(RunStore(tmp_path)) as writer:
        writer.write(CheckpointDue(4, {}, snapshot))
        writer.wait()
        (tmp_path / JOURNAL_NAME).unlink()
        for event in (CheckpointDue(8, {}, pytest.fail), Interrupted(9, pytest.fail)):
            with pytest.raises(FileNotFoundError, match="removed or cut"):
                writer.write(event)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint_name(4)]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the watchdog of this process was set to, in order; it does not bite."""
    seconds: list[float] = []
    monkeypatch.setattr(event_writer, "PULSE_SECONDS", 0.02)
    monkeypatch.setattr(Watchdog, "_arm", lambda _, s: seconds.append(s))
    return seconds


@pytest.mark.parametrize("waits", ["at the next", "at the end", "as it leaves"])
def test_waiting_for_a_slow_upload_is_no_hang(
    tmp_path: Path, patience: list[float], waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update that hangs is noticed as ever, also while a checkpoint is uploaded."""
    longer, seen = threading.Event(), list[str | float]()

    class Slow(RunStore):
        def keep(self, checkpoint: Path) -> None:
            if checkpoint.name == checkpoint_name(4):
                assert longer.wait(5)
                seen.append("kept")

        def finish(self) -> None:
            seen.append(patience[-1])

    def capture() -> Snapshot:
        seen.append(patience[-1])
        return snapshot()

    with Watchdog(10, tmp_path / "hang-0.log"), EventWriter(Slow(tmp_path)) as writer:
        writer.write(CheckpointDue(4, {}, capture))
        assert patience == [10]

        def waiting() -> None:
            # No longer than ever: who stands still here is noticed, too.
            seen.append(f"waits, fed {len(patience)} times for {patience[-1]}")
            if len(patience) == 4:
                monkeypatch.setattr(event_writer, "PULSE_SECONDS", 30.0)  # that it is kept in time
                longer.set()

        if waits == "at the next":
            writer.write(CheckpointDue(8, {}, capture), waiting)
        if waits == "at the end":
            writer.write(Finished(4, {}), waiting)
        if waits == "as it leaves":
            threading.Timer(0.1, longer.set).start()
    slow = 10 + SAVE_SECONDS
    fed = [f"waits, fed {times} times for 10" for times in (2, 3, 4)]
    then = {"at the next": [*fed, "kept", 10], "at the end": [*fed, "kept", slow]}
    assert seen == [10, *then.get(waits, ["kept"])]
    assert patience[-1] == 10


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds between tries, none of which passes."""
    seconds = [0.0]
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", seconds.append)
    return seconds


@pytest.mark.parametrize("refuses", ["keep", "prune"])
def test_a_storage_that_refuses_for_half_an_hour_ends_no_training(
    tmp_path: Path, slept: list[float], refuses: str
) -> None:
    """The checkpoint is whole on this machine's disk meanwhile."""

    class Away(RunStore):
        def keep(self, checkpoint: Path) -> None:
            if refuses == "keep" and sum(slept) < 1800:
                raise OSError(errno.ECONNREFUSED, "refused", "s3://bucket")

        def prune(self, newest: Path) -> None:
            if refuses == "prune" and sum(slept) < 1800:
                raise OSError(errno.ECONNREFUSED, "refused", "s3://bucket")

    with EventWriter(Away(tmp_path)) as writer:
        writer.write(CheckpointDue(4, {}, snapshot))
        writer.write(Finished(4, {}))
    assert 1800 <= sum(slept) < SAVE_SECONDS
    checkpointing.verify(tmp_path / checkpoint_name(4))


class Refuses(RunStore):
    """Takes no checkpoint."""

    error = OSError(errno.ECONNREFUSED, "refused", "s3://bucket")

    def keep(self, checkpoint: Path) -> None:
        raise self.error


@pytest.mark.parametrize("ends", ["fails", "is interrupted"])
def test_no_storage_is_waited_for_when_training_has_ended(
    tmp_path: Path, slept: list[float], ends: str
) -> None:

    def work() -> None:
        with EventWriter(Refuses(tmp_path)) as writer:
            writer.write(CheckpointDue(4, {}, snapshot))
            if ends == "fails":
                raise ValueError("the run diverged")
            writer.write(Interrupted(5, snapshot))

    with pytest.raises(ValueError if ends == "fails" else OSError, match=r"diverged|refused"):
        work()


@pytest.mark.parametrize("lasting", ["gone", "too long"])
def test_what_waiting_does_not_mend_is_told_after_the_usual_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slept: list[float], lasting: str
) -> None:
    if lasting == "too long":
        monkeypatch.setattr(event_writer, "PATIENT_SECONDS", 0.0)
    else:
        monkeypatch.setattr(Refuses, "error", FileNotFoundError(errno.ENOENT, "gone", "journal"))
    with EventWriter(Refuses(tmp_path)) as writer:
        writer.write(CheckpointDue(4, {}, snapshot))
        with pytest.raises(OSError, match=r"gone|refused"):
            writer.wait()
    assert sum(slept) == sum(PAUSES)


def test_a_suspended_job_has_not_waited_for_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock runs on while it is."""
    waits = threading.Event()

    class Slow(RunStore):
        def keep(self, checkpoint: Path) -> None:
            assert waits.wait(60)

    monkeypatch.setattr(event_writer, "PULSE_SECONDS", 0.01)
    with EventWriter(Slow(tmp_path)) as writer:
        writer.write(CheckpointDue(4, {}, snapshot))
        # Each look at it is a day after the one before.
        clock = SimpleNamespace(monotonic=map(float, itertools.count(0, 86400)).__next__)
        monkeypatch.setattr(event_writer, "time", clock)
        pulses = itertools.count()
        writer.wait(lambda: waits.set() if next(pulses) == 3 else None)
        monkeypatch.undo()


def test_a_checkpoint_that_is_never_kept_is_the_storages_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a network file system whose server is gone, where a call never returns."""
    test_ends = threading.Event()

    class Hangs(RunStore):
        def keep(self, checkpoint: Path) -> None:
            assert test_ends.wait(5)

    def work() -> None:
        with EventWriter(Hangs(tmp_path)) as writer:
            writer.write(CheckpointDue(4, {}, snapshot))
            writer.write(Finished(4, {}))

    monkeypatch.setattr(event_writer, "SAVE_SECONDS", 0.1)
    with pytest.raises(OSError, match="not saved within an hour") as caught:
        work()
    assert caught.value.filename == str(tmp_path)
    test_ends.set()
