"""Delivery beside the work: never held up by it, never silent about what it could not do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seq2sweep.errors import OperationalError
from seq2sweep.tracking import delivery, relay_thread
from seq2sweep.tracking.delivery import ATTEMPTS, FailedRequestError, UnavailableError
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import Experiment
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay import Relay
from seq2sweep.tracking.relay_thread import RelayThread, sync
from tests.tracking import scenario
from tests.tracking.servers import free_port

Place = tuple[Path, str, str, Path]


@pytest.fixture
def place(uri: str, folder: Path, tmp_path: Path, experiment: Experiment) -> Place:
    return (tmp_path / "tracking", uri, "tests", folder / "artifacts")


@pytest.fixture
def dead(tmp_path: Path) -> Place:
    address = f"http://ada:hunter2@127.0.0.1:{free_port()}"
    return (tmp_path / "tracking", address, "tests", tmp_path / "artifacts")


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Place]:
    """A server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        yield (tmp_path / "tracking", address, "tests", tmp_path / "artifacts")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_thread, "PATIENCE", 0.3)
    monkeypatch.setattr(relay_thread, "SHORT_PATIENCE", 0.3)


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        shown = SimpleNamespace(monotonic=lambda: self.now, sleep=time.sleep)
        monkeypatch.setattr(relay_thread, "time", shown)

    def slow(
        self, step: Callable[..., object], before: Callable[[], object] = lambda: None
    ) -> Callable[..., None]:
        """What takes two seconds besides; before: what it waits for."""

        def slowly(*given: Any) -> None:
            before()
            step(*given)
            self.now += 2.0

        return slowly


def test_all_is_delivered_at_the_end(
    place: Place, experiment: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RelayThread(*place):
        recorded = scenario.record(tmp_path)
    scenario.check(experiment, recorded)
    captured = capsys.readouterr()
    assert "seq2sweep" not in captured.out + captured.err


def test_curves_arrive_while_the_work_goes_on(
    place: Place, experiment: Experiment, tmp_path: Path
) -> None:
    with RelayThread(*place, every=0.05) as thread, scenario.start(tmp_path, "train-b") as run:
        scenario.write_journal(tmp_path / "train-b" / "journal.jsonl", 1, 5)
        assert thread.flush(100)
        run_id = thread.run_id(run)
        assert run_id is not None
        assert len(experiment.client.get_metric_history(run_id, "train/loss")) == 5
        assert experiment.client.get_run(run_id).info.status == "RUNNING"


def test_recording_never_waits(hanging: Place, tmp_path: Path, impatient: None) -> None:
    # Its own time limit is 30 s; the bounds here are far from what it takes, and from that.
    begun = time.monotonic()
    with RelayThread(*hanging, every=0.01) as thread, scenario.start(tmp_path, "train-h") as run:
        assert not thread.flush(0.1)
        for step in range(50):
            run.log({"train/loss": 1.0}, step)
        assert thread.run_id(run) is None
        assert time.monotonic() - begun < 15
    assert time.monotonic() - begun < 15


def test_an_outage_is_one_line_and_the_end_says_what_is_missing(
    dead: Place, tmp_path: Path, impatient: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with RelayThread(*dead, every=0.01) as thread, scenario.start(tmp_path, "train-o") as run:
        for _ in range(5):
            assert not thread.flush(100)
        assert thread.run_id(run) is None
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("seq2sweep: tracking.uri: the MLflow store http://***@127.0.0.1:")
    assert "Connection refused" in first
    assert first.endswith(
        'the work continues, and "seq2sweep sync" records later what MLflow misses'
    )
    assert last.startswith("seq2sweep: 4 record(s) are not in MLflow yet")


def let_passes_fail(
    monkeypatch: pytest.MonkeyPatch, passes: list[bool], error: UnavailableError
) -> None:
    """passes: whether each succeeds, as all after them do."""
    answers = iter(passes)

    def deliver(relay: Relay) -> bool:
        if not next(answers, True):
            raise error
        return True

    monkeypatch.setattr(Relay, "deliver", deliver)
    monkeypatch.setattr(relay_thread, "LONGEST_PAUSE", 0.01)


def test_a_new_outage_is_a_new_line(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = [True, False, False, True, False]
    let_passes_fail(monkeypatch, passes, UnavailableError("it is away"))
    with RelayThread(*place, every=0.01) as thread:
        while thread._begun < 8:
            time.sleep(0.01)
    assert capsys.readouterr().err.count("it is away") == 2


def test_a_request_that_fails_once_is_no_outage(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = [True, False, True, False, False, True]
    let_passes_fail(monkeypatch, passes, FailedRequestError("connection reset by peer"))
    with RelayThread(*place, every=0.01) as thread:
        while thread._begun < 3:
            time.sleep(0.001)
        begun = time.monotonic()
        assert thread.flush()
        while thread._begun < 8:
            time.sleep(0.01)
    assert time.monotonic() - begun < 10
    assert capsys.readouterr().err.count("connection reset") == 1


def test_what_is_refused_is_said_once(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        RelayThread(*place, every=0.01) as thread,
        Recorder(place[0], "t", kind="test") as run,
    ):
        run.log({"no$name": 1.0}, 1)
        assert thread.flush(100)
        run.log({"train/loss": 1.0}, 1)
        assert thread.flush(100)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"seq2sweep: not all of the record in {run.folder} can be delivered to ")
    assert "no$name" in line
    with pytest.raises(OperationalError, match="not all of the record in"):
        sync(*place)


def test_an_interrupted_stage_ends_soon(
    hanging: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_thread, "PATIENCE", 1000.0)
    monkeypatch.setattr(relay_thread, "SHORT_PATIENCE", 0.2)

    def work() -> None:
        with RelayThread(*hanging), scenario.start(tmp_path, "train-i"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()


def test_an_interrupted_stage_does_not_wait_for_a_store_that_gets_on(
    place: Place,
    experiment: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(relay_thread, "SHORT_PATIENCE", 3.0)
    thread = RelayThread(*place)
    thread.relay._opened = experiment  # opening it anew takes its time
    thread.relay.on_record = clock.slow(thread.relay.on_record, lambda: time.sleep(0.05))

    def work() -> None:
        with thread:
            scenario.record(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert "are not in MLflow yet" in capsys.readouterr().err
    thread._thread.join()


def test_a_flush_waits_for_a_pass_that_begins_after_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is under way may have been where the news is already."""
    begun, done, go_on = list[float](), list[float](), threading.Event()

    def deliver(relay: Relay) -> bool:
        begun.append(time.monotonic())
        go_on.wait(100)
        time.sleep(0.2)
        done.append(begun[-1])
        return True

    monkeypatch.setattr(Relay, "deliver", deliver)
    with RelayThread(*place, every=1000.0) as thread:
        while not begun:
            time.sleep(0.01)
        asked = time.monotonic()
        threading.Timer(0.1, go_on.set).start()
        assert thread.flush(100)
        assert done[-1] > asked


def test_a_parent_that_cannot_come_holds_no_stage_up(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(relay_thread, "PATIENCE", 1000.0)
    with Recorder(place[0], "parent", kind="test") as parent:
        pass
    (parent.folder / "records.jsonl").write_bytes(b"\xff\xfe\n")
    with RelayThread(*place), Recorder(place[0], "child", kind="test", parent=parent.name):
        pass
    assert "2 record(s) are not in MLflow yet" in capsys.readouterr().err


def test_a_store_that_comes_back_at_the_end_gets_all(
    place: Place, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though what it missed takes longer than the patience with one that is away."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(relay_thread, "SHORT_PATIENCE", 3.0)
    deliver: Callable[[Relay], bool] = Relay.deliver
    thread = RelayThread(*place, every=0.01)
    thread.relay._opened = experiment  # opening it anew takes its time
    thread.relay.on_record = clock.slow(thread.relay.on_record)

    def until_the_end(relay: Relay) -> bool:
        if not thread._closing:
            raise UnavailableError("it is away")
        return deliver(relay)

    monkeypatch.setattr(Relay, "deliver", until_the_end)
    with thread:
        recorded = scenario.record(tmp_path)
        assert not thread.flush(100)
    scenario.check(experiment, recorded)


def test_a_store_that_gets_on_has_as_long_as_it_takes(
    place: Place, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    thread = RelayThread(*place, every=0.01)
    thread.relay._opened = experiment  # opening it anew takes its time
    flushing = threading.Event()
    thread.relay.on_record = clock.slow(thread.relay.on_record, flushing.wait)
    with thread:
        scenario.record(tmp_path)
        begun = clock.now
        flushing.set()
        assert thread.flush(2.5)
        assert clock.now - begun > 2.5, "all steps together took longer"


def test_a_store_that_gets_on_with_a_long_curve_has_as_long_as_it_takes(
    place: Place, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(delivery, "POINTS_AT_ONCE", 2)
    thread = RelayThread(*place, every=0.01)
    thread.relay._opened = experiment  # opening it anew takes its time
    step, flushing, parts = thread.relay.on_progress, threading.Event(), []

    def slow() -> None:
        flushing.wait()
        step()
        parts.append(clock.now)
        clock.now += 2.0
        time.sleep(0.1)  # so that whoever waits looks at the clock

    thread.relay.on_progress = slow
    with thread:
        scenario.record(tmp_path)
        flushing.set()
        assert thread.flush(2.5)
    assert len(parts) > 2, "all of them together took longer"


@pytest.fixture(params=["deliver", "records_left"])
def bug(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """In the thread, or in what the end of the block asks."""

    def fails(relay: Relay) -> bool:
        raise RuntimeError("a bug at http://ada:hunter2@host\nand more of it")

    monkeypatch.setattr(Relay, request.param, fails)


def test_a_bug_is_said_and_does_not_fail_the_stage(
    place: Place, bug: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with RelayThread(*place):
        pass
    path = place[0] / "failure.log"
    line = (
        "seq2sweep: delivery to MLflow failed: RuntimeError: a bug at http://***@host "
        f"(the traceback is in {path}); the work continues"
    )
    assert capsys.readouterr().err.count(line) == 1
    kept = path.read_text()
    assert kept.startswith("Traceback (most recent call last):")
    assert kept.endswith("RuntimeError: a bug at http://***@host\nand more of it\n")
    assert "hunter2" not in kept
    with pytest.raises(RuntimeError, match="a bug"):
        sync(*place)


def test_a_bug_leaves_the_error_of_the_work_as_it_is(
    place: Place,
    bug: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    def work() -> None:
        with RelayThread(*place):
            raise ValueError("the work's own")

    monkeypatch.setattr(relay_thread, "write_whole", full)
    with pytest.raises(ValueError, match="the work's own"):
        work()
    why = "a bug at http://***@host (the traceback cannot be kept: [Errno 28] No space left"
    assert capsys.readouterr().err.count(why) == 1


def test_what_a_bug_kept_back_is_delivered_by_the_next_stage(
    place: Place, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Run, values: object) -> None:
        raise AssertionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "params", fails)
        with RelayThread(*place) as thread:
            recorded = scenario.record(tmp_path)
            assert not thread.flush(100)
    with RelayThread(*place):
        pass
    scenario.check(experiment, recorded)


def test_an_upload_that_takes_long_is_waited_for(
    place: Place, tmp_path: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it gets on: each step may take its time, and all of them together longer."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(relay_thread, "PATIENCE", 3.0)
    deliver: Callable[[Relay], bool] = Relay.deliver

    def slowly(relay: Relay) -> bool:
        step = relay.on_record
        relay.on_record = clock.slow(step)
        try:
            return deliver(relay)
        finally:
            relay.on_record = step

    monkeypatch.setattr(Relay, "deliver", slowly)
    with RelayThread(*place):
        recorded = scenario.record(tmp_path)
    scenario.check(experiment, recorded)


@pytest.mark.parametrize(
    ("passes", "applied"),
    [([False, True], 0), ([False] * 8 + [True], 1), ([False] * 4 + [True], 0), ([False] * 9, 0)],
)
def test_sync_tries_a_failed_request_again_while_it_gets_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, passes: list[bool], applied: int
) -> None:
    """applied: records in each pass."""
    monkeypatch.setattr(relay_thread, "PAUSE", 0.01)
    let_passes_fail(monkeypatch, passes, FailedRequestError("connection reset by peer"))
    deliver, tried = Relay.deliver, []

    def counted(relay: Relay) -> bool:
        tried.append(relay)
        relay.applied += applied
        return deliver(relay)

    monkeypatch.setattr(Relay, "deliver", counted)
    if passes[-1]:
        assert sync(*place)
        assert len(tried) == len(passes)
    else:
        with pytest.raises(OperationalError, match=r"^connection reset by peer; 0 record"):
            sync(*place)
        assert len(tried) == ATTEMPTS + 1
