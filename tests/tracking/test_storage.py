"""Storage that several machines and users share, and that loses power."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.errors import OperationalError
from seq2sweep.tracking import outbox, recorder
from seq2sweep.tracking.delivery import UnavailableError
from seq2sweep.tracking.mlflow_store import Experiment
from seq2sweep.tracking.outbox import Outbox
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay import Relay
from seq2sweep.tracking.relay_thread import RelayThread, sync
from tests.tracking import scenario
from tests.tracking.unreliable import runs

# --- several machines ----------------------------------------------------------------------------


def test_locks_are_granted_by_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grants an exclusive lock only to who may write."""
    real = fcntl.flock

    def as_on_nfs(descriptor: int, how: int) -> None:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if how & fcntl.LOCK_EX and mode == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", as_on_nfs)
    with Recorder(tmp_path, "t", kind="test") as run:
        box = Outbox(run.folder)
        with box.without_recorder() as gone:
            assert not gone
    with box.without_recorder() as gone, box.delivering() as ours:
        assert gone
        assert ours


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_run_of_another_host_is_ended_when_nothing_has_come_of_it_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may live where locks do not reach this host; or the machine is gone."""
    journal = tmp_path / "train-1" / "journal.jsonl"
    scenario.write_journal(journal, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(recorder.socket, "gethostname", lambda: "a-pod-that-is-gone")
        run = scenario.start(tmp_path, "train-1")
    run.close()
    box = Outbox(run.folder)
    records = run.folder / "records.jsonl"
    for recorded, written in ((0, 0), (0, 700), (700, 0), (500, 700)):
        age(records, recorded)
        age(journal, written)
        box.end_if_dead()
        assert box.records()[-1].content["do"] == "dataset"
    age(records, 700)
    box.end_if_dead()
    box.end_if_dead()
    assert [r.content["do"] for r in box.records()][-2:] == ["dataset", "end"]
    assert box.records()[-1].content["status"] == "interrupted"
    assert "was gone" in box.records()[-1].content["error"]


def test_a_silent_run_shows_hosts_without_its_lock_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder(tmp_path, "t", kind="test") as run:
        box = Outbox(run.folder)
        age(run.folder / "records.jsonl", 10_000)
        box.end_if_dead()  # as deliveries of this host do every few seconds
        with monkeypatch.context() as patch:
            patch.setattr(outbox, "_try_lock", lambda descriptor, path: True)
            patch.setattr(outbox.socket, "gethostname", lambda: "another-host")
            box.end_if_dead()
        assert [r.content["do"] for r in box.records()] == ["start"]


def test_a_silent_run_shows_that_it_lives_while_the_store_is_away(
    tmp_path: Path, new: Callable[..., Relay]
) -> None:
    def fate(call: str) -> None:
        raise OSError("the store is away")

    with Recorder(tmp_path / "tracking", "at which delivery ends", kind="test"):
        pass
    with Recorder(tmp_path / "tracking", "t", kind="test") as run:
        records = run.folder / "records.jsonl"
        age(records, 10_000)
        with pytest.raises(UnavailableError):
            new(fate=fate).deliver()
        assert time.time() - records.stat().st_mtime < outbox.STILL_SECONDS


def test_a_run_that_was_taken_for_dead_has_a_day_to_record_more(
    experiment: Experiment,
    tmp_path: Path,
    new: Callable[..., Relay],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "tracking"
    with monkeypatch.context() as patch:
        patch.setattr(recorder.socket, "gethostname", lambda: "another-host")
        run, gone = Recorder(root, "lives", kind="test"), Recorder(root, "gone", kind="test")
    gone.close()
    monkeypatch.setattr(outbox, "_try_lock", lambda descriptor, path: True)
    for one in (run, gone):
        age(one.folder / "records.jsonl", 700)
    assert new().deliver()
    assert [runs(experiment, one.name)[0].info.status for one in (run, gone)] == ["KILLED"] * 2
    run.log({"score/bleu": 2.0})
    run.finish()
    run.close()
    assert new().deliver()
    (found,) = runs(experiment, run.name)
    assert (found.info.status, found.data.metrics) == ("FINISHED", {"score/bleu": 2.0})
    assert [*root.iterdir()] == [gone.folder]
    age(gone.folder / "records.jsonl", 90_000)
    assert new().deliver()
    assert [*root.iterdir()] == []


# --- several users -------------------------------------------------------------------------------


@pytest.fixture
def another_users(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Makes a folder another user's, of mode 0o755 or 0o700; not for real, as root may do all."""

    def take(folder: Path, mode: int) -> None:
        def guarded(real: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
            def call(path: Any, *args: Any, **kwargs: Any) -> Any:
                inside = isinstance(path, str | Path) and folder in Path(path).parents
                if inside and (mode == 0o700 or writes(*args, **kwargs)):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
                return real(path, *args, **kwargs)

            return call

        def to_write(mode: str = "r", *args: Any, **kwargs: Any) -> bool:
            return not {*"wax+"}.isdisjoint(mode)

        monkeypatch.setattr(io, "open", guarded(io.open, to_write))
        monkeypatch.setattr(os, "stat", guarded(os.stat, lambda *a, **k: False))

    return take


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_another_users_record_stops_neither_others_nor_the_stage(
    uri: str,
    folder: Path,
    experiment: Experiment,
    tmp_path: Path,
    another_users: Callable[[Path, int], None],
    capsys: pytest.CaptureFixture[str],
    mode: int,
) -> None:
    place = (tmp_path / "tracking", uri, "tests", folder / "artifacts")
    with Recorder(place[0], "theirs", kind="theirs") as theirs:
        pass
    another_users(theirs.folder, mode)
    with RelayThread(*place):
        recorded = scenario.record(tmp_path)
    scenario.check(experiment, recorded)
    assert runs(experiment, theirs.name) == []
    said = f"seq2sweep: not all of the record in {theirs.folder} can be delivered to MLflow ("
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith(said)]
    assert "Permission denied" in line
    with pytest.raises(
        OperationalError, match=f"{theirs.name} can be delivered .*Permission denied"
    ):
        sync(*place)


@pytest.mark.parametrize(("mode", "left"), [(0o755, False), (0o755, True), (0o700, False)])
def test_another_users_run_that_is_delivered_is_not_told_of(
    experiment: Experiment,
    tmp_path: Path,
    new: Callable[..., Relay],
    another_users: Callable[[Path, int], None],
    mode: int,
    left: bool,
) -> None:
    recorded = scenario.record(tmp_path)
    assert new().deliver()
    scenario.check(experiment, recorded)
    theirs = tmp_path / "tracking" / recorded.train
    if left:
        with (theirs / "records.jsonl").open("a") as stream:
            stream.write('{"do": "log", "metrics": {"score/bleu": 1.0}}\n')
    another_users(theirs, mode)
    relay = new()
    assert relay.deliver()
    told = left or mode == 0o700  # of what may not be read nobody knows
    assert relay.refused.keys() == ({recorded.train} if told else set())


def test_what_becomes_readable_is_delivered_with_its_parent(
    experiment: Experiment,
    tmp_path: Path,
    new: Callable[..., Relay],
    another_users: Callable[[Path, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = scenario.record(tmp_path)
    another_users(tmp_path / "tracking" / recorded.train, 0o700)
    relay = new()
    assert relay.deliver()
    # The child would have no parent.
    assert relay.refused.keys() == {recorded.train, recorded.evaluation}
    assert relay.applied == 0
    monkeypatch.undo()
    assert relay.deliver()
    assert relay.refused == {}
    scenario.check(experiment, recorded)


@pytest.mark.parametrize("place", ["tracking/{}/files", "{}"])
def test_a_file_that_may_not_be_read_holds_up_no_other_run(
    experiment: Experiment,
    tmp_path: Path,
    new: Callable[..., Relay],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    recorded, other = scenario.record(tmp_path), scenario.record(tmp_path)
    hidden, real = tmp_path / place.format(recorded.train), io.open

    def guarded(name: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(name, str | Path) and hidden in Path(os.path.abspath(name)).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return real(name, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", guarded)
        patch.setattr("builtins.open", guarded)
        relay = new()
        assert relay.deliver()
        assert relay.refused.keys() == {recorded.train}
        assert "Permission denied" in relay.refused[recorded.train]
        scenario.check(experiment, other)
    relay = new()
    assert relay.deliver()
    assert relay.refused == {}
    scenario.check(experiment, recorded)


def test_a_record_that_is_removed_while_it_is_delivered_is_given_up(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    with Recorder(tmp_path / "tracking", "t", kind="test") as removed:
        pass
    recorded = scenario.record(tmp_path)

    def fate(call: str) -> None:
        if call == "create_run" and removed.folder.exists():
            shutil.rmtree(removed.folder)

    relay = new(fate=fate)
    assert relay.deliver()
    assert relay.refused == {}
    scenario.check(experiment, recorded)


# --- power that fails ----------------------------------------------------------------------------


def test_every_record_and_file_is_flushed_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: dict[tuple[int, int], int] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        stat = os.fstat(descriptor)
        flushed[stat.st_dev, stat.st_ino] = stat.st_size

    def safe(path: Path) -> bool:
        stat = path.stat()
        return flushed.get((stat.st_dev, stat.st_ino)) == stat.st_size

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "file").write_text("text")
    with Recorder(tmp_path / "tracking", "t", kind="test", params={"a": 1}) as run:
        for say in (
            lambda: run.log({"loss": 1.0}, 1),
            lambda: run.tag({"a": "b"}),
            lambda: run.dataset("phrasebook", "d"),
            lambda: run.curves(tmp_path / "file"),
            lambda: run.artifact(tmp_path / "file"),
            run.finish,
        ):
            assert safe(run.folder / "records.jsonl")
            say()
        assert safe(run.folder / "records.jsonl")
    assert all(map(safe, run.folder.glob("files/*/file")))


@pytest.mark.parametrize("grown", [False, True])
def test_records_that_power_took_are_said_again(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay], grown: bool
) -> None:
    """What is noted as delivered lies beyond the end, or within a line that came since."""
    name = f"train-{tmp_path.name}"
    path = tmp_path / "tracking" / name / "records.jsonl"
    scenario.write_journal(tmp_path / name / "journal.jsonl", 1, 13)
    run = scenario.start(tmp_path, name)
    assert new().deliver()
    first = path.read_bytes().splitlines(keepends=True)[0]
    with path.open("r+b") as stream:
        stream.truncate(len(first))
    run.close()
    if not grown:
        assert new().deliver()
        assert runs(experiment, name)[0].info.status == "KILLED"
    with scenario.start(tmp_path, name) as run:
        scenario.write_journal(tmp_path / name / "journal.jsonl", 14, scenario.STEPS)
        scenario.end(tmp_path, run)
    evaluation = scenario.evaluate(tmp_path, name)
    assert new().deliver()
    scenario.check(experiment, scenario.Recorded(name, evaluation.name, run.key))


def test_curves_that_power_took_are_neither_lost_nor_repeated(
    experiment: Experiment, tmp_path: Path, new: Callable[..., Relay]
) -> None:
    name = f"train-{tmp_path.name}"
    journal = tmp_path / name / "journal.jsonl"
    scenario.write_journal(journal, 1, 10)
    whole = journal.read_bytes()
    scenario.write_journal(journal, 11, 15)
    with scenario.start(tmp_path, name) as run:
        relay = new()
        assert relay.deliver()
        journal.write_bytes(whole)
        assert relay.deliver()
        scenario.write_journal(journal, 11, 13)
        # Not where a line began before.
        journal.write_bytes(journal.read_bytes().replace(b'"epoch": 1', b'"epoch": 10'))
        assert relay.deliver()
        scenario.write_journal(journal, 14, scenario.STEPS)
        scenario.end(tmp_path, run)
    evaluation = scenario.evaluate(tmp_path, name)
    assert relay.deliver()
    assert relay.refused == {}
    scenario.check(experiment, scenario.Recorded(name, evaluation.name, run.key))
