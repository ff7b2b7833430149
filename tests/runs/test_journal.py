"""The journal, whatever the disk does."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.errors import UserError
from seq2sweep.runs import journal
from seq2sweep.runs.journal import Journal
from seq2sweep.train.events import CheckpointDue, Finished, Logged, Validated


def test_the_journal_is_written_through_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torn lines are written over; nothing appears twice."""
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    writer = Journal(tmp_path / "journal.jsonl")
    write, calls, seen = os.pwrite, [], []

    def unreliable(descriptor: int, line: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) % 3 == 1:
            write(descriptor, line[:7], offset)
            raise OSError(errno.EIO, "the disk is away")
        if len(calls) % 3 == 2:
            write(descriptor, line, offset)
            seen.extend(e for e, _ in journal.follow(tmp_path / "journal.jsonl", offset))
            raise OSError(errno.ETIMEDOUT, "the answer was lost")
        return write(descriptor, line, offset)

    monkeypatch.setattr(os, "pwrite", unreliable)
    for step in range(1, 6):
        writer.append(Logged(step, {"loss": 10.0**step}))
    writer.close()
    assert len(calls) == 15
    entries = [*journal.entries(tmp_path / "journal.jsonl")]
    assert [(entry["step"], entry["loss"]) for entry in entries] == [
        (step, 10.0**step) for step in range(1, 6)
    ]
    assert entries == seen  # a reader in between saw what it would see later


def test_a_full_disk_costs_the_journal_nothing(small_disk: Path) -> None:
    path, filler = small_disk / "journal.jsonl", small_disk / "filler"
    writer = Journal(path)
    filler.write_bytes(bytes(450_000))

    def fill() -> None:
        for step in range(writer._last.get("logged", 0) + 1, 100_000):
            writer.append(Logged(step, {"loss": 1.0 / step}))

    with pytest.raises(OSError, match="space"):
        fill()
    reached = writer._last["logged"]
    assert reached > 100
    filler.unlink()
    # The same worker may go on, and so may the next one, which cuts a torn line off.
    writer.append(Logged(reached + 1, {"loss": 0.0}))
    writer.close()
    writer = Journal(path)
    assert writer._last["logged"] == reached + 1
    with pytest.raises(OSError, match="space"):
        fill()
    writer.close()
    assert [entry["step"] for entry in journal.entries(path)] == list(
        range(1, writer._last["logged"] + 1)
    )


def test_a_damaged_line_of_the_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"kind": "logged", "step": 1, "time": 0}\n\x00\x00\x00\n')
    with pytest.raises(UserError, match=r"journal\.jsonl has a damaged line .* remove that line"):
        list(journal.entries(path))


def test_repeated_steps_stand_once_in_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    first.append(Logged(1, {"loss": 3.0}))
    first.append(Logged(2, {"loss": 2.0}))
    first.close()
    with path.open("a") as stream:
        stream.write('{"kind": "valida')
    again = Journal(path)
    for event in (
        Logged(2, {"loss": 9.0}),
        Validated(2, {"valid_loss": 1.0}),
        Logged(3, {"loss": 1.0}),
    ):
        again.append(event)
    again.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["kind"], line["step"], line.get("loss")) for line in lines] == [
        ("logged", 1, 3.0),
        ("logged", 2, 2.0),
        ("validated", 2, None),
        ("logged", 3, 1.0),
    ]


def test_checkpoints_of_a_run_that_had_finished_are_told_again_and_then_its_end(
    tmp_path: Path,
) -> None:
    """It is trained again since they were lost. Curves were delivered, and stay as they are."""
    path = tmp_path / "journal.jsonl"

    def train(after: int, until: int, device: str) -> None:
        with contextlib.closing(Journal(path)) as writer:
            for step in range(after + 4, until + 1, 4):
                writer.append(Validated(step, {"valid_loss": 1.0}))
                writer.append(CheckpointDue(step, {"device": device}, pytest.fail))
            if until == 8:
                writer.append(Finished(8, {"device": device}))

    train(0, 4, "CPU")
    train(0, 8, "H100")  # killed as it wrote its first checkpoint
    train(8, 8, "H200")  # asked for again: nothing is trained
    first = [
        *(("validated", 4, None), ("checkpoint", 4, "CPU")),
        *(("validated", 8, None), ("checkpoint", 8, "H100"), ("finished", 8, "H100")),
    ]

    def told() -> list[tuple[str, int, str | None]]:
        return [(e["kind"], e["step"], e.get("device")) for e in journal.entries(path)]

    assert told() == first
    train(0, 4, "A")  # both were lost; killed in between
    train(4, 8, "B")
    train(8, 8, "C")
    again = [("checkpoint", 4, "A"), ("checkpoint", 8, "B"), ("finished", 8, "B")]
    assert told() == first + again


@pytest.mark.parametrize("fails", [False, True])
def test_a_writer_that_was_cut_off_writes_over_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A file server gives its lock to the next one; fails: in the middle of a line."""
    path, written = tmp_path / "journal.jsonl", b""
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(contextlib.closing(Journal(path)))
        old.append(CheckpointDue(4, {"loss": 1.0}, pytest.fail))

        def go_on(*_: Any) -> int:
            nonlocal written
            monkeypatch.undo()
            new = stack.enter_context(contextlib.closing(Journal(path)))
            for step in (12, 16):
                new.append(CheckpointDue(step, {"loss": 1.0}, pytest.fail))
            written = path.read_bytes()
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        if fails:
            monkeypatch.setattr("seq2sweep.storage.retry.PAUSES", (0.0,))
            monkeypatch.setattr(os, "pwrite", go_on)
        else:
            with pytest.raises(OSError, match="Input/output error"):
                go_on()
        with pytest.raises(
            OSError, match="another process trains this run, too: end one"
        ) as caught:
            old.append(CheckpointDue(20, {"loss": 1.0}, pytest.fail))
        assert str(path) in str(caught.value)
        assert path.read_bytes() == written
    assert [entry["step"] for entry in journal.entries(path)] == [4, 12, 16]


@pytest.mark.parametrize("lost", ["removed", "cut", "replaced", "moved"])
def test_a_file_that_is_lost_ends_training_at_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Also in a folder that all nodes see, where nobody uploads it."""
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    path = tmp_path / "journal.jsonl"
    with contextlib.closing(Journal(path)) as writer:
        writer.append(CheckpointDue(4, {"loss": 1.0}, pytest.fail))
        if lost == "moved":
            path.rename(tmp_path / "elsewhere")
        elif lost == "cut":
            os.truncate(path, 3)
        else:
            path.unlink()
        if lost == "replaced":
            path.touch()
        with pytest.raises(FileNotFoundError, match="removed or cut") as caught:
            writer.append(CheckpointDue(8, {"loss": 1.0}, pytest.fail))
        assert caught.value.filename == str(path)
    assert lost != "cut" or path.read_bytes() == b'{"k', "nothing is written behind a hole"
