"""Curves reach MLflow once each, whatever fails in between."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from seq2sweep.tracking.follow import CURVES, JournalFollower
from seq2sweep.tracking.runs import Run, Tracker
from seq2sweep.train import journal

Read = Callable[[int], tuple[list[dict[str, Any]], int]]


class Writer:
    """A journal as training writes it, without training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = 1_700_000_000.0

    def write(self, kind: str, step: int, **figures: float | None) -> None:
        self.clock += 0.5
        entry = {"kind": kind, "step": step, "time": self.clock, **figures}
        with self.path.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")

    def steps(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.write("logged", step, loss=10 / step, perplexity=step, seconds_left=3.0, epoch=1)
            if step % 5 == 0:
                self.write("validated", step, valid_loss=1 / step, valid_perplexity=1.0)
                self.write("checkpoint", step, loss=99.0, valid_loss=99.0)

    def read(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        return journal.read(self.path, offset)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "journal.jsonl")


def steps(run: Run, key: str) -> list[int]:
    return [entry.step for entry in run.client.get_metric_history(run.id, key)]


def fail_every_second_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the store fail before or after it has stored a batch, in turn."""
    calls: list[str] = []
    send = run.client.log_batch

    def unreliable(*args: Any, **kwargs: Any) -> None:
        calls.append("before" if len(calls) % 4 == 0 else "after" if len(calls) % 4 == 2 else "")
        if calls[-1] == "before":
            raise MlflowException("the server at http://ada:hunter2@host is away")
        send(*args, **kwargs)
        if calls[-1] == "after":
            raise MlflowException("the answer was lost")

    monkeypatch.setattr(run.client, "log_batch", unreliable)
    return calls


def test_curves_and_nothing_else(run: Run, writer: Writer) -> None:
    follower = JournalFollower(run, writer.read)
    assert follower.poll()  # no journal yet
    writer.steps(1, 12)
    writer.write("finished", 12, steps=12, wall_seconds=3.0)
    assert follower.poll()
    assert follower.close()
    run.finish()
    assert steps(run, "loss") == list(range(1, 13))
    assert steps(run, "valid_loss") == [5, 10]
    found = run.client.get_run(run.id).data.metrics
    assert found == {
        "loss": 10 / 12,
        "perplexity": 12.0,
        "valid_loss": 0.1,
        "valid_perplexity": 1.0,
    }
    history = run.client.get_metric_history(run.id, "loss")
    assert history[0].timestamp == 1_700_000_000_500


def test_failures_lose_nothing_and_repeat_nothing(
    run: Run, writer: Writer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = fail_every_second_time(run, monkeypatch)
    follower = JournalFollower(run, writer.read, pauses=(0.0,))
    answers = []
    for start in range(1, 41, 10):
        writer.steps(start, start + 9)
        answers.append(follower.poll())
    assert answers == [False, True, False, True]
    assert follower.close()
    assert "before" in calls
    assert "after" in calls
    monkeypatch.undo()
    run.finish()
    for key in ("loss", "perplexity"):
        assert steps(run, key) == list(range(1, 41))
    assert steps(run, "valid_loss") == list(range(5, 41, 5))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2  # one a failure that follows a success
    assert lines[0].startswith(
        "seq2sweep: MLflow does not take the curves (the server at http://***"
    )


def test_long_outage_is_one_line_and_close_says_what_is_missing(
    run: Run, writer: Writer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise MlflowException("away")

    monkeypatch.setattr(run.client, "log_batch", away)
    follower = JournalFollower(run, writer.read, pauses=(0.0, 0.0))
    writer.steps(1, 5)
    assert [follower.poll() for _ in range(4)] == [False] * 4
    assert not follower.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "(away); trying again" in lines[0]
    assert f"run {run.id} are incomplete" in lines[1]
    monkeypatch.undo()
    assert follower.close()
    assert steps(run, "loss") == [1, 2, 3, 4, 5]
    run.finish()


def test_resume_repeats_no_step(tracker: Tracker, run: Run, writer: Writer) -> None:
    with run:
        writer.steps(1, 13)
        JournalFollower(run, writer.read).close()
    # Training died at step 15 with the curves forwarded up to 13; it goes on from step 10, and
    # the driver is a new process that reads the journal from its beginning.
    writer.steps(14, 15)
    writer.steps(11, 20)
    resumed = tracker.resume(run.id)
    assert resumed is not None
    with resumed:
        follower = JournalFollower(resumed, writer.read)
        assert follower.poll()
        assert follower.close()
    assert steps(run, "loss") == list(range(1, 21))
    assert steps(run, "valid_loss") == [5, 10, 15, 20]


def test_background_thread_follows_and_drains(run: Run, writer: Writer) -> None:
    with JournalFollower(run, writer.read, every=0.01):
        writer.steps(1, 5)
        deadline = time.monotonic() + 20
        while steps(run, "valid_loss") != [5]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        writer.steps(6, 10)
    run.finish()
    assert steps(run, "loss") == list(range(1, 11))


def test_damaged_journal_is_raised_to_the_owner(run: Run) -> None:
    def damaged(offset: int) -> tuple[list[dict[str, Any]], int]:
        raise ValueError("line 3 is no JSON")

    follower = JournalFollower(run, damaged, every=0.0).start()
    assert follower._thread is not None
    follower._thread.join(20)
    with pytest.raises(ValueError, match="line 3 is no JSON"):
        follower.close()
    run.finish()


def test_figures_that_are_no_numbers(run: Run, writer: Writer) -> None:
    writer.write("logged", 1, loss=2.0, perplexity=None)
    writer.write("logged", 2, loss=None, perplexity=1.0)
    assert JournalFollower(run, writer.read).close()
    data = run.client.get_run(run.id).data
    run.finish()
    assert data.tags["non_finite"] == "perplexity at step 1"
    assert steps(run, "loss") == [1]
    assert steps(run, "perplexity") == [2]


def test_names_of_the_curves() -> None:
    """The names that reports and the README rely on."""
    assert [name for names in CURVES.values() for name in names] == [
        "loss",
        "perplexity",
        "gradient_norm",
        "learning_rate",
        "tokens_per_second",
        "valid_loss",
        "valid_perplexity",
    ]
